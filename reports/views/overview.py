"""The first screen: can speculation be switched off per batch, what stands in the way, what is seen and unknown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sgltrace.insight.answer import Answer, answers
from sgltrace.model import DESIGNS, PATHS
from sgltrace.reports.context import Context
from sgltrace.reports.links import addresses
from sgltrace.reports.severities import DESIGN_TEXT, ORDER, severity
from sgltrace.reports.views.common import (
    FunctionLink,
    PointRow,
    function_link,
    observed,
    ordered,
    point_row,
)
from sgltrace.reports.views.compared import compared
from sgltrace.reports.views.questions import Question, questions
from sgltrace.reports.views.unknowns import reason_without_names
from sgltrace.reports.views.verdict import Verdict, verdict

TOP = 10


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
class RunLine:
    """A run in one line."""

    name: str
    file: str
    release: str | None
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
    verdict: Verdict
    questions: list[Question]
    top: list[PointRow]
    runs: list[RunLine]
    compared: bool
    """Whether a page sets the runs beside each other."""
    counts: dict[str, dict[str, dict[str, int]]]
    """Coupling points by path, design and severity."""
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
    found = answers(index)
    paths = [_path(context, path, [answer for answer in found if answer.path == path]) for path in PATHS]
    evidence = Counter(observed(context, point.id) for point in index.coupling_points)
    return Overview(
        designs=DESIGN_TEXT,
        paths=paths,
        verdict=verdict(context, found),
        compared=compared(context.runs) is not None,
        counts={
            path: {
                design: {
                    level: sum(severity(point, path, design) == level for point in index.coupling_points)
                    for level in ORDER
                }
                for design in DESIGNS
            }
            for path in context.paths
        },
        evidence={said: evidence[said] for said in VERDICTS},
        derived=bool(index.coupling_points),
        points=len(index.coupling_points),
        questions=questions(context),
        top=[point_row(context, point) for point in ordered(index.coupling_points)[:TOP]],
        runs=[
            RunLine(
                run.name,
                files[run.name],
                run.version,
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


def _path(context: Context, path: str, found: list[Answer]) -> PathLine:
    entry = context.index.entry_points.get(path)
    if entry is None:
        return PathLine(path, None, [], 0, 0, [], unknown=context.index.unknown_paths.get(path))
    return PathLine(
        name=path,
        entry=function_link(context, entry),
        loops=[function_link(context, loop) for loop in context.graph.loops(path)],
        functions=len(context.graph.on_path(path)),
        tensors=sum(tensor.path == path for tensor in context.index.tensors),
        answers=found,
    )


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
