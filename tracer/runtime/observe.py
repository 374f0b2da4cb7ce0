"""From a trace to what is joined with the index: how each tensor looked at each stage, by batch size; where ranks
disagree; which fields share memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .decode import Record
from .observations import Observation, RankDifference, Sharing, TensorValue, Unset
from .signatures import Signature, TensorAt, UnsetAt, walk_tensors
from .step import Call, Step
from .steps import by_step, steps
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
_ALIKE = 20
_REMEMBERED = 64  # steps whose results may still be processed
_Key = tuple[object, ...]


class _Look(NamedTuple):
    """What makes two records show the same tensors in the same way."""

    site: int
    side: str
    signature: Signature
    mode: str
    speculation: str
    batch_size: int | None
    padded: int | None
    how: str


class _Seen:
    __slots__ = ("count", "first", "last", "ranks")

    def __init__(self, step: int) -> None:
        self.count = 0
        self.first = self.last = step
        self.ranks: set[str] = set()

    def merge(self, other: _Seen) -> None:
        self.count += other.count
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.ranks |= other.ranks


class Observer:
    """Takes the steps of all ranks in; what it holds grows with what is seen for the first time alone."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._looks: dict[_Look, _Seen] = {}
        self._batches: dict[str, dict[int, tuple[str, str, int | None]]] = {}

    def add(self, step: Step) -> None:
        """Take a step in; those of a rank come in order."""
        batches = self._batches.setdefault(step.rank, {})
        batches[step.number] = (step.mode, step.speculation, step.batch_size)
        if len(batches) > _REMEMBERED:
            del batches[next(iter(batches))]
        of_step = 0
        for call in step.calls:
            # What processes a result belongs to the step that the result came from.
            of_step = _of_step(call) or (of_step if call.depth else 0)
            mode, speculation, batch_size = batches.get(of_step or step.number, ("", "", None))
            for side, record in (("before", call.before), ("after", call.after)):
                if record is None or record.signature is None:
                    continue
                key = _Look(call.site, side, record.signature, mode, speculation, batch_size, call.padded, call.how)
                entry = self._looks.get(key)
                if entry is None:
                    entry = self._looks[key] = _Seen(step.number)
                entry.count += 1
                entry.last = step.number
                entry.ranks.add(step.rank)

    def observations(self) -> list[Observation]:
        """Every way that every tensor looked, sorted by site, side and path."""
        found: dict[tuple[object, ...], tuple[_Look, TensorAt, _Seen]] = {}
        for look, seen in self._looks.items():
            for at in look.signature.tensors():
                key = (look[:2], look[3:], at)
                known = found.get(key)
                if known is None:
                    fresh = _Seen(seen.first)
                    fresh.merge(seen)
                    found[key] = (look, at, fresh)
                else:
                    known[2].merge(seen)
        made = [_observation(self._trace, look, at, seen) for look, at, seen in found.values()]
        return sorted((o for o in made if o is not None), key=_order)

    def unset(self) -> list[Unset]:
        """Every field that was None, sorted."""
        counts: dict[tuple[int, UnsetAt, str, str], int] = {}
        for look, seen in self._looks.items():
            for at in look.signature.unset():
                # A selector that names a field directly is that field; its class is not known then.
                key = (look.site, at, look.mode, look.speculation)
                counts[key] = counts.get(key, 0) + seen.count
        found = []
        for (number, at, mode, speculation), count in counts.items():
            site = self._trace.site(number)
            if site is not None:
                found.append(
                    Unset(
                        function=site.function,
                        path=at.path,
                        cls=at.cls,
                        field=at.field.rpartition(".")[2],
                        mode=mode,
                        speculation=speculation,
                        count=count,
                    )
                )
        return sorted(found, key=lambda u: (u.function, u.path, u.mode, u.speculation))


def observations(trace: Trace) -> list[Observation]:
    """Every way that every tensor looked, sorted by site, side and path."""
    observer = Observer(trace)
    for process in trace.recording():
        for step in steps(trace, process):
            observer.add(step)
    return observer.observations()


