"""Small pieces that many pages show: a link to a function or a line, a severity, a row of coupling points."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from markupsafe import Markup

from sgltrace.model import DESIGNS, CouplingPoint, Guard, Place
from sgltrace.reports.context import Context
from sgltrace.reports.graph import module, short
from sgltrace.reports.severities import ORDER, severity


@dataclass(frozen=True)
class FunctionLink:
    """A function as a link: ``url`` is None where it has no page."""

    id: str
    name: str
    module: str
    url: Markup | None
    component: str
    hue: int


@dataclass(frozen=True)
class PlaceLink:
    """A line of a function as a link, with what happens there, and the same line in an editor and on the forge."""

    function: FunctionLink
    file: str
    line: int
    what: str
    editor: str | None
    forge: str | None


@dataclass(frozen=True)
class GuardText:
    """A condition in words: ``kind`` is the word before it."""

    text: str
    line: int
    kind: str


@dataclass(frozen=True)
class PointRow:
    """A coupling point as a row of a table."""

    id: str
    url: Markup
    title: str
    kind: str
    v1: str | None
    v2: str | None
    designs: dict[str, dict[str, str]]
    """Severity by path and design, ``none`` included."""
    binding_time: str
    components: list[str]
    hues: list[int]
    crossings: list[str]
    why: str
    """Why it blocks."""
    refactor: str
    observed: str
    """A verdict of ``insight.observed``, or ``no run``."""
    words: str
    """What the search looks into besides: functions, fields, condition, formula."""


def function_link(context: Context, identifier: str, line: int | None = None) -> FunctionLink:
    """The link to a function, to a line of its page if given."""
    component = context.component(identifier)
    url = context.links.function(identifier) if line is None else context.links.line(identifier, line)
    return FunctionLink(
        identifier, short(identifier), module(identifier), url, component, context.hues.get(component, 0)
    )


def place_link(context: Context, place: Place) -> PlaceLink:
    """The links to a place."""
    file = context.place_file(place)
    return PlaceLink(
        function=function_link(context, place.function, place.line),
        file=file,
        line=place.line,
        what=place.what,
        editor=context.editor.to(file, place.line) if file else None,
        forge=context.links.forge(file, place.line) if file else None,
    )


def guard_texts(guards: list[Guard]) -> list[GuardText]:
    """Conditions as they read: ``if not x``, ``unless x`` for an early exit that was not taken, ``loop x``."""
    return [_guard(guard) for guard in guards]


def _guard(guard: Guard) -> GuardText:
    text = " ".join(guard.text.split())
    if guard.kind == "return":
        return GuardText(text, guard.line, "if" if guard.holds else "unless")
    if guard.holds or guard.kind in ("loop", "try", "except"):
        return GuardText(text, guard.line, guard.kind)
    return GuardText(f"not ({text})" if " " in text else f"not {text}", guard.line, guard.kind)


def ordered(points: list[CouplingPoint]) -> list[CouplingPoint]:
    """Points in reading order: by the rank that the analysis gave, then the worst first."""

    def key(point: CouplingPoint) -> tuple[int, int, int, str]:
        worst = [ORDER.get(value, 3) for value in point.severity.values() if value is not None]
        return (point.rank or 10**6, min(worst, default=3), -len(point.designs), point.id)

    return sorted(points, key=key)


def components_of(context: Context, point: CouplingPoint) -> list[str]:
    """The components of a point's ends, those with the most functions first, else in the order of a step."""
    functions = {place.function for place in (*point.producers, *point.consumers)}
    count = Counter(context.component(function) for function in functions)
    return sorted(count, key=lambda name: (-count[name], context.components.index(name)))


def component_pairs(context: Context, point: CouplingPoint) -> list[tuple[str, str]]:
    """Each component that fixes the value with each that relies on it."""
    fixes = {context.component(place.function) for place in point.producers}
    relies = {context.component(place.function) for place in point.consumers}
    return sorted((a, b) for a in fixes for b in relies)


def crossings(context: Context, point: CouplingPoint) -> list[str]:
    """The same as text, ``scheduler → attention``."""
    return [f"{a} → {b}" for a, b in component_pairs(context, point)]


def observed(context: Context, point: str) -> str:
    """What the runs say of a point, the strongest of them."""
    said = {evidence.verdict for run in context.runs for evidence in run.points if evidence.point == point}
    for verdict in ("refuted", "confirmed", "seen, not judged"):
        if verdict in said:
            return verdict
    return "not exercised" if context.runs else "no run"


def point_row(context: Context, point: CouplingPoint) -> PointRow:
    """A coupling point as a row."""
    ends = sorted({short(place.function) for place in (*point.producers, *point.consumers)})
    return PointRow(
        id=point.id,
        url=context.links.point(point.id) or Markup(),
        title=point.title,
        kind=point.kind,
        v1=point.severity.get("v1"),
        v2=point.severity.get("v2"),
        designs={path: {design: severity(point, path, design) or "" for design in DESIGNS} for path in context.paths},
        binding_time=point.binding_time,
        components=(components := components_of(context, point)),
        hues=[context.hues[name] for name in components],
        crossings=crossings(context, point),
        why=point.why_it_blocks,
        refactor=point.refactor,
        observed=observed(context, point.id),
        words=" ".join((point.kind, *ends, *point.fields, point.condition, point.formula, point.why_it_blocks)),
    )
