"""Off steps that were forced on a server: what struck, in order, and what each bridge and point was for."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from sgltrace.model import Place
from sgltrace.reports.context import Context
from sgltrace.reports.views.common import PlaceLink, place_link
from sgltrace.whatif import model as m


@dataclass(frozen=True)
class StrikeLine:
    """What struck, with a link to where."""

    strike: m.StrikeAt
    place: PlaceLink | None
    point: Markup | None
    title: str
    first: str
    """The first line of the message."""


@dataclass(frozen=True)
class RungLine:
    """One rung of the ladder."""

    number: int
    bridges: int
    strike: StrikeLine | None


@dataclass(frozen=True)
class PointLine:
    """What an experiment says of a point: a row for each bridge."""

    url: Markup | None
    title: str
    said: str
    standing: str
    rows: list[m.PointVerdict]


@dataclass(frozen=True)
class ExperimentView:
    """One experiment."""

    found: m.Experiment
    misses: list[tuple[m.Miss, StrikeLine | None]]
    rungs: list[RungLine]
    tried: list[tuple[m.BridgeLine, m.Tried, StrikeLine | None]]
    points: list[PointLine]
    idle: list[PointLine]
    """Points that this server did not exercise."""
    standings: dict[str, int]
    patch: list[m.BridgeLine]


@dataclass(frozen=True)
class Forced:
    """On a point's page: what an experiment says of it."""

    design: str
    path: str
    machine: str
    standing: str
    rows: list[m.PointVerdict]


def experiments(context: Context) -> list[ExperimentView]:
    """All experiments of this release."""
    return [_view(context, found) for found in context.experiments]


def forced(context: Context, point: str) -> list[Forced]:
    """What the experiments say of one point."""
    out = []
    for found in context.experiments:
        rows = [v for v in found.verdicts if v.point == point]
        if rows:
            out.append(Forced(found.design, found.path, found.machine, rows[0].standing, rows))
    return out


def _view(context: Context, found: m.Experiment) -> ExperimentView:
    bridges = {b.id: b for b in found.bridges}
    by_point: dict[str, list[m.PointVerdict]] = {}
    for verdict in found.verdicts:
        by_point.setdefault(verdict.point, []).append(verdict)
    lines = [_point(context, name, rows) for name, rows in by_point.items()]
    exercised = [line for line in lines if any(row.outcome != m.NOT_EXERCISED for row in line.rows)]
    order = [m.WORSE, m.NO_BLOCKER, m.MILDER, m.CONFIRMED, ""]
    exercised.sort(key=lambda line: order.index(line.standing))
    standings = {name: sum(line.standing == name for line in exercised) for name in order if name}
    return ExperimentView(
        found=found,
        misses=[(miss, _strike(context, miss.strike)) for miss in found.unexplained],
        rungs=[RungLine(n, len(r.bridges), _strike(context, r.strike)) for n, r in enumerate(found.rungs)],
        tried=[(bridges[t.bridge], t, _strike(context, t.strike)) for t in found.tried if t.bridge in bridges],
        points=exercised,
        idle=[line for line in lines if line not in exercised],
        standings={name: count for name, count in standings.items() if count},
        patch=[b for b in found.bridges if b.used],
    )


def _point(context: Context, name: str, rows: list[m.PointVerdict]) -> PointLine:
    title = next((p.title for p in context.index.coupling_points if p.id == name), name)
    return PointLine(context.links.point(name), title, rows[0].said, rows[0].standing, rows)


def _strike(context: Context, strike: m.StrikeAt | None) -> StrikeLine | None:
    if strike is None:
        return None
    place = None
    if strike.function is not None and strike.line is not None:
        place = place_link(context, Place(function=strike.function, line=strike.line, file=strike.file or ""))
    title = next((p.title for p in context.index.coupling_points if p.id == strike.point), strike.point or "")
    point = context.links.point(strike.point) if strike.point else None
    return StrikeLine(strike, place, point, title, strike.message.strip().split("\n")[0])
