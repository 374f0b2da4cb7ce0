"""Coupling points: the table of all of them, and the page of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sgltrace.model import DESIGNS, CouplingPoint, Place
from sgltrace.reports.context import NEAR, Context
from sgltrace.reports.links import addresses, page_link
from sgltrace.reports.severities import DESIGN_TEXT, severity
from sgltrace.reports.source import Excerpt
from sgltrace.reports.views.common import (
    FunctionLink,
    PlaceLink,
    PointRow,
    crossings,
    function_link,
    guard_texts,
    observed,
    ordered,
    place_link,
    point_row,
)
from sgltrace.reports.views.crossing import Crossing, crossing
from sgltrace.reports.views.experiments import Forced, forced
from sgltrace.reports.views.functions import Step, Way
from sgltrace.reports.views.seen import SeenTable, seen_table


@dataclass(frozen=True)
class PointsPage:
    """The table, and what its filters offer."""

    rows: list[PointRow]
    kinds: list[str]
    binding_times: list[str]
    components: list[str]
    evidence: list[str]
    crossings: list[str]
    designs: dict[str, str]


@dataclass(frozen=True)
class EndCode:
    """One function at an end of the point: its marked lines as excerpts, and how a step gets there."""

    function: FunctionLink
    page: Markup | None
    """What its line numbers lead to."""
    file: str
    places: list[PlaceLink]
    excerpts: list[Excerpt]
    ways: list[Way]
    phases: list[str]


@dataclass(frozen=True)
class Judgement:
    """Severity and reason for one path and design."""

    path: str
    design: str
    severity: str | None
    reason: str


@dataclass(frozen=True)
class PointPage:
    """Everything on a coupling point's page."""

    point: CouplingPoint
    row: PointRow
    designs: dict[str, str]
    judgements: dict[str, list[Judgement]]
    """By path, in the order of the designs."""
    producers: list[EndCode]
    consumers: list[EndCode]
    crossing: Crossing
    fields: list[tuple[str, Markup | None]]
    evidence: list[tuple[str, Markup, str, SeenTable, dict[str, str]]]
    """Run, its page, verdict, what was seen, and what the run was of."""
    forced: list[Forced]
    """What experiments say of it."""
    related: list[PointRow]
    before: PointRow | None
    after: PointRow | None


def points_page(context: Context) -> PointsPage:
    """The table of all coupling points in reading order."""
    points = ordered(context.index.coupling_points)
    rows = [point_row(context, point) for point in points]
    return PointsPage(
        rows=rows,
        kinds=sorted({point.kind for point in points}),
        binding_times=sorted({point.binding_time for point in points}),
        components=[name for name in context.components if any(name in row.components for row in rows)],
        evidence=sorted({observed(context, point.id) for point in points}),
        crossings=sorted({pair for point in points for pair in crossings(context, point)}),
        designs=DESIGN_TEXT,
    )


def point_pages(
    context: Context, fields: dict[str, Markup], points: list[CouplingPoint], part: Sequence[CouplingPoint]
) -> Iterator[PointPage]:
    """The pages of ``part`` of the ``points``, which are all in reading order.

    ``fields`` gives the address of a field's section.
    """
    files = dict(addresses("runs", [run.name for run in context.runs]))
    at = {point.id: number for number, point in enumerate(points)}
    for point in part:
        before, after = points[: at[point.id]][-1:], points[at[point.id] + 1 :][:1]
        yield PointPage(
            point=point,
            row=point_row(context, point),
            designs=DESIGN_TEXT,
            judgements={path: _judgements(point, path) for path in context.paths},
            producers=_ends(context, point.producers),
            consumers=_ends(context, point.consumers),
            crossing=crossing(context, point),
            fields=[(name, fields.get(name)) for name in point.fields],
            evidence=[
                (run.name, page_link(files[run.name]), said.verdict, seen_table(context, said.observed), run.about)
                for run in context.runs
                for said in run.points
                if said.point == point.id
            ],
            forced=forced(context, point.id),
            related=[point_row(context, points[at[name]]) for name in point.related if name in at],
            before=point_row(context, before[0]) if before else None,
            after=point_row(context, after[0]) if after else None,
        )


def _judgements(point: CouplingPoint, path: str) -> list[Judgement]:
    reasons = {(verdict.path, verdict.design): verdict.reason for verdict in point.verdicts}
    return [
        Judgement(path, design, severity(point, path, design), reasons.get((path, design), "")) for design in DESIGNS
    ]


def _ends(context: Context, places: list[Place]) -> list[EndCode]:
    by_function: dict[str, list[Place]] = {}
    for place in places:
        by_function.setdefault(place.function, []).append(place)
    return [_end(context, name, found) for name, found in by_function.items()]


def _end(context: Context, name: str, places: list[Place]) -> EndCode:
    function = context.graph.functions.get(name)
    file = context.place_file(places[0])
    lines = [place.line for place in places]
    bounds = (min(lines) - NEAR, max(lines) + NEAR)  # of a place outside any function
    if function is not None and all(function.line <= line <= function.end_line for line in lines):
        bounds = (function.line, function.end_line)
    notes: dict[int, str] = {}
    for place in places:
        notes[place.line] = "; ".join(filter(None, dict.fromkeys((notes.get(place.line, ""), place.what))))
    return EndCode(
        function=function_link(context, name),
        page=context.links.page(name),
        file=file,
        places=[place_link(context, place) for place in places],
        excerpts=context.reader.around(file, (max(1, bounds[0]), bounds[1]), notes, NEAR) if file else [],
        ways=[way for path in context.paths if (way := _way(context, path, name)) is not None],
        phases=function.phase if function else [],
    )


def _way(context: Context, path: str, target: str) -> Way | None:
    route = context.graph.route(path, target)
    if route is None:
        return None
    steps = [Step(function_link(context, route.root), [])]
    steps += [Step(function_link(context, hop.callee), guard_texts(hop.guards)) for hop in route.hops]
    return Way(path, steps)
