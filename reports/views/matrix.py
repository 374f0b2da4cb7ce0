"""Component by component: where speculation is welded to the rest, on each path."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sgltrace.reports.context import Context
from sgltrace.reports.views.common import component_pairs

BLOCKING = ("hard", "soft")
HEAT = 4
"""Steps of shading."""


@dataclass(frozen=True)
class Cell:
    """The points whose value one component fixes and another relies on, by path and severity."""

    counts: dict[str, dict[str, int]]
    """By path: ``hard`` and ``soft``."""
    heat: int
    """0 to ``HEAT``, by the number of hard ones."""
    crossing: str


@dataclass(frozen=True)
class Matrix:
    """Rows fix, columns rely."""

    rows: list[str]
    columns: list[str]
    hues: dict[str, int]
    cells: dict[str, dict[str, Cell | None]]
    kinds: list[tuple[str, dict[str, dict[str, int]]]]
    """Points by kind: for each path the number that are hard and soft."""


def matrix(context: Context) -> Matrix:
    """Counts each point once in each pair of components that it joins."""
    counts: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    for point in context.index.coupling_points:
        for pair in component_pairs(context, point):
            cell = counts.setdefault(pair, {path: Counter() for path in context.paths})
            for path in context.paths:
                cell[path][point.severity.get(path) or ""] += 1
    counts = {
        pair: by_path for pair, by_path in counts.items() if any(c[name] for c in by_path.values() for name in BLOCKING)
    }
    order = {name: number for number, name in enumerate(context.components)}
    rows = sorted({a for a, _ in counts}, key=lambda name: order.get(name, len(order)))
    columns = sorted({b for _, b in counts}, key=lambda name: order.get(name, len(order)))
    most = max((sum(by_path["hard"] for by_path in cell.values()) for cell in counts.values()), default=0)
    cells: dict[str, dict[str, Cell | None]] = {row: {} for row in rows}
    for row in rows:
        for column in columns:
            found = counts.get((row, column))
            cells[row][column] = None if found is None else _cell(found, most, f"{row} → {column}")
    return Matrix(rows, columns, context.hues, cells, _kinds(context))


def _cell(found: dict[str, Counter[str]], most: int, crossing: str) -> Cell:
    hard = sum(by_path["hard"] for by_path in found.values())
    heat = -(-hard * HEAT // most) if most else 0
    counts = {path: {name: count[name] for name in BLOCKING if count[name]} for path, count in found.items()}
    return Cell(counts, heat, crossing)


def _worst(count: Counter[str]) -> dict[str, int]:
    return {name: count[name] for name in ("hard", "soft", "none") if count[name]}


def _kinds(context: Context) -> list[tuple[str, dict[str, dict[str, int]]]]:
    kinds = sorted({point.kind for point in context.index.coupling_points})
    return [
        (
            kind,
            {
                path: _worst(
                    Counter(p.severity.get(path) or "" for p in context.index.coupling_points if p.kind == kind)
                )
                for path in context.paths
            },
        )
        for kind in kinds
    ]