def _observation(trace: Trace, look: _Look, at: TensorAt, seen: _Seen) -> Observation | None:
    site = trace.site(look.site)
    if site is None:
        return None
    tensor = at.tensor
    return Observation(
        stage=site.stage,
        role=site.role,
        function=site.function,
        side=look.side,
        path=at.path,
        cls=at.cls,
        field=at.field,
        mode=look.mode,
        speculation=look.speculation,
        batch_size=look.batch_size,
        padded=look.padded,
        phase=look.how,
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
    number = call.before.pick(("of_step",)).get("of_step") if call.before is not None else None
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


class RankComparer:
    """Takes steps of the same number in, and keeps where their ranks recorded different shapes for the same value."""

    def __init__(self, trace: Trace, limit: int = 200) -> None:
        self._trace = trace
        self._limit = limit
        self.found: list[RankDifference] = []

    def add(self, number: int, together: Sequence[Step]) -> None:
        """Compare the ranks of one step."""
        if number and len(together) > 1 and len(self.found) < self._limit:
            by_rank = {step.rank: _values(step) for step in together}
            self.found += _compare(self._trace, number, by_rank)[: self._limit - len(self.found)]


def rank_differences(trace: Trace, limit: int = 200) -> list[RankDifference]:
    """Where ranks that ran the same step recorded different shapes for the same value, at most ``limit``."""
    comparer = RankComparer(trace, limit)
    if len(trace.recording()) > 1:
        for number, together in by_step(trace):
            comparer.add(number, together)
    return comparer.found


def _values(step: Step) -> dict[_Key, list[str]]:
    values: dict[_Key, list[str]] = {}
    for call in step.calls:
        for side, record in (("before", call.before), ("after", call.after)):
            if record is None or record.signature is None:
                continue
            for path, _, _, tensor in record.signature.tensors():
                values.setdefault((call.site, side, path), []).append(f"{tensor.dtype}{list(tensor.shape)}")
        if call.padded is not None:
            values.setdefault((call.site, "after", "padded batch size"), []).append(str(call.padded))
    return values


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


class ShareFinder:
    """Takes steps in, and counts pairs of fields whose memory overlapped in one record (``--pointers``).

    Of records that are alike but for their addresses the first twenty are looked at.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._counts: dict[tuple[str, str, str, str, bool], int] = {}
        self._looked: dict[tuple[int, str, Signature | None], int] = {}

    def add(self, step: Step) -> None:
        """Look at every record of a step."""
        for call in step.calls:
            for side, record in (("before", call.before), ("after", call.after)):
                if record is not None and record.signature is not None and record.signature.layout.pointers:
                    self._look(call.site, side, record)

    def _look(self, number: int, side: str, record: Record) -> None:
        site = self._trace.site(number)
        key = (number, side, record.signature)
        looked = self._looked.get(key, 0)
        if site is None or looked >= _ALIKE:
            return
        self._looked[key] = looked + 1
        tensors = (at for name, value in record.values().items() for at in walk_tensors(name, None, name, value))
        spans = sorted(_span(at.path, at.tensor) for at in tensors if at.tensor.address)
        for at, (start, end, path) in enumerate(spans):
            for other_start, _, other in spans[at + 1 :]:
                if other_start >= end:
                    break
                first, second = sorted((path, other))
                pair = (site.function, side, first, second, start == other_start)
                self._counts[pair] = self._counts.get(pair, 0) + 1

    def sharing(self) -> list[Sharing]:
        """The pairs, sorted."""
        return [
            Sharing(function=function, side=side, first=first, second=second, same_start=same, count=count)
            for (function, side, first, second, same), count in sorted(self._counts.items())
        ]


def sharing(trace: Trace) -> list[Sharing]:
    """Pairs of fields whose memory overlapped in one record; needs ``--pointers``."""
    finder = ShareFinder(trace)
    for process in trace.recording():
        for step in steps(trace, process):
            finder.add(step)
    return finder.sharing()


def _span(path: str, tensor: TensorValue) -> tuple[int, int, str]:
    start = tensor.address or 0
    if 0 in tensor.shape or tensor.stride is None:
        return start, start, path
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=True))
    return start, start + (reach + 1) * _ITEM_BYTES.get(tensor.dtype, 1), path
