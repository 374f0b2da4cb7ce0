"""The refactor as edits: one plan for each path and design, its order drawn, and what is bridged ticked off."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from sgltrace.insight.plan import Item, Plan, make_plan
from sgltrace.insight.plan_graphs import GraphState
from sgltrace.model import DESIGNS, Place
from sgltrace.reports.context import Context
from sgltrace.reports.severities import DESIGN_TEXT
from sgltrace.reports.views.common import FunctionLink, PlaceLink, function_link, place_link

BOX, GAP = (168, 46), (34, 14)
"""Width and height of a box of the drawing, and the space between two."""


@dataclass(frozen=True)
class PointLink:
    """A coupling point by its title."""

    id: str
    title: str
    url: Markup | None


@dataclass(frozen=True)
class ItemView:
    """One edit, with what it names as links."""

    item: Item
    points: list[PointLink]
    soft: list[PointLink]
    places: list[PlaceLink]
    after: list[tuple[int, str, str]]
    """Number, id and reason of what comes before."""


@dataclass(frozen=True)
class Box:
    """An item in the drawing."""

    id: str
    number: int
    title: list[str]
    size: str
    x: int
    y: int
    critical: bool


@dataclass(frozen=True)
class Arrow:
    """From an item to one that needs it, as a path of SVG."""

    path: str
    critical: bool


@dataclass(frozen=True)
class Drawing:
    """The order of the items, from left to right."""

    width: int
    height: int
    boxes: list[Box]
    arrows: list[Arrow]


@dataclass(frozen=True)
class PlanView:
    """The plan of one path and design."""

    plan: Plan
    text: str
    items: list[ItemView]
    drawing: Drawing
    graphs: list[tuple[GraphState, FunctionLink]]
    costs: list[PointLink]


def plan_views(context: Context) -> list[PlanView]:
    """The plans of all paths and designs."""
    return [_view(context, make_plan(context.index, path, design)) for path in context.paths for design in DESIGNS]


def _view(context: Context, plan: Plan) -> PlanView:
    titles = {point.id: point.title for point in context.index.coupling_points}
    numbers = {item.id: item.number for item in plan.items}

    def link(name: str) -> PointLink:
        return PointLink(name, titles.get(name, name), context.links.point(name))

    return PlanView(
        plan=plan,
        text=DESIGN_TEXT[plan.design],
        items=[
            ItemView(
                item=item,
                points=[link(name) for name in item.points],
                soft=[link(name) for name in item.soft],
                places=[
                    place_link(context, Place(function=p.function, line=p.line, what=p.what, file=p.file))
                    for p in item.functions
                ],
                after=[(numbers[name], name, why) for name, why in item.why_after.items()],
            )
            for item in plan.items
        ],
        drawing=_drawing(plan),
        graphs=[(state, function_link(context, state.function, state.line)) for state in plan.graphs],
        costs=[link(name) for name in plan.costs],
    )


def _drawing(plan: Plan) -> Drawing:
    column: dict[str, int] = {}
    for item in plan.items:  # each stands behind what it needs
        column[item.id] = max((column[name] + 1 for name in item.after), default=0)
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    boxes = []
    critical = set(plan.critical)
    for item in plan.items:
        at = column[item.id]
        row = rows.get(at, 0)
        rows[at] = row + 1
        x, y = at * (BOX[0] + GAP[0]) + 1, row * (BOX[1] + GAP[1]) + 1
        places[item.id] = x, y
        boxes.append(Box(item.id, item.number, _lines(item.title), item.size, x, y, item.id in critical))
    chain = set(zip(plan.critical, plan.critical[1:], strict=False))
    arrows = []
    for item in plan.items:
        for name in item.after:
            if any(name in column and _above(plan, name, other) for other in item.after if other != name):
                continue  # what it needs needs that already
            (x1, y1), (x2, y2) = places[name], places[item.id]
            x1, y1, y2 = x1 + BOX[0], y1 + BOX[1] // 2, y2 + BOX[1] // 2
            half = (x2 - x1) // 2
            arrows.append(Arrow(f"M{x1} {y1} C{x1 + half} {y1} {x2 - half} {y2} {x2} {y2}", (name, item.id) in chain))
    width = (max(column.values(), default=0) + 1) * (BOX[0] + GAP[0]) - GAP[0] + 2
    height = max(rows.values(), default=0) * (BOX[1] + GAP[1]) - GAP[1] + 2
    return Drawing(width, height, boxes, arrows)


def _above(plan: Plan, first: str, second: str) -> bool:
    """Whether ``second`` needs ``first``, be it through others."""
    after = {item.id: item.after for item in plan.items}
    todo = list(after[second])
    while todo:
        name = todo.pop()
        if name == first:
            return True
        todo += after[name]
    return False


def _lines(title: str, most: int = 25) -> list[str]:
    """A title in two lines of a box."""
    lines = [""]
    for word in title.split():
        if len(lines[-1]) + len(word) > most and lines[-1]:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines[:2] if len(lines) <= 2 else [lines[0], f"{lines[1][: most - 1]}…"]
