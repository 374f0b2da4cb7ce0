"""The first screen: can speculation be switched off per batch, what stands in the way, what is seen and unknown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sgltrace.model import DESIGNS, PATHS
from sgltrace.reports.context import Context
from sgltrace.reports.links import addresses
from sgltrace.reports.severities import DESIGN_TEXT, severity
from sgltrace.reports.views.common import (
    FunctionLink,
    PlaceLink,
    PointRow,
    function_link,
    observed,
    ordered,
    place_link,
    point_row,
)
from sgltrace.reports.views.questions import Question, questions
from sgltrace.reports.views.unknowns import reason_without_names

TOP = 10


@dataclass(frozen=True)
class Answer:
    """Whether one design works on one path: ``no``, ``slower`` or ``yes``, with the numbers behind it."""

    path: str
    design: str
    verdict: str
    hard: int
    soft: int
    none: int


@dataclass(frozen=True)
class PathLine:
    """One path of the release: absent where ``entry`` is None, unless ``unknown`` says why nobody knows."""

    name: str
    entry: FunctionLink | None
    loops: list[FunctionLink]
    functions: int
    tensors: int
    answers: list[Answer]
    unknown: str | None = None


@dataclass(frozen=True)
class OffStepLine:
    """An off step that the release has itself."""

    path: str
    what: str
    function: FunctionLink
    gates: list[PlaceLink]


@dataclass(frozen=True)
class RunLine:
    """A run in one line."""

    name: str
    file: str
    steps: int
    path: str
    confirmed: int
    refuted: int
    edges: int
    crashes: int


@dataclass(frozen=True)
class Unknowns:
    """What the analysis does not know, counted."""

    unresolved: int
    on_path: int
    reasons: list[tuple[str, int]]
    skipped: int
    shapeless: int
    notes: list[str]


@dataclass(frozen=True)
class Overview:
    """The first screen."""

    designs: dict[str, str]
    paths: list[PathLine]
    derived: bool
    """Whether the index holds coupling points at all."""
    points: int
    nearest: list[Answer]
    """On each path the design with the fewest hard blockers, and of those with the fewest soft ones."""
    questions: list[Question]
    top: list[PointRow]
    off_steps: list[OffStepLine]
    runs: list[RunLine]
    evidence: dict[str, int]
    """Coupling points by what the runs together say of them."""
    unknowns: Unknowns
    workers: list[tuple[str, str, str]]
    """Class, path or empty, algorithms."""


VERDICTS = ("confirmed", "refuted", "seen, not judged", "not exercised")


def overview(context: Context) -> Overview:
    """The first screen's content."""
    index = context.index
    files = dict(addresses("runs", [run.name for run in context.runs]))
    paths = [_path(context, path) for path in PATHS]
    evidence = Counter(observed(context, point.id) for point in index.coupling_points)
    return Overview(
        designs=DESIGN_TEXT,
        paths=paths,
        nearest=[min(path.answers, key=lambda a: (a.hard, a.soft, a.design)) for path in paths if path.answers],
        evidence={verdict: evidence[verdict] for verdict in VERDICTS},
        derived=bool(index.coupling_points),
        points=len(index.coupling_points),
        questions=questions(context),
        top=[point_row(context, point) for point in ordered(index.coupling_points)[:TOP]],
        off_steps=[
            OffStepLine(
                off_step.path,
                off_step.what,
                function_link(context, off_step.function, off_step.line),
                [place_link(context, gate) for gate in off_step.gates],
            )
            for off_step in index.off_steps
        ],
        runs=[
            RunLine(
                run.name,
                files[run.name],
                len({step.number for step in run.steps}),
                run.path,
                sum(evidence.verdict == "confirmed" for evidence in run.points),
                sum(evidence.verdict == "refuted" for evidence in run.points),
                len(run.edges),
                len(run.crashes),
            )
            for run in context.runs
        ],
        unknowns=_unknowns(context),
        workers=[(w.cls, w.path or "", ", ".join(w.algorithms)) for w in index.workers],
    )


def _path(context: Context, path: str) -> PathLine:
    entry = context.index.entry_points.get(path)
    if entry is None:
        return PathLine(path, None, [], 0, 0, [], unknown=context.index.unknown_paths.get(path))
    return PathLine(
        name=path,
        entry=function_link(context, entry),
        loops=[function_link(context, loop) for loop in context.graph.loops(path)],
        functions=len(context.graph.on_path(path)),
        tensors=sum(tensor.path == path for tensor in context.index.tensors),
        answers=[answer(context, path, design) for design in DESIGNS],
    )


def answer(context: Context, path: str, design: str) -> Answer:
    """Whether a design works on a path, by its worst point."""
    count = Counter(severity(point, path, design) for point in context.index.coupling_points)
    verdict = "no" if count["hard"] else "slower" if count["soft"] else "yes"
    return Answer(path, design, verdict, count["hard"], count["soft"], count["none"])


def _unknowns(context: Context) -> Unknowns:
    index, functions = context.index, context.graph.functions
    on_path = [call for call in index.unresolved if call.caller in functions and functions[call.caller].paths]
    reasons = Counter(reason_without_names(call) for call in on_path)
    return Unknowns(
        unresolved=len(index.unresolved),
        on_path=len(on_path),
        reasons=sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:5],
        skipped=len(index.skipped),
        shapeless=sum(tensor.shape is None for tensor in index.tensors),
        notes=index.notes,
    )
