"""A trace joined with an index: what was seen, set beside each formula, contract field and coupling point.

A tensor's row and an observation meet where they name the same field of the same class, at a function that produces or
consumes it, or else at the same stage. What disagrees is said; what was not seen is said to be not exercised.

Within a step in which requests finish or join, a tensor may have the rows of the batch before or after it: a formula's
``bs`` is then either, and how often that was so is told. A run of another release than the index's refutes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from sgltrace import runtime
from sgltrace.insight.formula import Symbols, Unknown, agrees, alternatives, is_empty
from sgltrace.insight.observed import ContractEvidence, Crash, Observed, PointEvidence, Run, Shape, Shared, Step
from sgltrace.model import ContractField, CouplingPoint, Index, Tensor

CONFIRMED, REFUTED, NOT_EXERCISED = "confirmed", "refuted", "not exercised"

# Symbols of formulas that a server's configuration fixes, by the names it has for them.
_CONFIGURED = {
    "topk": "speculative_eagle_topk",
    "num_steps": "speculative_num_steps",
    "num_draft_tokens": "speculative_num_draft_tokens",
    "page_size": "page_size",
    "max_bs": "cuda_graph_max_bs",
}


def join(trace: runtime.Trace, index: Index, name: str) -> Run:
    """What a trace says of an index. Damaged parts of the trace are left out and noted."""
    seen = runtime.observations(trace)
    path = _path(trace, index, seen)
    version = trace.run.version if trace.run is not None else None
    same_release = version in (None, index.source.version)
    judge = _Judge(trace, seen, same_release)
    tensors = judge.tensors([t for t in index.tensors if t.path == path])
    judged = [row for _, row in tensors]
    ran, missing = _edges(trace, index)
    return Run(
        name=name,
        version=version,
        command=" ".join(trace.run.command) if trace.run is not None else "",
        path=path,
        config={key: _plain(value) for key, value in sorted(trace.config().items())},
        ranks=[number for number, _ in enumerate(trace.recording())],
        steps=[_step(step, number) for number, process in enumerate(trace.recording())
               for step in runtime.steps(trace, process) if step.number],
        tensors=judged,
        points=[_point(point, tensors) for point in index.coupling_points if point.severity.get(path)],
        contract=[judge.contract(field) for field in index.contract if field.path == path],
        edges=ran,
        missing_edges=missing,
        sharing=[
            Shared(function=s.function, first=s.first, second=s.second, count=s.count) for s in runtime.sharing(trace)
        ],
        crashes=_crashes(trace),
        unattached=_unattached(trace),
        notes=[*([] if same_release else [_of_another_release(version, index.source.version)]), *_notes(trace)],
    )  # fmt: skip


def _of_another_release(run: str | None, index: str | None) -> str:
    return (
        f"This run is of SGLang {run}, the index of {index or 'an unknown release'}: what agrees is called confirmed, "
        "what differs is not called refuted, since the releases may differ."
    )


def _plain(value: object) -> int | str | None:
    return value if value is None or isinstance(value, (int, str)) else str(value)


def _path(trace: runtime.Trace, index: Index, seen: Iterable[runtime.Observation]) -> str:
    """The path whose worker step was recorded; empty where none was (plain decoding)."""
    recorded = {o.function for o in seen}
    found = [path for path, entry in sorted(index.entry_points.items()) if entry is not None and entry in recorded]
    return found[0] if found else ""


def _step(step: runtime.Step, rank: int) -> Step:
    timed = step.start_ns is not None and step.end_ns is not None
    return Step(
        number=step.number,
        rank=rank,
        mode=step.mode.lower(),
        how={True: "replay", False: "eager", None: ""}[step.graph],
        start_ms=None if step.start_ns is None else step.start_ns / 1e6,
        duration_ms=(step.end_ns - step.start_ns) / 1e6 if timed and step.end_ns and step.start_ns else None,
        batch=step.batch_size,
        padded=step.padded,
        accept_lens=step.accept_lens,
        allocated=None if step.allocated is None else sum(step.allocated),
        committed=None if step.committed is None else sum(step.committed),
    )


@dataclass(frozen=True)
class _Key:
    cls: str | None
    field: str


class _Judge:
    """Holds formulas against the observations of decode steps."""

    def __init__(self, trace: runtime.Trace, seen: Iterable[runtime.Observation], same_release: bool) -> None:
        config = trace.config()
        self.differs = REFUTED if same_release else NOT_EXERCISED
        self.around = _sizes_around(trace)
        self.known = {
            symbol: value
            for symbol, option in _CONFIGURED.items()
            if isinstance(value := config.get(option), int) and not isinstance(value, bool)
        }
        self.free: dict[str, int] = {}
        self.by_field: dict[str, list[runtime.Observation]] = defaultdict(list)
        for o in seen:
            # While batches are filtered and merged they are of another size than the step.
            if "DECODE" in o.mode and o.batch_size and o.stage != "filter and merge":
                self.by_field[_field(o)].append(o)

    def tensors(self, rows: list[Tensor]) -> list[tuple[Tensor, Observed]]:
        """Each row with what was seen of it. Rows for the same field at the same stage are alternatives."""
        groups: dict[tuple[str, str | None, str], list[Tensor]] = defaultdict(list)
        for row in rows:
            if row.field is not None:
                groups[row.stage, row.cls, row.field].append(row)
        judged: dict[int, Observed] = {}
        for (stage, cls, field), group in sorted(groups.items(), key=str):
            functions = {p.function for t in group for p in (t.producer, *t.consumers)}
            found = self._found(_Key(cls, field), stage, functions)
            for row, observed in zip(group, self._alternatives(group, found), strict=True):
                judged[id(row)] = observed
        return [(row, judged[id(row)]) for row in rows if id(row) in judged]

    def contract(self, field: ContractField) -> ContractEvidence:
        """What was seen of a field that an off step must produce, as on steps produce it."""
        functions = {p.function for p in (*field.writers, *field.readers)}
        owner, _, last = field.field.rpartition(".")
        found = [o for o in self.by_field[last] if o.function in functions]
        # Functions that are handed several objects of a class tell them apart by the field that holds them.
        found = [o for o in found if f"{owner}." in o.path] or found
        verdict, shapes = self._verdict(field.shape, found)
        place = (field.writers or field.readers)[:1]
        observed = [
            Observed(
                name=last,
                function=p.function,
                line=p.line,
                path=field.path,
                formula=field.shape,
                verdict=verdict,
                shapes=shapes,
            )
            for p in place
        ]
        return ContractEvidence(path=field.path, field=field.field, verdict=verdict, observed=observed)

    def _found(self, key: _Key, stage: str, functions: set[str]) -> list[runtime.Observation]:
        named = [o for o in self.by_field[key.field] if o.cls is None or key.cls in (None, _class(o))]
        here = [o for o in named if o.function in functions and _base(o.stage) == _base(stage)]
        return here or [o for o in named if _base(o.stage) == _base(stage)]

    def _alternatives(self, group: list[Tensor], found: list[runtime.Observation]) -> list[Observed]:
        """An observation speaks for the rows that it fits; if it fits none, it speaks against all of them."""
        fits = [{id(o) for o in found if self._fits(t.shape, o)} for t in group]
        stray = [o for o in found if not any(id(o) in fit for fit in fits)]
        busy = [t for t in group if not is_empty(t.shape or "")]
        known = [o for o in stray if busy and all(self._comparable(t.shape, o) for t in busy)]
        rows = []
        for tensor, fit in zip(group, fits, strict=True):
            mine = [o for o in found if id(o) in fit]
            against = known if tensor in busy else []
            verdict = CONFIRMED if mine and not against else self.differs if against else NOT_EXERCISED
            rows.append(
                Observed(
                    name=tensor.name,
                    function=tensor.producer.function,
                    line=tensor.producer.line,
                    path=tensor.path,
                    formula=tensor.shape,
                    verdict=verdict,
                    shapes=_shapes([*mine, *against] if tensor.shape else found),
                    changing=sum(o.count for o in mine if not self._fits_as_is(tensor.shape, o)),
                )
            )
        return rows

    def _verdict(self, formula: str | None, found: list[runtime.Observation]) -> tuple[str, list[Shape]]:
        comparable = [o for o in found if self._comparable(formula, o)]
        wrong = [o for o in comparable if not self._fits(formula, o)]
        verdict = self.differs if wrong else CONFIRMED if comparable else NOT_EXERCISED
        return verdict, _shapes(found)

    def _fits(self, formula: str | None, o: runtime.Observation) -> bool:
        return self._fits_as_is(formula, o) or any(
            self._holds(shape, o, self._sizes_around(o)) is True for shape in alternatives(formula or "")
        )

    def _fits_as_is(self, formula: str | None, o: runtime.Observation) -> bool:
        sizes = {size for size in (o.batch_size, o.padded) if size is not None}
        return any(self._holds(shape, o, sizes) is True for shape in alternatives(formula or ""))

    def _comparable(self, formula: str | None, o: runtime.Observation) -> bool:
        sizes = {o.batch_size or 0}
        return any(self._holds(shape, o, sizes) is not None for shape in alternatives(formula or ""))

    def _sizes_around(self, o: runtime.Observation) -> set[int]:
        """The sizes of the batch before and after, if it changed in the first and in the last step of ``o``."""
        return self.around.get(o.first_step, set()) & self.around.get(o.last_step, set())

    def _holds(self, shape: str, o: runtime.Observation, sizes: set[int]) -> bool | None:
        """Whether a shape holds at one of the batch sizes; None where it cannot be told."""
        told: bool | None = None
        for size in sorted(sizes):
            try:
                if agrees(shape, o.shape, Symbols({**self.known, "bs": size}, self.free)):
                    return True
                told = False
            except Unknown:
                continue
        return told


def _sizes_around(trace: runtime.Trace) -> dict[int, set[int]]:
    """For each decode step the other sizes that the batch had in the decode step before and in the one after."""
    around: dict[int, set[int]] = defaultdict(set)
    for process in trace.recording():
        decoding = [s for s in runtime.steps(trace, process) if "DECODE" in s.mode and s.batch_size]
        for before, after in pairwise(decoding):
            if before.batch_size != after.batch_size:
                around[before.number].add(after.batch_size or 0)
                around[after.number].add(before.batch_size or 0)
    return around


def _shapes(found: Iterable[runtime.Observation]) -> list[Shape]:
    merged: dict[tuple[object, ...], Shape] = {}
    for o in found:
        key = (o.batch_size, o.shape, o.dtype, o.phase)
        before = merged.get(key)
        merged[key] = Shape(
            batch=o.batch_size,
            shape=list(o.shape),
            dtype=o.dtype,
            how=o.phase,
            count=o.count + (before.count if before else 0),
            first_step=min(o.first_step, before.first_step or 0) if before else o.first_step,
            last_step=max(o.last_step, before.last_step or 0) if before else o.last_step,
        )
    return [merged[key] for key in sorted(merged, key=lambda k: (k[0] or 0, str(k)))]


def _field(o: runtime.Observation) -> str:
    return o.field.rpartition(".")[2]


def _class(o: runtime.Observation) -> str | None:
    return None if o.cls is None else o.cls.rpartition(":")[2]


def _base(stage: str) -> str:
    return stage.partition(" (")[0]


def _point(point: CouplingPoint, tensors: list[tuple[Tensor, Observed]]) -> PointEvidence:
    """What was seen of the fields through which a coupling point's value crosses, at either end."""
    ends = {p.function for p in (*point.producers, *point.consumers)}
    names = {name.rpartition(".")[2] for name in point.fields}
    observed = [
        row
        for tensor, row in tensors
        if row.shapes
        and tensor.field in names
        and any(p.function in ends for p in (tensor.producer, *tensor.consumers))
    ]
    verdicts = {row.verdict for row in observed}
    verdict = next((v for v in (REFUTED, CONFIRMED) if v in verdicts), NOT_EXERCISED)
    return PointEvidence(point=point.id, verdict=verdict, observed=observed)


