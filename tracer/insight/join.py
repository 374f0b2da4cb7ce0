"""A trace joined with an index: what was seen, set beside each formula, contract field and coupling point.

A tensor's row and an observation meet where they name the same field of the same class, at a function that produces or
consumes it, or else at the same stage. What disagrees is said; what was seen and cannot be judged is said too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from sgltrace import runtime
from sgltrace.insight.about import about, weights_note
from sgltrace.insight.edges import edges
from sgltrace.insight.figures import figures_of
from sgltrace.insight.judge import Judge, is_judged, last, of_class, shapes
from sgltrace.insight.observed import (
    CONFIRMED,
    NOT_EXERCISED,
    REFUTED,
    SEEN,
    Crash,
    Observed,
    PointEvidence,
    Run,
    Shared,
    Step,
)
from sgltrace.insight.off_step import Lengths, OffStep
from sgltrace.model import CouplingPoint, Index, Tensor

KEPT = 20_000
"""Steps of a rank that are kept for drawing; of more, every second, fourth ... one is."""


def join(trace: runtime.Trace, index: Index, name: str) -> Run:
    """What a trace says of an index, from one pass over it. Damaged parts of the trace are left out and noted."""
    found = _Pass(trace)
    seen = found.observer.observations()
    path = _path(index, seen)
    version = trace.run.version if trace.run is not None else None
    same_release = version in (None, index.source.version)
    config = trace.config()
    on = Judge(seen, config, found.around, same_release, off=False)
    off = Judge(seen, config, found.around, same_release, off=True)
    kinds = {o.speculation for o in seen}
    # What on steps were not seen to do, steps without speculation may have shown.
    tensors = on.tensors([t for t in index.tensors if t.path == path]) if path else []
    tensors += _where_no_other(off.tensors(index.tensors), tensors) if kinds & {"plain", "off"} else []
    contract = OffStep(off, seen, found.observer.unset(), found.lengths)
    ran, missing = edges(trace.call_pairs(), index)
    return Run(
        name=name,
        version=version,
        about=about(trace),
        command=" ".join(trace.run.command) if trace.run is not None else "",
        path=path,
        kinds=sorted(kind for kind in kinds if kind),
        config={key: _plain(value) for key, value in sorted(config.items())},
        ranks=[number for number, _ in enumerate(trace.recording())],
        steps=found.kept_steps(),
        left_out=found.left_out,
        figures=figures_of(trace, name, found.aggregators) if found.aggregators else None,
        tensors=[row for _, row in tensors],
        unmatched=_unmatched(seen, tensors),
        points=[_point(point, tensors) for point in index.coupling_points if point.severity.get(path)],
        contract=[contract.row(field) for field in index.contract if not path or field.path == path],
        edges=ran,
        missing_edges=missing,
        sharing=[
            Shared(function=s.function, first=s.first, second=s.second, count=s.count) for s in found.shares.sharing()
        ],
        crashes=_crashes(trace),
        unattached=_unattached(trace),
        notes=[
            *([] if same_release else [_of_another_release(version, index.source.version)]),
            *_about(trace, found),
            *_notes(trace, found),
        ],
    )


class _Pass:
    """Everything that is made of the steps, from one pass over all ranks."""

    def __init__(self, trace: runtime.Trace) -> None:
        self.observer = runtime.Observer(trace)
        self.ranks = runtime.RankComparer(trace)
        self.shares = runtime.ShareFinder(trace)
        self.lengths = Lengths()
        self.around: dict[int, set[int]] = defaultdict(set)
        numbers = {process.rank: number for number, process in enumerate(trace.recording())}
        self.aggregators = [runtime.aggregator(process) for process in trace.recording()]
        self.windows = 0
        self._before: dict[str, runtime.Step] = {}
        self._steps: list[list[Step]] = [[] for _ in numbers]
        self._every = 1
        for number, together in runtime.by_step(trace):
            self.ranks.add(number, together)
            for step in together:
                self._add(numbers[step.rank], step)

    def _add(self, rank: int, step: runtime.Step) -> None:
        self.observer.add(step)
        self.shares.add(step)
        self.lengths.add(step)
        if not step.number or not step.ran:
            return
        self.windows += bool(step.window)
        self._note_sizes(step)
        step.calls = []  # what is held of a step from here on is small
        self.aggregators[rank].add(step)
        if step.number % self._every == 0:
            kept = self._steps[rank]
            kept.append(_step(step, rank))
            if len(kept) > KEPT:
                self._every *= 2
                self._steps = [[s for s in steps if s.number % self._every == 0] for steps in self._steps]

    def _note_sizes(self, step: runtime.Step) -> None:
        """For each decode step the other sizes that the batch had in the decode step before and in the one after."""
        if runtime.DECODE not in step.mode or not step.batch_size:
            return
        before = self._before.get(step.rank)
        if before is not None and before.batch_size != step.batch_size:
            self.around[before.number].add(step.batch_size)
            self.around[step.number].add(before.batch_size or 0)
        self._before[step.rank] = step

    @property
    def left_out(self) -> int:
        """Of how many steps one is kept, where not all are; else 0."""
        return self._every if self._every > 1 else 0

    def kept_steps(self) -> list[Step]:
        """The steps that are kept, by rank."""
        return [step for steps in self._steps for step in steps]


def _where_no_other(
    rows: list[tuple[Tensor, Observed]], known: list[tuple[Tensor, Observed]]
) -> list[tuple[Tensor, Observed]]:
    """Rows that say something, of fields of which nothing is said yet; each formula once."""
    said = {id(tensor) for tensor, row in known if row.shapes}
    found: dict[tuple[object, ...], tuple[Tensor, Observed]] = {}
    for tensor, row in rows:
        if row.shapes and id(tensor) not in said:
            told = msgspec.structs.replace(row, one_token=True)
            found.setdefault((tensor.cls, tensor.field, tensor.shape, row.verdict), (tensor, told))
    return list(found.values())


def _unmatched(seen: list[runtime.Observation], tensors: list[tuple[Tensor, Observed]]) -> list[Observed]:
    """What was recorded of decode steps and no formula is known for, by function and place in its values."""
    named = {(tensor.cls, tensor.field) for tensor, row in tensors if row.shapes}
    groups: dict[tuple[str, str], list[runtime.Observation]] = defaultdict(list)
    for o in seen:
        if is_judged(o) and (of_class(o), last(o.field)) not in named:
            groups[o.function, f"{o.side} {o.path}"].append(o)
    return [
        Observed(name=place, function=function, line=0, verdict=SEEN, shapes=shapes(group))
        for (function, place), group in sorted(groups.items())
    ]


def _of_another_release(run: str | None, index: str | None) -> str:
    return (
        f"This run is of SGLang {run}, the index of {index or 'an unknown release'}: what agrees is said to agree, "
        "what differs is not judged, since the releases may differ."
    )


def _plain(value: object) -> int | str | None:
    return value if value is None or isinstance(value, (int, str)) else str(value)


def _path(index: Index, seen: Iterable[runtime.Observation]) -> str:
    """The path whose worker step was recorded; empty where none was (plain decoding)."""
    recorded = {o.function for o in seen}
    found = [path for path, entry in sorted(index.entry_points.items()) if entry is not None and entry in recorded]
    return found[0] if found else ""


def _step(step: runtime.Step, rank: int) -> Step:
    return Step(
        number=step.number,
        rank=rank,
        mode=step.mode.lower(),
        speculation=step.speculation,
        how=step.how,
        start_ms=None if step.start_ns is None else step.start_ns / 1e6,
        period_ms=None if step.period_ns is None else step.period_ns / 1e6,
        host_ms=None if step.host_ns is None else step.host_ns / 1e6,
        gpu_ms=None if step.gpu_ns is None else step.gpu_ns / 1e6,
        window=step.window,
        batch=step.batch_size,
        padded=step.padded,
        accept_lens=step.accept_lens,
        allocated=None if step.allocated is None else sum(step.allocated),
        committed=None if step.committed is None else sum(step.committed),
    )


def _point(point: CouplingPoint, tensors: list[tuple[Tensor, Observed]]) -> PointEvidence:
    """What was seen of the fields through which a coupling point's value crosses, at either end."""
    ends = {p.function for p in (*point.producers, *point.consumers)}
    names = {name.rpartition(".")[2] for name in point.fields}
    observed = [
        row
        for tensor, row in tensors
        if row.shapes
        and not row.one_token
        and tensor.field in names
        and any(p.function in ends for p in (tensor.producer, *tensor.consumers))
    ]
    verdicts = {row.verdict for row in observed}
    verdict = next((v for v in (REFUTED, CONFIRMED, SEEN) if v in verdicts), NOT_EXERCISED)
    return PointEvidence(point=point.id, verdict=verdict, observed=observed)


