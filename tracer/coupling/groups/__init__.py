"""From what an off step meets to coupling points: each module groups the answers to one question, and names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sgltrace.coupling.groups import (
    arguments,
    attached,
    called_back,
    captured,
    chosen,
    cut,
    decided,
    detached,
    drafted,
    fixed,
    handed,
    kept_up,
    mixed,
    own_step,
    performed,
    ranks,
    refused,
    results,
    sampled,
    skipped,
    slots,
    stages,
    stale,
)
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
    performed.points,
    decided.points,
    sampled.points,
    handed.points,
    cut.points,
    captured.points,
    called_back.points,
    slots.points,
    own_step.points,
    ranks.points,
    drafted.points,
    arguments.points,
    fixed.points,
    chosen.points,
    stages.points,
)


def drafts(scenes: list[Scene]) -> list[Draft]:
    """The points of all paths; what two paths share is one point."""
    found: list[Draft] = []
    for scene in scenes:
        for group in GROUPS:
            found += group(scene)
    return merged(found)


__all__ = ["Draft", "Scene", "drafts"]
