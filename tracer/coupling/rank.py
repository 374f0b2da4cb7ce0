"""The order in which a reader meets the points, and their ids."""

from __future__ import annotations

import re

from sgltrace.model import CouplingPoint

RELATED = 4
"""The most points that are named as related to one."""

_SEVERITY = {"hard": 3, "soft": 2, "none": 1, None: 0}


def ranked(found: list[tuple[int, CouplingPoint]]) -> list[CouplingPoint]:
    """What blocks comes first: hard before soft before none, on both paths before on one, unconditional first."""

    def order(entry: tuple[int, CouplingPoint]) -> tuple[int, int, int, int, str, str]:
        weight, point = entry
        levels = sorted((_SEVERITY[v] for v in point.severity.values()), reverse=True)
        return (
            -levels[0],
            0 if point.condition == "always" else 1,
            -weight,
            -sum(levels),
            point.kind,
            point.title,
        )

    points = [point for _, point in sorted(found, key=order)]
    taken: dict[str, int] = {}
    for number, point in enumerate(points, 1):
        point.rank = number
        words = "-".join(re.findall(r"[a-z0-9]+", point.title.lower())[:6])
        name = point.id or f"{point.kind.replace('_', '-')}-{words}"
        taken[name] = taken.get(name, 0) + 1
        point.id = name if taken[name] == 1 else f"{name}-{taken[name]}"
    _relate(points)
    return points


def _relate(points: list[CouplingPoint]) -> None:
    """Name beside each point those that its value also crosses: by shared fields, then by shared functions."""
    fields = {p.id: {name.rpartition(".")[2] for name in p.fields} for p in points}
    sides = {p.id: {place.function for place in (*p.producers, *p.consumers)} for p in points}
    for point in points:
        near = [
            (-len(shared), -len(sides[point.id] & sides[other.id]), other.rank, other.id)
            for other in points
            if other is not point and (shared := fields[point.id] & fields[other.id])
        ]
        point.related = [id for _, _, _, id in sorted(near)[:RELATED]]
