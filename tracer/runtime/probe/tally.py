"""Counts every step by mode, batch size and width, in a mapped file that is true at every moment; and says what a
step was, for its record. The C part does the same (``_fast_steps.c``).
"""

# As in the rest of the probe, no pathlib.
# ruff: noqa: PTH118
from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import Any

from . import wire
from .recorder import Mapping, Recorder

_COUNTER = struct.Struct("<Q")
_SMALL = struct.Struct("<I")
_USED_AT = wire.HIST_HEADER.size - 4
_COUNTERS_AT = wire.HIST_MODE + 16
_KEPT_AT = _COUNTERS_AT + 8 * len(wire.HIST_COUNTERS)
_PERIODS_AT = _KEPT_AT + 4 * wire.HIST_KEPT
PLACES = {name: _COUNTERS_AT + 8 * at for at, name in enumerate(wire.HIST_COUNTERS)}
OTHER = "other"


class Slots:
    """The mapped file, and which slot is whose."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.mapping: Mapping | None = None
        self._slots: dict[tuple[str, int, int], int] = {}

    def forget(self) -> None:
        """This is the child of a fork: the file stays the parent's."""
        self.mapping = None
        self._slots.clear()

    @property
    def count(self) -> int:
        """How many slots are in use."""
        return len(self._slots)

    def slot(self, mode: str, size: int, width: int) -> tuple[int, bool]:
        """Where the slot of a kind begins, and whether it is new. Raises ``OSError``."""
        kind = (mode, size, width)
        offset = self._slots.get(kind)
        if offset is not None:
            return offset, False
        if self.mapping is None:
            self._map()
        if len(self._slots) >= wire.HIST_SLOTS - 1:
            kind = (OTHER, -1, -1)
            offset = self._slots.get(kind)
            if offset is not None:
                return offset, False
        offset = wire.HIST_HEADER_SIZE + len(self._slots) * wire.HIST_SLOT_SIZE
        self._slots[kind] = offset
        mapping = self.mapping
        assert mapping is not None
        name = kind[0].encode("utf-8", "replace")[: wire.HIST_MODE]
        head = struct.pack(f"<{wire.HIST_MODE}sqq", name, kind[1], kind[2])
        mapping.memory[offset : offset + len(head)] = head
        _SMALL.pack_into(mapping.memory, _USED_AT, len(self._slots))
        return offset, True

    def _map(self) -> None:
        path = os.path.join(self.recorder.folder, self.recorder.name + ".hist")
        size = wire.HIST_HEADER_SIZE + wire.HIST_SLOTS * wire.HIST_SLOT_SIZE
        self.mapping = Mapping(path, size)
        header = wire.HIST_HEADER.pack(wire.HIST_MAGIC, wire.VERSION, wire.HIST_SLOT_SIZE, wire.HIST_SLOTS, 0)
        self.mapping.memory[: len(header)] = header


class Tally:
    """One thread's steps, one after the other."""

    def __init__(self, recorder: Recorder) -> None:
        self.slots = Slots(recorder)
        self.began_ns = 0
        self.turn_ns = 0
        self.idle = True
        self.before_ns = self.before_wait_ns = 0
        self.watched = False  # whether waits were looked at since the step began
        self.wait_ns = 0
        self.padded = -1
        self.replays = 0
        self.compiled = 0
        self.window = 0
        self._slot = 0
        self.mode, self._size = "", -1
        self._changed = True
        self._window_before = 0

    def turn(self, now: int) -> None:
        """A turn of the scheduler begins."""
        self.turn_ns = now

    def nothing_to_run(self) -> None:
        """The turn has no batch: what comes after is no interval between steps."""
        self.idle = True

    def begin(self, now: int, mode: str, size: int) -> None:
        """A step begins."""
        period = 0 if self.idle or not self.began_ns else now - self.began_ns
        if period > 0 and self._slot:
            self._interval(period)
        self.before_ns, self.before_wait_ns = period, self.wait_ns
        self.began_ns, self.idle = now, False
        self.wait_ns = self.replays = self.compiled = 0
        self.padded = -1
        self.mode, self._size = mode, size

    def _interval(self, period: int) -> None:
        if self.compiled or self._window_before:
            self._add("odd", 1)
            self._add("odd_ns", period)
        elif self._changed:
            self._add("changed", 1)
            self._add("changed_ns", period)
        else:
            self._add("steady", 1)
            self._add("steady_ns", period)
            self._count(_PERIODS_AT + 4 * wire.period_bucket(period))
            if self.watched:
                self._add("wait_ns", self.wait_ns)
                self._add("wait_steps", 1)
                self._add("wait_period_ns", period)

    def end(self, now: int, width: int, graph: int, watched: bool, full: bool, raised: bool) -> list[int]:
        """The step returned; its ``wire.STEP_FIELDS``."""
        slot, new = self.slots.slot(self.mode, self._size, width)
        self._changed = slot != self._slot
        self._slot, self._window_before, self.watched = slot, self.window, watched
        if graph != 1:
            self.padded = -1
        turn = self.began_ns - self.turn_ns if self.turn_ns else -1
        self._add("steps", 1)
        self._add("run_ns", now - self.began_ns)
        if turn >= 0:
            self._add("turns", 1)
            self._add("turn_ns", turn)
        if graph >= 0:
            self._add("replayed" if graph else "eager", 1)
        if watched:
            if self.padded >= 0:
                self._add("padded", self.padded)
                self._add("padded_steps", 1)
            self._add("replays", self.replays)
            self._add("replays_steps", 1)
        if self.compiled:
            self._add("compiled_steps", 1)
        if self.window:
            self._add("window_steps", 1)
        flags = self.window | (wire.FLAG_FULL if full else 0) | (wire.FLAG_RAISED if raised else 0)
        flags |= wire.FLAG_NEW if new else 0
        self.turn_ns = 0
        replays = self.replays if watched else -1
        before = self.before_ns, self.before_wait_ns
        return [
            *(self._size, now - self.began_ns, flags, turn, *before),
            *(graph, self.padded, replays, width, self.compiled),
        ]

    @property
    def slot(self) -> int:
        """Where the last step's slot is."""
        return self._slot

    def result(self, slot: int, lengths: Sequence[int] | None) -> None:
        """A decode step's result was seen: what each request kept, None where that is one token each."""
        if not slot or self.slots.mapping is None:
            return
        memory = self.slots.mapping.memory
        size = struct.unpack_from("<q", memory, slot + wire.HIST_MODE)[0]
        kept = sum(lengths) if lengths is not None else max(size, 0)
        self._add("results", 1, slot)
        self._add("kept", kept, slot)
        for length in lengths or ():
            self._count(_KEPT_AT + 4 * min(max(length, 1), wire.HIST_KEPT) - 4, slot)

    def _add(self, name: str, value: int, slot: int = 0) -> None:
        mapping = self.slots.mapping
        assert mapping is not None
        at = (slot or self._slot) + PLACES[name]
        _COUNTER.pack_into(mapping.memory, at, _COUNTER.unpack_from(mapping.memory, at)[0] + value)

    def _count(self, place: int, slot: int = 0) -> None:
        mapping = self.slots.mapping
        assert mapping is not None
        at = (slot or self._slot) + place
        _SMALL.pack_into(mapping.memory, at, min(_SMALL.unpack_from(mapping.memory, at)[0] + 1, 0xFFFFFFFF))


def lengths_of(value: Any) -> list[int] | None:
    """Tokens kept for each request, from a list of accepted drafts; None where it is no list of integers."""
    if type(value) is not list or not all(type(n) is int for n in value):
        return None
    return [n + 1 for n in value]
