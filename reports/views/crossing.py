"""The small drawing of a coupling point: who fixes the value, what carries it, who relies on it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from sgltrace.model import CouplingPoint, Place
from sgltrace.reports.context import Context
from sgltrace.reports.graph import short

ROW = 52
WIDTH = 250
GAP = 90
MIDDLE = 210
MOST = 7
"""Boxes in a column; the rest are counted in the last."""
TANGLE = 8
"""More curves than that go through one point."""
CHARACTERS = 31
"""That fit into a box."""


@dataclass(frozen=True)
class Box:
    """A box of the drawing, with the component's colour; ``url`` is None where it leads nowhere."""

    x: int
    y: int
    width: int
    title: str
    under: str
    full: str
    hue: int
    url: Markup | None


@dataclass(frozen=True)
class Crossing:
    """The drawing in pixels: boxes and the curves between them."""

    width: int
    height: int
    boxes: list[Box]
    curves: list[tuple[str, bool]]
    """Each with whether it ends in a tip."""
    text: str
    """The same in a sentence, for who does not see it."""


def crossing(context: Context, point: CouplingPoint) -> Crossing:
    """Draws a point: producers on the left, the fields or the formula between, consumers on the right."""
    left = _column(context, point.producers, 0)
    right = _column(context, point.consumers, WIDTH + MIDDLE + 2 * GAP)
    carriers = point.fields or ([point.formula] if point.formula else [point.binding_time])
    middle = [_carrier(name, bool(point.fields)) for name in _few(carriers)]
    tallest = max(len(left), len(right), len(middle), 1)
    left, middle, right = (_centred(column, tallest) for column in (left, middle, right))
    curves = _between(left, middle) + _between(middle, right)
    text = (
        f"{', '.join(box.full for box in left) or 'nothing'} fixes the value; it crosses as "
        f"{', '.join(carriers)}; {', '.join(box.full for box in right) or 'nothing'} relies on it."
    )
    return Crossing(2 * WIDTH + MIDDLE + 2 * GAP, tallest * ROW + 24, [*left, *middle, *right], curves, text)


def _column(context: Context, places: list[Place], x: int) -> list[Box]:
    lines: dict[str, list[int]] = {}
    for place in places:
        lines.setdefault(place.function, []).append(place.line)
    boxes = []
    for name, found in lines.items():
        component = context.component(name)
        where = ", ".join(str(line) for line in sorted(set(found)))
        owner, _, last = short(name).rpartition(".")
        under = _cut(f"{owner or component} · {where}", 36)
        url = context.links.line(name, found[0])
        full = f"{short(name)}, {component}, line {where}"
        boxes.append(Box(x, 0, WIDTH, _tail(last), under, full, context.hues.get(component, 11), url))
    if len(boxes) > MOST:
        rest = f"and {len(boxes) - MOST + 1} more"
        boxes = [*boxes[: MOST - 1], Box(x, 0, WIDTH, rest, "listed below", rest, 11, None)]
    return boxes


def _carrier(name: str, field: bool) -> Box:
    """A field with its class below it, else a formula or a time."""
    owner, _, last = name.rpartition(".") if field else ("", "", name)
    return Box(WIDTH + GAP, 0, MIDDLE, _cut(last, 27), _cut(owner, 30), name, -1, None)


def _few(names: list[str]) -> list[str]:
    return names if len(names) <= MOST else [*names[: MOST - 1], f"and {len(names) - MOST + 1} more"]


def _centred(column: list[Box], rows: int) -> list[Box]:
    top = 20 + (rows - len(column)) * ROW // 2
    return [Box(b.x, top + at * ROW, b.width, b.title, b.under, b.full, b.hue, b.url) for at, b in enumerate(column)]


def _between(left: list[Box], right: list[Box]) -> list[tuple[str, bool]]:
    """A curve from each to each, or, where that would be a tangle, through one point between them."""
    if len(left) * len(right) <= TANGLE or min(len(left), len(right)) < 2:
        return [_curve(a, b) for a in left for b in right]
    x = (left[0].x + left[0].width + right[0].x) // 2
    y = (left[0].y + left[-1].y) // 2 + 20
    hub = Box(x, y - 20, 0, "", "", "", 0, None)
    return [_curve(a, hub, 0) for a in left] + [_curve(hub, b) for b in right]


def _curve(a: Box, b: Box, tip: int = 6) -> tuple[str, bool]:
    x1, y1, x2, y2 = a.x + a.width, a.y + 20, b.x - tip, b.y + 20
    bend = (x2 - x1) // 2
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}", tip > 0


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _tail(name: str) -> str:
    """A function's name, cut in front, where the class is."""
    return name if len(name) <= CHARACTERS else "…" + name[-(CHARACTERS - 1) :]
