"""From what an off step meets to coupling points: each module groups the answers to one question, and names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sgltrace.coupling.groups import attached, detached, kept_up, mixed, refused, results, skipped, stale, widths
from sgltrace.coupling.groups.draft import Draft, merged
from sgltrace.coupling.groups.scene import Scene

Group = Callable[[Scene], Iterator[Draft]]

GROUPS: tuple[Group, ...] = (
    results.points,
    detached.points,
    skipped.points,
    kept_up.points,
    stale.points,
    mixed.points,
    attached.points,
    refused.points,
    widths.points,
)


def drafts(scenes: list[Scene]) -> list[Draft]:
    """The points of all paths; what two paths share is one point."""
    return merged([draft for scene in scenes for group in GROUPS for draft in group(scene)])


__all__ = ["Draft", "Scene", "drafts"]
