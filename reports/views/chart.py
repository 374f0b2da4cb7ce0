"""Small line charts of a run as paths, drawn here so that a page shows them without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 600, 150
LEFT, BOTTOM, TOP = 46, 20, 8
GAP = 20
"""Times the usual distance of two steps from which a line is broken."""
BINS = 300
"""Points of a line. With more steps than that each point is the mean of several, in a band from least to most."""


Bin = tuple[float, float, float, float]
"""Step, mean, least and most."""


@dataclass(frozen=True)
class Series:
    """One line: its points as (step, value), in order of steps."""

    name: str
    points: list[tuple[int, float]]


@dataclass(frozen=True)
class Line:
    """A drawn line; ``band`` is empty where every step has its own point."""

    name: str
    number: int
    path: str
    band: str


@dataclass(frozen=True)
class Chart:
    """A chart in a box of ``WIDTH`` by ``HEIGHT``."""

    title: str
    unit: str
    lines: list[Line]
    marks: list[tuple[float, float, str]]
    """Stretches of steps that are marked: where one begins, how wide it is, and what it says."""
    beyond: str
    """What is too large to be drawn, in words; empty where nothing is."""
    ticks: list[tuple[float, str]]
    """Height and label of the horizontal lines."""
    first: int
    last: int
    summary: str
    """The chart in a sentence."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    bottom: int = HEIGHT - BOTTOM


def chart(
    title: str,
    unit: str,
    series: list[Series],
    windows: Sequence[tuple[int, int, str]] = (),
    cut: float | None = None,
) -> Chart | None:
    """Draws the series over steps from zero up; None where none has a point.

    ``windows`` are stretches of steps (first, last, what they are) that are marked; values above ``cut`` are left out,
    and said.
    """
    series, beyond = _without(series, cut, unit)
    if not series:
        return None
    first = min(line.points[0][0] for line in series)
    last = max(line.points[-1][0] for line in series)
    top = nice(max(value for line in series for _, value in line.points))
    span = max(1, last - first)
    steps = sorted({step for line in series for step, _ in line.points})

    def x(step: float) -> float:
        return LEFT + (step - first) / span * (WIDTH - LEFT - 8)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)

    lines = []
    for number, line in enumerate(series):
        bins = _bins(line.points, first, span)
        path = "".join(
            "M"
            + "L".join(f"{x(step):.1f} {y(mean):.1f}" for step, mean, _, _ in part)
            + ("h.1" if len(part) == 1 else "")
            for part in (_parts(bins, steps) if len(line.points) == len(bins) else [bins])
        )
        band = ""
        if len(line.points) > len(bins):
            over = "L".join(f"{x(step):.1f} {y(high):.1f}" for step, _, _, high in bins)
            under = "L".join(f"{x(step):.1f} {y(low):.1f}" for step, _, low, _ in reversed(bins))
            band = f"M{over}L{under}Z"
        lines.append(Line(line.name, number, path, band))
    ticks = [(y(top * part / 2), f"{top * part / 2:g}") for part in range(3)]
    told = "; ".join(_told(line, unit) for line in series)
    marks = [
        (x(start - 0.5), max(2.0, x(end + 0.5) - x(start - 0.5)), told)
        for start, end, told in windows
        if start <= last and end >= first
    ]
    return Chart(
        title, unit, lines, marks, beyond, ticks, first, last, f"Steps {first} to {last}. {told[:1].upper()}{told[1:]}."
    )


def _without(series: list[Series], cut: float | None, unit: str) -> tuple[list[Series], str]:
    """The series that have points, without values above ``cut``; and what was left out."""
    over = [value for line in series for _, value in line.points if cut is not None and value > cut]
    kept = [Series(s.name, [point for point in s.points if cut is None or point[1] <= cut]) for s in series]
    beyond = (
        f"{len(over)} above {_short(cut or 0)} {unit} are not drawn, up to {_short(max(over))} {unit}" if over else ""
    )
    return [line for line in kept if line.points], beyond


def _parts(bins: list[Bin], steps: list[int]) -> list[list[Bin]]:
    """The points of a line, in parts where steps between two of them have a point on another line alone, or where many
    more steps are missing than elsewhere."""
    parts: list[list[Bin]] = []
    at = {step: number for number, step in enumerate(steps)}
    gaps = sorted(after - before for before, after in pairwise(steps))
    most = GAP * gaps[len(gaps) // 2] if gaps else 0
    for point in bins:
        before = parts[-1][-1][0] if parts else 0
        if parts and at[int(point[0])] - at[int(before)] == 1 and point[0] - before <= most:
            parts[-1].append(point)
        else:
            parts.append([point])
    return parts


def _bins(points: list[tuple[int, float]], first: int, span: int) -> list[Bin]:
    """(step, mean, least, most) for each of at most ``BINS`` bins that has a point."""
    if len(points) <= BINS:
        return [(step, value, value, value) for step, value in points]
    found: dict[int, list[tuple[int, float]]] = {}
    for step, value in points:
        found.setdefault((step - first) * (BINS - 1) // span, []).append((step, value))
    bins = []
    for _, inside in sorted(found.items()):
        values = [value for _, value in inside]
        middle = sum(step for step, _ in inside) / len(inside)
        bins.append((middle, sum(values) / len(values), min(values), max(values)))
    return bins


def nice(value: float) -> float:
    """The next number of the form 1, 2, 4, 5 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _told(line: Series, unit: str) -> str:
    values = [value for _, value in line.points]
    mean = sum(values) / len(values)
    after = f" {unit}" if unit else ""
    if min(values) == max(values):
        told = f"always {_short(mean)}"
    else:
        told = f"{_short(min(values))} to {_short(max(values))}, mean {_short(mean)}{after}"
    return f"{line.name}: {told}" if line.name else told


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
