"""Questions about coupling points: those of a path, a kind or a severity, and one by its id."""

from __future__ import annotations

import difflib

from sgltrace.errors import UsageError
from sgltrace.insight.state import check_path
from sgltrace.model import CouplingPoint, Index


def select(
    index: Index, path: str | None = None, kind: str | None = None, severity: str | None = None
) -> list[CouplingPoint]:
    """The points that meet every condition given, by rank. Raises UsageError for a kind or path it lacks."""
    check_path(index, path)
    kinds = {point.kind for point in index.coupling_points}
    if kind is not None and kind not in kinds:
        raise UsageError(f"there is no point of kind {kind!r}; the index has {', '.join(sorted(kinds)) or 'none'}")
    return [
        point
        for point in index.coupling_points
        if (kind in (None, point.kind))
        and _weighs(point, path, severity)
        and (path is None or point.severity.get(path))
    ]


def find(index: Index, name: str) -> CouplingPoint:
    """The point with an id, or with the only id that begins so. Raises UsageError with what comes nearest."""
    by_id = {point.id: point for point in index.coupling_points}
    begun = [id for id in by_id if id.startswith(name)]
    if name in by_id or len(begun) == 1:
        return by_id[name if name in by_id else begun[0]]
    near = begun[:3] or difflib.get_close_matches(name, sorted(by_id), n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "`sgltrace points` lists them"
    raise UsageError(f"there is no coupling point {name!r} in the index; {hint}")


def _weighs(point: CouplingPoint, path: str | None, severity: str | None) -> bool:
    levels = [level for key, level in point.severity.items() if path in (None, key)]
    return severity is None or severity in levels
