"""How long batches keep their size, and what it costs to switch speculation on or off."""

from __future__ import annotations

import msgspec

from .step import OFF, ON, Step

AFTER = 4
"""Steps after a switch that are looked at."""
_MAX_STAYS = 200_000
_MAX_SWITCHES = 1_000


class Stays:
    """The sizes of the decode batches of a rank in order, each with how many steps it stayed."""

    def __init__(self) -> None:
        self.found: list[list[int]] = []
        self.cut = 0
        """Steps beyond the number of changes that is kept."""

    def add(self, batch: int) -> None:
        """The next decode step is of ``batch`` requests."""
        if self.found and self.found[-1][0] == batch and not self.cut:
            self.found[-1][1] += 1
        elif len(self.found) < _MAX_STAYS:
            self.found.append([batch, 1])
        else:
            self.cut += 1


class AfterSwitch(msgspec.Struct, frozen=True):
    """A step after a switch: ``at`` counts from 0, the first step of the other kind."""

    at: int
    to: str
    batch: int | None
    period_ns: int
    accepted: float | None


class Switches:
    """The steps after each switch from on to off and back."""

    def __init__(self) -> None:
        self.count = {ON: 0, OFF: 0}
        self.after: list[AfterSwitch] = []
        self._last = ""
        self._at = AFTER

    def add(self, step: Step, period_ns: int) -> None:
        """The next step whose period counts."""
        if step.speculation not in (ON, OFF):
            return
        if self._last and step.speculation != self._last:
            self.count[step.speculation] += 1
            self._at = 0
        self._last = step.speculation
        if self._at < AFTER and len(self.after) < _MAX_SWITCHES * AFTER:
            lengths = step.accept_lens
            accepted = sum(lengths) / len(lengths) if lengths else None
            self.after.append(AfterSwitch(self._at, step.speculation, step.batch_size, period_ns, accepted))
            self._at += 1
