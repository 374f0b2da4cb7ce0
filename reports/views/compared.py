"""Runs compared: the table by batch size, a plot of both curves, and what a switch would need."""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from sgltrace.insight.compare_runs import RunComparison, compare_runs
from sgltrace.insight.compare_text import HEAD, cost_lines, difference_lines, switch_lines, table_rows
from sgltrace.insight.observed import Run
from sgltrace.reports.site import ASSETS, environment
from sgltrace.reports.views.chart import nice

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 58, 16, 12, 34


@dataclass(frozen=True)
class Curve:
    """One run's curve: its path, and a point with its uncertainty (top and bottom of a bar) for each batch size."""

    name: str
    number: int
    path: str
    points: list[tuple[float, float, float, float, str]]
    """x, y, top and bottom of the bar, and what the point says."""


@dataclass(frozen=True)
class Plot:
    """Tokens a second by batch size; batch sizes on a logarithmic axis."""

    curves: list[Curve]
    xs: list[tuple[float, int]]
    ys: list[tuple[float, str]]
    crossings: list[tuple[float, float, float, str]]
    """x, and where its uncertainty begins and ends."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


@dataclass(frozen=True)
class Compared:
    """Everything that is shown of a comparison."""

    found: RunComparison
    head: tuple[str, ...]
    rows: list[list[str]]
    plot: Plot | None
    switching: list[str]
    costs: list[str]
    differences: list[str]


def compared(runs: list[Run]) -> Compared | None:
    """The comparison of the runs that have figures; None where fewer than two have."""
    figures = [run.figures for run in runs if run.figures is not None and run.figures.decoding]
    return view(compare_runs(figures)) if len(figures) > 1 else None


def view(found: RunComparison) -> Compared:
    """What a page shows of a comparison."""
    return Compared(
        found=found,
        head=HEAD,
        rows=table_rows(found),
        plot=_plot(found),
        switching=switch_lines(found),
        costs=cost_lines(found),
        differences=difference_lines(found),
    )


def page(found: RunComparison) -> bytes:
    """A page of its own, in one file."""
    env = environment()
    style = Markup((ASSETS / "report.css").read_text(encoding="utf-8"))
    return env.get_template("compared_alone.html").render(view=view(found), style=style).encode()


def _plot(found: RunComparison) -> Plot | None:
    known = [
        (row.batch, name, cell) for row in found.batch_sizes for name, cell in row.runs.items() if cell.tokens_per_s
    ]
    batches = sorted({batch for batch, _, _ in known})
    if len(batches) < 2:
        return None
    top = nice(max((cell.tokens_per_s or 0) * (1 + 2 * (cell.tokens_per_s_error or 0)) for _, _, cell in known))
    low, high = math.log2(batches[0]), math.log2(batches[-1])

    def x(batch: float) -> float:
        return LEFT + (math.log2(batch) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - min(1.0, max(0.0, rate / top)) * (HEIGHT - TOP - BOTTOM)

    curves = []
    for number, name in enumerate(dict.fromkeys(name for _, name, _ in known)):
        points = []
        for batch, owner, cell in known:
            if owner == name and cell.tokens_per_s:
                error = 2 * (cell.tokens_per_s_error or 0) * cell.tokens_per_s
                told = f"{name}, batch {batch}: {cell.tokens_per_s:.0f} tokens a second"
                rate = cell.tokens_per_s
                points.append((x(batch), y(rate), y(rate + error), y(rate - error), told))
        path = "M" + "L".join(f"{at:.1f} {height:.1f}" for at, height, _, _, _ in points)
        curves.append(Curve(name, number, path, points))
    crossings = [
        (x(c.batch), x(c.low or c.batch), x(c.high or c.batch), f"{switch.on} and {switch.off} cross at {c.batch:.1f}")
        for switch in found.switches
        if (c := switch.crossing) is not None
    ]
    xs = [(x(batch), batch) for batch in batches]
    return Plot(curves, xs, [(y(top * part / 4), f"{top * part / 4:g}") for part in range(5)], crossings)
