"""What is said of a diff."""

from __future__ import annotations

import msgspec

from sgltrace.insight.changes.model import Change, Renamed, SideName

IMPACT_SCHEMA = "sgltrace.impact/1"


class Edited(msgspec.Struct, kw_only=True):
    """A function that a diff edits, adds or deletes."""

    function: str
    how: str
    """``edited``, ``new``, ``deleted``."""
    paths: list[str] = []
    phase: list[str] = []
    """When it runs; empty where nothing that serves reaches it."""
    component: str = ""
    points: list[str] = []
    """Coupling points that have an end in it, before or after."""
    way: list[str] = []
    """How a step comes to it: functions from the event loop on."""


class Impact(msgspec.Struct, kw_only=True):
    """The impact of a diff. Lists of changes are ranked."""

    schema: str = IMPACT_SCHEMA
    applies: bool
    why: str = ""
    """Where it does not apply: why. Else the answer in a sentence."""
    before: SideName | None = None
    resolves: list[Change] = []
    """What was in the way of some design on some path, and is not any more."""
    partly: list[Change] = []
    """What is better, and still in the way: of another design, under a condition, or until somebody sets a flag."""
    adds: list[Change] = []
    """What is newly in the way."""
    no_progress: list[Change] = []
    """What is gone and was not repaired: a path was deleted, or nothing reaches the code any more."""
    others: list[Change] = []
    """What else differs: calls, tensors, shapes of the contract, values of the launch handling."""
    touches: list[str] = []
    """The functions that it edits, adds or deletes."""
    edited: list[Edited] = []
    fields: list[str] = []
    """Fields whose writes, reads or definitions it edits."""
    beside: bool = True
    """Whether it neither resolves nor adds anything that an off step meets."""
    paths: list[str] = []
    """The paths whose steps come to something that it edits."""
    renamed: list[Renamed] = []
    notes: list[str] = []

    @property
    def new_hard(self) -> list[Change]:
        """Points that are newly hard for some design."""
        return [
            change
            for change in self.adds
            if any(step.way == "harder" and step.after == "hard" for step in change.severities)
        ]
