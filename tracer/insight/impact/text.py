"""An impact in words."""

from __future__ import annotations

from sgltrace.insight.changes.model import Change
from sgltrace.insight.impact.model import Edited, Impact

BUCKETS = (
    ("resolves", "Resolves"),
    ("partly", "Better, and still in the way"),
    ("adds", "Newly in the way"),
    ("no_progress", "Gone, and not repaired"),
)


def buckets(found: Impact) -> list[tuple[str, list[Change]]]:
    """The changes that a reader wants first, under their headings; empty ones are left out."""
    named: list[tuple[str, list[Change]]] = [(title, getattr(found, name)) for name, title in BUCKETS]
    return [(title, changes) for title, changes in named if changes]


def edited_line(entry: Edited) -> str:
    """A function that the diff edits, with who comes to it."""
    beyond = "on no path of speculation" if entry.way else "reached by no step"
    where = f"{', '.join(entry.paths)}: {', '.join(entry.phase)}" if entry.paths else beyond
    points = f"; an end of {len(entry.points)} points" if entry.points else ""
    return f"{entry.how:8}{entry.function}  ({where}{points})"
