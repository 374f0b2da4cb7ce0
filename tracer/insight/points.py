"""Questions about coupling points: those of a path, a kind or a severity, and one by its id."""

from __future__ import annotations

import difflib

from sgltrace.errors import UsageError
from sgltrace.insight.answer import severity_of
from sgltrace.insight.state import check_path
from sgltrace.model import CouplingPoint, Index


def select(
    index: Index,
    path: str | None = None,
    kind: str | None = None,
    severity: str | None = None,
    design: str | None = None,
) -> list[CouplingPoint]:
    """The points that meet every condition given, by rank. Raises UsageError for a kind or path it lacks."""
    check_path(index, path)
    kinds = {point.kind for point in index.coupling_points}
    if kind is not None and kind not in kinds:
        near = difflib.get_close_matches(kind, sorted(kinds), n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else f"the index has {', '.join(sorted(kinds)) or 'none'}"
        raise UsageError(f"there is no coupling point of kind {kind!r}; {hint}")
    return [
        point
        for point in index.coupling_points
        if (kind in (None, point.kind))
        and _weighs(point, path, severity, design)
        and (path is None or point.severity.get(path))
    ]


def level_of(point: CouplingPoint, path: str, design: str | None = None) -> str | None:
    """The severity on a path, of one design or of the worst; None where the point does not concern the path."""
    return point.severity.get(path) if design is None else severity_of(point, path, design)


def find(index: Index, name: str) -> CouplingPoint:
    """The point with an id, or with the only id that begins so. Raises UsageError with what comes nearest."""
    by_id = {point.id: point for point in index.coupling_points}
    begun = [id for id in by_id if id.startswith(name)]
    if name in by_id or len(begun) == 1:
        return by_id[name if name in by_id else begun[0]]
    near = begun[:3] or difflib.get_close_matches(name, sorted(by_id), n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "`sgltrace points` lists them"
    raise UsageError(f"there is no coupling point {name!r} in the index; {hint}")


def _weighs(point: CouplingPoint, path: str | None, severity: str | None, design: str | None) -> bool:
    levels = {level_of(point, key, design) for key in point.severity if path in (None, key)} - {None}
    if severity is not None:
        return severity in levels
    return design is None or bool(levels - {"none"})  # a design is asked for what stands in its way
