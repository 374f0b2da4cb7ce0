"""How much of each step is recorded, so that the recorder stays cheap on any machine.

A step is recorded in full, lightly (its batch, its time and what was accepted), or not at all. Under ``AUTO`` every
step is in full as long as that costs no more than ``SHARE`` of the time; else every second, fourth, eighth ... one is,
and the first ones of each mode and batch size always are. Which ones depends on the step's number and batch, so that
ranks record the same.
"""

from __future__ import annotations

from typing import NamedTuple

OFF, LIGHT, FULL = 0, 1, 2
AUTO = 0
SHARE = 0.005
NEW = 4  # steps of a mode and batch size that are always recorded in full
MAX_EVERY = 256
CHECK_EVERY = 16  # steps from one decision to the next
PAUSE_NS = 100_000_000  # a longer gap between steps is no step's time
_WRAPPERS = 1.3  # what a record costs with the call around it, over its own cost
_MAX_KINDS = 10_000


class Spent(NamedTuple):
    """What the recorder took so far: in steps recorded in full and lightly; and the time of steps close together."""

    full_ns: int = 0
    full_steps: int = 0
    light_ns: int = 0
    light_steps: int = 0
    busy_ns: int = 0
    busy_steps: int = 0


class Pace:
    """Told of steps of a new kind and now and then; says how much of the steps to come is recorded."""

    def __init__(self, steps: tuple[int, int | None] | None, every: int) -> None:
        self.first = steps[0] if steps is not None else 0
        self.past = steps[1] if steps is not None else None
        self.auto = every == AUTO
        self.every = every or 1
        self.full_until = 0
        self._seen: dict[tuple[str, int], int] = {}
        self._last = Spent()
        self._full_ns = 0.0
        self._step_ns = 0.0
        self._next_check = CHECK_EVERY

    def level(self, step: int) -> int:
        """``OFF``, ``LIGHT`` or ``FULL``."""
        if step < self.first or (self.past is not None and step >= self.past):
            return OFF
        return FULL if step < self.full_until or (step - self.first) % self.every == 0 else LIGHT

    def begun(self, step: int, kind: tuple[str, int], spent: Spent) -> None:
        """``step`` begins with a batch of ``kind`` (mode, size)."""
        if not self.auto:
            return
        seen = self._seen.get(kind, 0)
        if seen < NEW:
            if len(self._seen) > _MAX_KINDS:
                self._seen.clear()
            self._seen[kind] = seen + 1
            self.full_until = max(self.full_until, step + NEW - seen)
        if step >= self._next_check:
            self._next_check = step + CHECK_EVERY
            self._learn(spent)

    def _learn(self, spent: Spent) -> None:
        last, self._last = self._last, spent
        steps = spent.busy_steps - last.busy_steps
        if steps:
            now = (spent.busy_ns - last.busy_ns) / steps
            self._step_ns += (now - self._step_ns) / 4 if self._step_ns else now
        full = spent.full_steps - last.full_steps
        if full:
            now = (spent.full_ns - last.full_ns) / full
            self._full_ns += (now - self._full_ns) / 2 if self._full_ns else now
        if not self._step_ns:
            return
        share = _WRAPPERS * self._full_ns / (SHARE * self._step_ns)
        every = 1
        while every < share and every < MAX_EVERY:
            every *= 2
        if every > self.every or share < 0.75 * every:  # back to more only where that is clearly affordable
            self.every = every
