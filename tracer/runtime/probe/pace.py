"""How much of each step is recorded, so that the recorder stays cheap on any machine.

A step is recorded in full, lightly (its batch, its time and what was accepted), or not at all. Under ``auto`` every
step is in full as long as that costs no more than ``SHARE`` of the time; else every second, fourth, eighth ... one is,
and the first ones of each mode and batch size always are. Which ones depends on the step's number and batch only, so
that ranks record the same.
"""

from __future__ import annotations

OFF, LIGHT, FULL = 0, 1, 2
AUTO = 0
SHARE = 0.01
NEW = 4  # steps of a mode and batch size that are always recorded in full
MAX_EVERY = 64
_LEARN = 16  # steps from one decision to the next
_WRAPPERS = 1.4  # what a record costs with the call around it, over its own cost
_PAUSE_NS = 500_000_000  # a longer gap between steps is no step's time
_MAX_KINDS = 10_000


class Pace:
    """Told of each turn and step; answers with how much of it to record."""

    def __init__(self, steps: tuple[int, int | None] | None, every: int) -> None:
        self.steps = steps
        self.auto = every == AUTO
        self.every = every or 1
        self._seen: dict[tuple[str, int], int] = {}
        self._owed = 0
        self._time_ns = 0.0
        self._full_ns = 0.0
        self._last_ns = 0
        self._last_spent = (0, 0)
        self._last_level = OFF

    def opened(self, step: int) -> int:
        """The scheduler's turn before ``step`` begins; its batch is not known yet."""
        return self._level(step)

    def begun(self, step: int, kind: tuple[str, int], now_ns: int, spent: tuple[int, int]) -> int:
        """``step`` begins with a batch of ``kind`` (mode, size); ``spent`` is what the recorder spent so far.

        That is nanoseconds, and the number of records in which something was seen for the first time.
        """
        if self.auto:
            self._learn(step, now_ns, spent)
            seen = self._seen.get(kind, 0)
            if len(self._seen) > _MAX_KINDS:
                self._seen.clear()
            self._seen[kind] = seen + 1
            self._owed = max(self._owed - 1, 0) if seen >= NEW else NEW - seen
        self._last_level = self._level(step)
        return self._last_level

    def _level(self, step: int) -> int:
        if self.steps is not None:
            first, last = self.steps
            if step < first or (last is not None and step >= last):
                return OFF
            step -= first
        return FULL if self._owed or step % self.every == 0 else LIGHT

    def _learn(self, step: int, now_ns: int, spent: tuple[int, int]) -> None:
        gap = now_ns - self._last_ns
        if 0 < gap < _PAUSE_NS:
            self._time_ns += (gap - self._time_ns) / 16 if self._time_ns else gap
            if self._last_level == FULL and spent[1] == self._last_spent[1]:  # with something new it is no measure
                cost = spent[0] - self._last_spent[0]
                self._full_ns += (cost - self._full_ns) / 8 if self._full_ns else cost
        self._last_ns, self._last_spent = now_ns, spent
        if step % _LEARN == 0 and self._time_ns:
            share = _WRAPPERS * self._full_ns / (SHARE * self._time_ns)
            every = 1
            while every < share and every < MAX_EVERY:
                every *= 2
            # Back to more only where that is clearly affordable.
            if every > self.every or share < 0.75 * every:
                self.every = every
