"""From a trace to what is joined with the index: how each tensor looked at each stage, by batch size; where ranks
disagree; which fields share memory.
"""

from __future__ import annotations

from typing import NamedTuple

from .observations import Observation, RankDifference, Sharing, TensorValue
from .probe import wire
from .signatures import walk_tensors
from .steps import Call, steps
from .trace import Trace

_ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "bfloat16": 2,
    "float16": 2,
    "int32": 4,
    "float32": 4,
    "int64": 8,
    "float64": 8,
}
_Key = tuple[object, ...]


class _Look(NamedTuple):
    """What makes two sights of a tensor the same."""

    site: int
    side: str
    path: str
    cls: str | None
    field: str
    mode: str
    batch_size: int | None
    padded: int | None
    phase: int
    tensor: TensorValue


class _Seen:
    __slots__ = ("count", "first", "last", "ranks")

    def __init__(self, step: int) -> None:
        self.count = 0
        self.first = self.last = step
        self.ranks: set[str] = set()


def observations(trace: Trace) -> list[Observation]:
    """Every way that every tensor looked, sorted by site, side and path."""
    seen: dict[_Look, _Seen] = {}
    for process in trace.recording():
        batches: dict[int, tuple[str, int | None]] = {}
        for step in steps(trace, process):
            batches[step.number] = (step.mode, step.batch_size)
            of_step = 0
            for call in step.calls:
                # What processes a result belongs to the step that the result came from.
                of_step = _of_step(call) or (of_step if call.depth else 0)
                mode, batch_size = batches.get(of_step or step.number, ("", None))
                for side, record in (("before", call.before), ("after", call.after)):
                    if record is None or record.signature is None:
                        continue
                    for path, cls, field, tensor in record.signature.tensors():
                        key = _Look(
                            call.site,
                            side,
                            path,
                            cls,
                            field,
                            mode,
                            batch_size,
                            call.padded,
                            record.phase,
                            tensor,
                        )
                        entry = seen.get(key)
                        if entry is None:
                            entry = seen[key] = _Seen(step.number)
                        entry.count += 1
                        entry.last = step.number
                        entry.ranks.add(process.rank)
    found = [_observation(trace, key, entry) for key, entry in seen.items()]
    return sorted((o for o in found if o is not None), key=_order)


def _observation(trace: Trace, look: _Look, seen: _Seen) -> Observation | None:
    site = trace.site(look.site)
    if site is None:
        return None
    tensor = look.tensor
    return Observation(
        stage=site.stage,
        role=site.role,
        function=site.function,
        side=look.side,
        path=look.path,
        cls=look.cls,
        field=look.field,
        mode=look.mode,
        batch_size=look.batch_size,
        padded=look.padded,
        phase=wire.PHASE_NAMES[look.phase],
        shape=tensor.shape,
        stride=tensor.stride,
        dtype=tensor.dtype,
        device=tensor.device,
        count=seen.count,
        first_step=seen.first,
        last_step=seen.last,
        ranks=tuple(sorted(seen.ranks)),
    )


def _of_step(call: Call) -> int:
    number = call.before.values().get("of_step") if call.before is not None else None
    return number if isinstance(number, int) else 0


def _order(o: Observation) -> tuple[object, ...]:
    return (
        o.function,
        o.side,
        o.path,
        o.mode,
        o.batch_size or 0,
        o.padded or 0,
        o.phase,
        o.shape,
        o.stride or (),
        o.dtype,
        o.device,
    )


def rank_differences(trace: Trace, limit: int = 200) -> list[RankDifference]:
    """Where ranks that ran the same step recorded different shapes for the same value, at most ``limit``."""
    found: list[RankDifference] = []
    ranks = trace.recording()
    if len(ranks) < 2:
        return found
    by_step: dict[int, dict[str, dict[_Key, list[str]]]] = {}
    for process in ranks:
        for step in steps(trace, process):
            if not step.number:
                continue
            values: dict[_Key, list[str]] = {}
            for call in step.calls:
                for side, record in (("before", call.before), ("after", call.after)):
                    if record is None or record.signature is None:
                        continue
                    for path, _, _, tensor in record.signature.tensors():
                        values.setdefault((call.site, side, path), []).append(f"{tensor.dtype}{list(tensor.shape)}")
                if call.padded is not None:
                    values.setdefault((call.site, "after", "padded batch size"), []).append(str(call.padded))
            by_step.setdefault(step.number, {})[process.rank] = values
    for number in sorted(by_step):
        found += _compare(trace, number, by_step[number])
        if len(found) >= limit:
            return found[:limit]
    return found


def _compare(trace: Trace, number: int, by_rank: dict[str, dict[_Key, list[str]]]) -> list[RankDifference]:
    if len(by_rank) < 2:
        return []
    found = []
    common = set.intersection(*(set(values) for values in by_rank.values()))
    for key in sorted(common, key=str):
        seen = {rank: " ".join(values[key]) for rank, values in sorted(by_rank.items())}
        site = trace.site(key[0]) if isinstance(key[0], int) else None
        if len(set(seen.values())) > 1 and site is not None:
            found.append(
                RankDifference(step=number, function=site.function, side=str(key[1]), path=str(key[2]), seen=seen)
            )
    return found


def sharing(trace: Trace) -> list[Sharing]:
    """Pairs of fields whose memory overlapped in one record; needs ``--pointers``."""
    counts: dict[tuple[str, str, str, str, bool], int] = {}
    for process in trace.recording():
        for record in process.records():
            site = trace.site(record.site)
            if site is None or record.signature is None or not record.signature.layout.pointers:
                continue
            side = "before" if record.kind == wire.ENTER else "after"
            named = record.values().items()
            tensors = (at for name, value in named for at in walk_tensors(name, None, name, value))
            spans = sorted(_span(at.path, at.tensor) for at in tensors if at.tensor.address)
            for at, (start, end, path) in enumerate(spans):
                for other_start, _, other in spans[at + 1 :]:
                    if other_start >= end:
                        break
                    first, second = sorted((path, other))
                    key = (site.function, side, first, second, start == other_start)
                    counts[key] = counts.get(key, 0) + 1
    return [
        Sharing(function=function, side=side, first=first, second=second, same_start=same, count=count)
        for (function, side, first, second, same), count in sorted(counts.items())
    ]


def _span(path: str, tensor: TensorValue) -> tuple[int, int, str]:
    start = tensor.address or 0
    if 0 in tensor.shape or tensor.stride is None:
        return start, start, path
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    return start, start + (reach + 1) * _ITEM_BYTES.get(tensor.dtype, 1), path