def _edges(trace: runtime.Trace, index: Index) -> tuple[list[tuple[str, str, int]], list[tuple[str, str, int]]]:
    """The calls that ran, and those of them that the call graph lacks."""
    static = {(edge.caller, edge.callee) for edge in index.calls}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for pair in trace.call_pairs():
        counts[_plain_id(pair.caller), _plain_id(pair.callee)] += pair.count
    ran = [(caller, callee, count) for (caller, callee), count in sorted(counts.items())]
    return ran, [row for row in ran if row[:2] not in static]


def _plain_id(function: str) -> str:
    return function.replace("<locals>.", "")


def _crashes(trace: runtime.Trace) -> list[Crash]:
    return [
        Crash(rank=rank, why=why, last_steps=last)
        for rank, process in enumerate(trace.recording())
        for why, last in runtime.crash(trace, process)
    ]


def _unattached(trace: runtime.Trace) -> list[str]:
    processes = trace.run.processes if trace.run is not None else []
    return [
        f"{process.get('pid')} {' '.join(map(str, process.get('command') or ()))}: {process.get('not_attached')}"
        for process in processes
        if process.get("not_attached")
    ]


def _notes(trace: runtime.Trace) -> list[str]:
    notes = [*trace.problems, *(trace.run.problems if trace.run is not None else ())]
    for difference in runtime.rank_differences(trace):
        seen = ", ".join(f"{rank}: {value}" for rank, value in sorted(difference.seen.items()))
        notes.append(f"ranks differ in step {difference.step}: {difference.function} {difference.path}: {seen}")
    return notes
