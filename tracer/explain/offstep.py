"""Whether the release's own step without speculation (zero draft steps, chosen while it runs) is reachable."""

from __future__ import annotations

import ast
from typing import Any

import msgspec

from sgltrace.configuration.model import Value
from sgltrace.evaluate import Unknown
from sgltrace.evaluate.functions import Function, Module
from sgltrace.explain.session import Handled
from sgltrace.explain.vocabulary import Hints


class OffStep(msgspec.Struct):
    """Whether it is reachable (None: not known), why, and from which batch size on."""

    reachable: bool | None
    why: str
    from_batch_size: int | None = None
    options: list[str] = []


def off_step(handled: Handled, values: dict[str, Value], refused: bool, hints: Hints) -> OffStep:
    """Read it off the handled arguments and the table of candidate steps."""
    flag = hints.adaptive
    if refused:
        return OffStep(False, "the command is refused")
    if handled.record is None:
        return OffStep(None, "the arguments could not be handled")
    if not values.get(hints.algorithm):
        return OffStep(False, "the command starts no speculation")
    if flag not in handled.recorder.fields:
        return OffStep(False, "this release has no step of its own without speculation: no option switches draft steps")
    if flag not in values:
        return OffStep(None, f"whether {flag} stays on is not known")
    option = f"--{flag.replace('_', '-')}"
    table = _table(handled, values, hints)
    if not values[flag]:
        why = next(
            (link.effect for link in reversed(handled.recorder.links) if link.kind == "log" and flag in link.effect),
            "",
        )
        offered = _from(table) if isinstance(table, dict) else None
        more = "" if offered is None else f"; {option} would offer it from batch size {offered} on"
        return OffStep(False, (why.removeprefix("logs: ") or f"{option} is off") + more, None, [option])
    if not isinstance(table, dict):
        return OffStep(None, "the table of candidate steps is not known", None, [option])
    first = _from(table)
    if first is None:
        return OffStep(False, f"{option} is on, but no candidate of its table is 0 steps", None, [option])
    return OffStep(True, f"{option} is on, and 0 steps are a candidate from batch size {first} on", first, [option])


def _from(table: dict[int, list[Any]]) -> int | None:
    return min((size for size, steps in table.items() if 0 in steps), default=None)


def _table(handled: Handled, values: dict[str, Value], hints: Hints) -> dict[int, list[Any]] | Unknown | None:
    """Candidate steps by batch size, as the source's own function reads them."""
    machine = handled.machine
    module, name = _default_table(handled)
    if module is None:
        return None
    config: Any = None
    path = values.get(hints.adaptive_table)
    if path is not None:
        if path not in machine.readable:
            return Unknown(f"the file {path}")
        import json
        from pathlib import Path

        try:
            config = json.loads(Path(str(path)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return Unknown(f"the file {path}")
    else:
        config = machine.modules.attribute(module, name)
    if not isinstance(config, dict):
        return None
    table: dict[int, list[Any]] = {}
    for key, entry in config.items():
        steps = next((v for v in entry.values() if _is_steps(v)), None) if isinstance(entry, dict) else None
        if str(key).isdigit() and steps is not None:
            table[int(key)] = list(steps)
    own = next((v for v in config.values() if _is_steps(v)), None)
    return table or ({1: list(own)} if own is not None else None)


def _is_steps(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, int) for item in value)


def _default_table(handled: Handled) -> tuple[Module | None, str]:
    """The table at the top of a module of speculation: batch sizes, each with a list of numbers of steps."""
    machine = handled.machine
    for name in machine.modules.names_below("speculative"):
        if "adaptive" not in name:
            continue
        module = machine.modules.load(name)
        for bound, value in module.scope.items():
            if isinstance(value, dict) and value and all(str(key).isdigit() for key in value):
                return module, bound
    return None, ""


__all__ = ["Function", "OffStep", "ast", "off_step"]
