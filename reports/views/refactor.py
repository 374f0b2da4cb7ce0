"""The blockers of one design on one path, in the order in which a refactor would take them."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from sgltrace.model import DESIGNS, CouplingPoint, Place
from sgltrace.reports.context import Context
from sgltrace.reports.severities import DESIGN_TEXT, ORDER, severity
from sgltrace.reports.views.common import PlaceLink, PointRow, place_link, point_row

EARLY = ("process", "graph", "request")
"""How binding times begin, the earliest first."""
PLACES = 8
"""Functions named in a task."""


@dataclass(frozen=True)
class Task:
    """One point to change: what to do, where, and which tasks come before it."""

    number: int
    row: PointRow
    severity: str
    reason: str
    todo: str
    places: list[PlaceLink]
    more: int
    """Places besides, which stand on the point's page; below 1 where there are none."""
    after: list[int]
    """Numbers of the tasks that it depends on."""
    together: list[int]
    """Numbers of those that depend on it in turn: to be changed at once."""


@dataclass(frozen=True)
class Plan:
    """The tasks of one design on one path."""

    path: str
    design: str
    text: str
    hard: int
    soft: int
    tasks: list[Task]


def plans(context: Context) -> list[Plan]:
    """A plan for each path that the release has and each design."""
    return [plan(context, path, design) for path in context.paths for design in DESIGNS]


def plan(context: Context, path: str, design: str) -> Plan:
    """What stands in the way of a design on a path, in order."""
    points = [p for p in context.index.coupling_points if severity(p, path, design) in ("hard", "soft")]
    before = dependencies(points)
    order = _order(points, before, path, design)
    numbers = {point.id: number for number, point in enumerate(order, 1)}
    cycles = {name: part for part in nx.strongly_connected_components(before) if len(part) > 1 for name in part}
    tasks = []
    for point in order:
        cycle = cycles.get(point.id, set())
        found = severity(point, path, design) or "none"
        places = _first_lines([*point.consumers, *point.producers])
        reasons = [v.reason for v in point.verdicts if v.path == path and v.design == design]
        tasks.append(
            Task(
                number=numbers[point.id],
                row=point_row(context, point),
                severity=found,
                reason=reasons[0] if reasons else point.why_it_blocks,
                todo=point.refactor,
                places=[place_link(context, place) for place in places[:PLACES]],
                more=len(places) - PLACES,
                after=sorted(numbers[name] for name in before.predecessors(point.id) if name not in cycle),
                together=sorted(numbers[name] for name in cycle if name != point.id),
            )
        )
    hard = sum(task.severity == "hard" for task in tasks)
    return Plan(path, design, DESIGN_TEXT[design], hard, len(tasks) - hard, tasks)


def _first_lines(places: list[Place]) -> list[Place]:
    """The first place in each function."""
    first: dict[str, Place] = {}
    for place in places:
        first.setdefault(place.function, place)
    return list(first.values())


def dependencies(points: list[CouplingPoint]) -> nx.DiGraph[str]:
    """Which point comes before which.

    A point depends on another where one that relies on the other's value is one that fixes its own, and through the
    same field: what is fixed first has to be changed first.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(point.id for point in points)
    for first in points:
        ends = {place.function for place in first.consumers}
        for second in points:
            if first.id == second.id:
                continue
            shared = set(first.fields) & set(second.fields) or second.id in first.related or first.id in second.related
            if shared and ends & {place.function for place in second.producers}:
                graph.add_edge(first.id, second.id)
    return graph


def _bound(binding_time: str) -> int:
    """How early a value is fixed: with the process, a graph, a request, or later."""
    return next((number for number, word in enumerate(EARLY) if binding_time.startswith(word)), len(EARLY))


def _order(points: list[CouplingPoint], before: nx.DiGraph[str], path: str, design: str) -> list[CouplingPoint]:
    """Dependencies first; among what is free, what is fixed earliest, then the worst, then the analysis' rank."""
    by_id = {point.id: point for point in points}

    def key(name: str) -> tuple[int, int, int, str]:
        point = by_id[name]
        return (ORDER[severity(point, path, design) or "none"], _bound(point.binding_time), point.rank or 10**6, name)

    groups = nx.condensation(before)
    members = {node: sorted(groups.nodes[node]["members"], key=key) for node in groups}
    ordered = nx.lexicographical_topological_sort(groups, key=lambda node: key(members[node][0]))
    return [by_id[name] for node in ordered for name in members[node]]
