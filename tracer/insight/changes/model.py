"""What a comparison of two sources hands over."""

from __future__ import annotations

from typing import Literal

import msgspec

CHANGES_SCHEMA = "sgltrace.changes/1"

Of = Literal["point", "contract", "gate", "default", "tensor", "call"]
Kind = Literal["new", "gone", "easier", "harder", "changed", "moved"]
Way = Literal["easier", "harder", "same"]

ORDER: dict[str | None, int] = {None: 0, "none": 0, "soft": 1, "hard": 2}
"""Severities, the worse the higher. A path or design that a point does not concern is as good as none."""


class Step(msgspec.Struct, kw_only=True, frozen=True):
    """The severity of a point for one path and design, before and after. None: the point does not concern it."""

    path: str
    design: str
    before: str | None
    after: str | None
    reason: str = ""
    """Why it is as bad as it is after; before, where nothing is left of it."""

    @property
    def way(self) -> Way:
        """Whether it became easier or harder to switch speculation off."""
        old, new = ORDER[self.before], ORDER[self.after]
        return "same" if old == new else "easier" if new < old else "harder"


class Change(msgspec.Struct, kw_only=True):
    """One difference. ``designs`` says for each design what it means there, the worst of the paths."""

    of: Of
    change: Kind
    title: str
    designs: dict[str, Way] = {}
    fields: list[str] = []
    functions: list[str] = []
    """Of the source after the change, where it still has them."""
    before: str | None = None
    after: str | None = None
    where: str | None = None
    """The condition under which it matters; None: always."""
    why: str = ""
    paths: list[str] = []
    severities: list[Step] = []
    """Of a point: every path and design of either side."""
    point: str | None = None
    """The point's id, after where it is there, else before."""
    progress: bool = True
    """False: what is gone was not repaired; its path was deleted, or its code is no longer reached."""
    weight: int = 0
    """The more, the earlier a reader should see it."""


class SideName(msgspec.Struct, kw_only=True, frozen=True):
    """One of the two sources."""

    name: str
    version: str | None
    requested: str
    entry_points: dict[str, str | None]


class Renamed(msgspec.Struct, kw_only=True, frozen=True):
    """What has another name or place after, and is the same all the same."""

    of: Literal["function", "class", "field"]
    before: str
    after: str


class Changes(msgspec.Struct, kw_only=True):
    """A comparison of two sources. ``changes`` are ranked: what matters most comes first."""

    schema: str = CHANGES_SCHEMA
    before: SideName
    after: SideName
    changes: list[Change]
    renamed: list[Renamed] = []
    notes: list[str] = []
    """What could not be compared, for the reader."""


def designs_of(steps: list[Step]) -> dict[str, Way]:
    """For each design the worst that its paths say: harder before easier before the same."""
    out: dict[str, Way] = {}
    for step in steps:
        ways = (out.get(step.design, "same"), step.way)
        out[step.design] = "harder" if "harder" in ways else "easier" if "easier" in ways else "same"
    return dict(sorted(out.items()))