def _crashes(trace: runtime.Trace) -> list[Crash]:
    return [
        Crash(rank=rank, why=why, last_steps=last_steps)
        for rank, process in enumerate(trace.recording())
        for why, last_steps in runtime.crash(trace, process)
    ]


def _unattached(trace: runtime.Trace) -> list[str]:
    processes = trace.run.processes if trace.run is not None else []
    return [
        f"{process.get('pid')} {' '.join(map(str, process.get('command') or ()))}: {process.get('not_attached')}"
        for process in processes
        if process.get("not_attached")
    ]


def _about(trace: runtime.Trace, found: _Pass) -> list[str]:
    """What a reader must know to read the figures rightly."""
    notes = weights_note(trace)
    asked = [f"--{name}" for name in ("calls", "timeline") if getattr(trace.plan.options, name)]
    if asked and not found.windows:
        notes.append(
            f"This run was recorded with {' and '.join(asked)}, which slows some steps down; which ones is not in the "
            "trace, so they are among the times."
        )
    return notes


def _notes(trace: runtime.Trace, found: _Pass) -> list[str]:
    notes = [*trace.problems, *(trace.run.problems if trace.run is not None else ())]
    for difference in found.ranks.found:
        seen = ", ".join(f"{rank}: {value}" for rank, value in sorted(difference.seen.items()))
        notes.append(f"ranks differ in step {difference.step}: {difference.function} {difference.path}: {seen}")
    return notes
