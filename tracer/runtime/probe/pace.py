"""How much of each step is recorded, so that the recorder stays cheap on any machine.

A step is recorded in full, lightly (its batch, its times, its graph and what was accepted), counted only (in the
histogram), or not at all. Under ``AUTO`` every step is in full as long as all of the recorder costs no more than
``SHARE`` of the time; else every second, fourth, eighth ... one is, and the first ones of each mode and batch size
always are. Where light steps alone take more than ``LIGHT_SHARE``, some of them are only counted. Which ones depends
on the step's number and batch, so that ranks record the same.
"""

from __future__ import annotations

from typing import NamedTuple

OFF, COUNT, LIGHT, FULL = 0, 1, 2, 3
AUTO = 0
SHARE = 0.005
LIGHT_SHARE = 0.003
NEW = 4  # steps of a mode and batch size that are always recorded in full
MAX_EVERY = 1024
CHECK_EVERY = 16  # steps from one decision to the next, at least
CHECK_NS = 250_000_000  # and about the time between two, at most
PAUSE_NS = 100_000_000  # a longer gap between steps is no step's time
PREEMPTED_NS = 2_000_000  # a call that took longer was interrupted
COLD = 4.0
"""What a wrapper costs in a server, where other code has filled the caches, over what it costs in a loop. On an H200
(SGLang 0.5.12.post1) engines lost two to four times what was measured inside of the calls."""
DISPLACED = 1.35
"""What a step in full costs a server over what is measured inside of the recorder and around it: the server's own code
finds the caches emptied. On an H200 a plain engine with each step in full lost 126 microseconds a step, and 92 were
measured."""
_MAX_KINDS = 10_000


class Spent(NamedTuple):
    """What the recorder took in the steps that were measured, its wrappers included, by level, and their number; and
    the time of steps close together."""

    full_ns: float = 0
    full_steps: int = 0
    light_ns: float = 0
    light_steps: int = 0
    counted_ns: float = 0
    counted_steps: int = 0
    busy_ns: float = 0
    busy_steps: int = 0


class Pace:
    """Told of steps of a new kind and now and then; says how much of the steps to come is recorded."""

    def __init__(self, steps: tuple[int, int | None] | None, every: int) -> None:
        self.first = steps[0] if steps is not None else 0
        self.past = steps[1] if steps is not None else None
        self.auto = every == AUTO
        self.every = every or 1
        self.light_every = 1
        self.full_until = 0
        self.forced: int | None = None
        """The level of all steps while somebody says so (``ctl``, ``--when``, a window)."""
        self._seen: dict[tuple[str, int], int] = {}
        self._last = Spent()
        self._full_ns = self._light_ns = self._counted_ns = self._step_ns = 0.0
        self._next_check = CHECK_EVERY
        self._checked = 1

    def level(self, step: int) -> int:
        """``OFF``, ``COUNT``, ``LIGHT`` or ``FULL``."""
        if step < self.first or (self.past is not None and step >= self.past):
            return OFF
        if self.forced is not None and (self.forced != LIGHT or step % self.light_every == 0):
            return self.forced
        if self.forced is None and (step < self.full_until or (step - self.first) % self.every == 0):
            return FULL
        return LIGHT if step % self.light_every == 0 else COUNT

    @property
    def check_in(self) -> int:
        """Steps until the pace wants to be told again: few at first, then what makes up ``CHECK_NS``."""
        usual = int(CHECK_NS / self._step_ns) if self._step_ns else CHECK_EVERY
        return max(CHECK_EVERY, min(self._checked * CHECK_EVERY, CHECK_EVERY * 64, usual))

    def begun(self, step: int, kind: tuple[str, int], spent: Spent) -> None:
        """``step`` begins with a batch of ``kind`` (mode, size)."""
        if step >= self._next_check:
            self._learn(spent)
            self._checked += 1
            self._next_check = step + self.check_in
        if not self.auto:
            return
        seen = self._seen.get(kind, 0)
        if seen < NEW:
            if len(self._seen) > _MAX_KINDS:
                self._seen.clear()
            self._seen[kind] = seen + 1
            self.full_until = max(self.full_until, step + NEW - seen)

    def settled(self, kind: tuple[str, int]) -> bool:
        """Whether steps of this kind are no news any more."""
        return not self.auto or self._seen.get(kind, 0) >= NEW

    def _learn(self, spent: Spent) -> None:
        last, self._last = self._last, spent
        self._step_ns = _mean(self._step_ns, spent.busy_ns - last.busy_ns, spent.busy_steps - last.busy_steps, 4)
        self._full_ns = _mean(self._full_ns, spent.full_ns - last.full_ns, spent.full_steps - last.full_steps, 2)
        self._light_ns = _mean(self._light_ns, spent.light_ns - last.light_ns, spent.light_steps - last.light_steps, 4)
        counted = spent.counted_steps - last.counted_steps
        self._counted_ns = _mean(self._counted_ns, spent.counted_ns - last.counted_ns, counted, 4)
        if not self._step_ns or not self.auto:
            return
        # A level that is no longer taken keeps its figures, and those of a server that warms up are several times too
        # large. A fuller one costs twice as much at least; where the figures say less, the smaller level's are old.
        light_ns = min(self._light_ns, self._full_ns / 2) if self._full_ns else self._light_ns
        counted_ns = min(self._counted_ns, light_ns / 2) if light_ns else self._counted_ns
        light = light_ns - counted_ns
        left = max(LIGHT_SHARE * self._step_ns - counted_ns, LIGHT_SHARE * self._step_ns / 4)
        self.light_every = _every(light / left, self.light_every)
        beside = counted_ns + light / self.light_every
        left = max(SHARE * self._step_ns - beside, SHARE * self._step_ns / 8)
        self.every = _every((self._full_ns - light_ns) / left, self.every)


def _mean(before: float, added: float, count: int, weight: int) -> float:
    """A mean that follows what is newer."""
    if not count:
        return before
    return before + (added / count - before) / weight if before else added / count


def _every(share: float, now: int) -> int:
    """The power of two that brings ``share`` below 1; back to more only where that is clearly affordable."""
    every = 1
    while every < share and every < MAX_EVERY:
        every *= 2
    return every if every > now or share < 0.75 * every else now
