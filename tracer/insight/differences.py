"""What two runs of one configuration recorded differently: before and after a patch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sgltrace import runtime
from sgltrace.insight.figures import RunFigures

LIMIT = 200
_Key = tuple[str, str, str, int]


def differences(before: Path, after: Path, figures: tuple[RunFigures, RunFigures]) -> dict[str, Any]:
    """Shapes, functions, periods and allocations that differ, at batch sizes that both runs have.

    A tensor is the same one at the same place in the same function's values, in the same mode at the same batch size.
    """
    first, second = _looks(before), _looks(after)
    functions = ({key[0] for key in first}, {key[0] for key in second})
    common = set(first) & set(second)
    sizes = {key[3] for key in first} & {key[3] for key in second}
    changed = [
        {
            "function": key[0],
            "value": key[1],
            "mode": key[2],
            "batch": key[3],
            "before": sorted(first[key]),
            "after": sorted(second[key]),
        }
        for key in sorted(common)
        if first[key] != second[key]
    ]
    alone = [
        {"function": key[0], "value": key[1], "mode": key[2], "batch": key[3], "in": side}
        for mine, other, side in ((first, second, "before"), (second, first, "after"))
        for key in sorted(mine)
        if key not in other and key[3] in sizes and key[0] in functions[0] & functions[1]
    ]
    return {
        "shapes": changed[:LIMIT],
        "values_of_one_run": alone[:LIMIT],
        "functions_of_one_run": {
            "before": sorted(functions[0] - functions[1]),
            "after": sorted(functions[1] - functions[0]),
        },
        "allocations": _allocations(*figures),
        "left_out": max(0, len(changed) - LIMIT) + max(0, len(alone) - LIMIT),
    }


def _looks(folder: Path) -> dict[_Key, set[str]]:
    found: dict[_Key, set[str]] = {}
    for o in runtime.observations(runtime.read_trace(folder)):
        if o.batch_size and runtime.DECODE in o.mode:
            stride = "" if o.stride is None else f" stride {list(o.stride)}"
            key = (o.function, f"{o.side} {o.path}", o.mode, o.batch_size)
            found.setdefault(key, set()).add(f"{o.dtype}{list(o.shape)}{stride}")
    return found


def _allocations(before: RunFigures, after: RunFigures) -> list[dict[str, Any]]:
    found = []
    for batch in sorted(set(before.batches) & set(after.batches)):
        first, second = before.at(batch), after.at(batch)
        if first is None or second is None or first.slots_per_token is None or second.slots_per_token is None:
            continue
        if abs(first.slots_per_token - second.slots_per_token) > 0.01 * first.slots_per_token:
            found.append({"batch": batch, "before": first.slots_per_token, "after": second.slots_per_token})
    return found
