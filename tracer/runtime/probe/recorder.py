"""Writes records into segment files mapped into memory, so that a process ended by SIGKILL loses none.

Blocks are allocated before they are written to (a full disk is an error here, not a SIGBUS later), and what this
module raises, its callers turn into "recording stopped", never into an error of the server.
"""

# pathlib and contextlib are not loaded in every process.
# ruff: noqa: PTH108, PTH110, PTH118, PTH120, PTH123, SIM105
from __future__ import annotations

import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from . import wire

_COMMIT = struct.Struct("<I")
_MADV_POPULATE_WRITE = 23
_HEAD_EVERY = 16  # records from one update of the head to the next
_WORD = struct.Struct("<Q")
_NOW = ("began_ns", "size", "mode_0", "mode_1", "inside", "last_step")
HEAD_AT = {name: struct.calcsize("<8sII") + 8 * at for at, name in enumerate(wire.HEAD_COUNTERS)}
"""Where in the head each counter lies."""


TRUNCATED = "its segment was truncated or closed by somebody else"


class RecorderStopped(Exception):
    """Recording is not possible any more; the text says why."""


class Mapping:
    """A file of fixed size mapped into memory, every block of it allocated."""

    def __init__(self, path: str, size: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as error:
                os.unlink(path)
                raise OSError(error.errno, error.strerror, os.path.dirname(path)) from None
            self.memory = mmap.mmap(fd, size)
            _touch(self.memory)
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd
        self.size = size

    def close(self) -> None:
        """Give the descriptor back. The memory is unmapped once nobody holds it."""
        try:
            os.close(self.fd)
        except OSError:
            pass  # the program closed it

    @property
    def whole(self) -> bool:
        """Whether nobody has truncated the file: writing past its end would be a SIGBUS for the server."""
        try:
            return os.fstat(self.fd).st_size >= self.size
        except OSError:
            return False

    def address(self) -> int:
        """Where it is mapped."""
        import ctypes

        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


def _touch(memory: mmap.mmap) -> None:
    """Have the kernel map all pages at once, where it can (Linux 5.14): a fault for each costs more."""
    try:
        memory.madvise(_MADV_POPULATE_WRITE)
    except (OSError, ValueError, AttributeError):
        pass


class Recorder:
    """The trace of this process: a head, and a ring of segments.

    ``max_bytes`` bounds all traces in ``folder`` together: when a new segment would pass it, this process removes
    its own oldest one, but keeps two.
    """

    def __init__(self, folder: str, name: str, max_bytes: int, segment_bytes: int) -> None:
        self.folder = folder
        self.name = name
        self.max_bytes = max_bytes
        self.segment_bytes = segment_bytes
        self.lock = threading.Lock()
        self.stopped: str | None = None
        self.step = 0
        self.every = self.light_every = 1
        self.spent: Sequence[float] = (0,) * 8
        """Full, light, counted steps and those close together: their cost and number, as ``pace.Spent``."""
        self.inside = False
        self.began_ns, self.size = 0, -1
        self.records = 0
        self.not_taken = 0
        self.fast: Any = None
        """The C part, where it is in use: it holds the memory that is written to, and counts."""
        self.generation = 0  # counts segments and forgotten definitions
        self._head: Mapping | None = Mapping(os.path.join(folder, name + ".head"), wire.HEAD_SIZE)
        self._segment: Mapping | None = None
        self._memory: mmap.mmap | None = None
        self._offset = 0
        self._end = 0
        self._next_segment = 0
        self._kept: list[tuple[int, int, int]] = []  # segment number, its size, records before it
        self._dropped_records = 0
        self._dropped_segments = 0
        self._warm_ns = self._warm = self._cold_ns = self._cold = 0
        self._definitions = 0
        self._ids = itertools.count(1)
        self._blobs: dict[int, tuple[int, bytes, tuple[int, ...]]] = {}
        self._defined: set[int] = set()
        self._bodies: dict[int, struct.Struct] = {}
        self.state = wire.ARMED
        self.write_head()

    # Definitions: interned texts, layouts, tensors and signatures.

    def new_definition(self, kind: int, payload: bytes, needs: tuple[int, ...] = ()) -> int:
        """Give ``payload`` an id; it is written before the first record that needs it, once in each segment."""
        if len(payload) > wire.MAX_DEFINITION:
            raise ValueError(f"a definition of {len(payload)} bytes")
        number = next(self._ids)
        self._blobs[number] = (kind, payload, needs)
        return number

    def forget_definitions(self) -> None:
        """Drop the ids given so far, so that a long run with ever new shapes keeps its memory bounded."""
        self._blobs.clear()
        self._defined.clear()
        self.generation += 1

    @property
    def definitions(self) -> int:
        """How many definitions are held in memory."""
        return len(self._blobs)

    def ensure_defined(self, number: int) -> None:
        """Write the definition ``number`` and what it needs into the current segment, if not there yet."""
        while number not in self._defined:
            generation = self.generation
            self._define(number)
            if generation != self.generation:  # what it needs went into the segment before
                self._defined.clear()

    def _define(self, number: int) -> None:
        kind, payload, needs = self._blobs[number]
        for needed in needs:
            if needed not in self._defined:
                self._define(needed)
        length = wire.RECORD_SIZE + (len(payload) + 7) // 8 * 8
        body = wire.RECORD.pack(0, length, 0, len(payload), number, 0, kind, 0, 0, 0)[4:]
        self._append(body + payload.ljust(length - wire.RECORD_SIZE, b"\0"), length)
        self._definitions += 1
        self._defined.add(number)

    # Records.

    def record(
        self, kind: int, site: int, signature: int, ints: Sequence[int], phase: int, thread: int, time_ns: int
    ) -> None:
        """Append one record. The caller holds ``lock``. Raises ``RecorderStopped`` or ``OSError``."""
        before = self._definitions
        count = len(ints)
        length = wire.RECORD_SIZE + 8 * count
        if self._offset + length > self._end:
            self._rotate(length)
        if signature and signature not in self._defined:
            self.ensure_defined(signature)
            if self._offset + length > self._end:  # its definitions filled the segment: once more in a new one
                self._rotate(length)
                self.ensure_defined(signature)
        body = self._bodies.get(count)
        if body is None:
            body = self._bodies[count] = struct.Struct(f"<IQIIHBBHH{count}q")
        self._append(body.pack(length, time_ns, self.step, signature, site, kind, phase, thread, count, *ints), length)
        self.records += 1
        cost = time.monotonic_ns() - time_ns
        if self._definitions != before:
            self._cold_ns += cost
            self._cold += 1
        else:
            self._warm_ns += cost
            self._warm += 1
        if self.records % _HEAD_EVERY == 0:
            self.write_head()

    def step_begun(self, now: int, size: int, mode: str) -> None:
        """A step begins: should the process end in it, the head says so."""
        self.inside, self.began_ns, self.size = True, now, size
        if self._head is not None:
            values = (now, size & wire.UNKNOWN, *_mode_words(mode), 1, self.step)
            for name, value in zip(_NOW, values, strict=True):
                _WORD.pack_into(self._head.memory, HEAD_AT[name], value)

    def tell_mode(self, mode: str) -> None:
        """Leave the mode of the step that begins in the head."""
        if self._head is not None:
            for name, word in zip(("mode_0", "mode_1"), _mode_words(mode), strict=True):
                _WORD.pack_into(self._head.memory, HEAD_AT[name], word)

    def step_ended(self) -> None:
        """The step returned, or raised."""
        self.inside = False
        if self._head is not None:
            _WORD.pack_into(self._head.memory, HEAD_AT["inside"], 0)

    # For the C part, which writes records itself.

    def rotate(self, room: int) -> None:
        """Begin a new segment with room for a record of ``room`` bytes, unless another thread just did."""
        with self.lock:
            self._rotate(room)

    def ensure(self, number: int) -> None:
        """``ensure_defined``, for one thread at a time."""
        with self.lock:
            self.ensure_defined(number)

    def _append(self, body: bytes, length: int) -> None:
        if self.fast is not None:
            if not self.fast.append(body):
                self._rotate(length)
                self.fast.append(body)
            return
        if self._offset + length > self._end:
            self._rotate(length)
        offset = self._offset
        memory, segment = self._memory, self._segment
        assert memory is not None and segment is not None
        if not segment.whole:
            raise RecorderStopped(TRUNCATED)
        memory[offset + 4 : offset + length] = body
        _COMMIT.pack_into(memory, offset, crc32(body) or 1)
        self._offset = offset + length

    def _rotate(self, room: int) -> None:
        if self.stopped is not None:
            raise RecorderStopped(self.stopped)
        if self._head is None:
            self.name = process_name(self.folder)
            self._head = Mapping(os.path.join(self.folder, self.name + ".head"), wire.HEAD_SIZE)
        size = max(self.segment_bytes, wire.SEGMENT_SIZE + room + wire.MAX_DEFINITION)
        self._make_room(size)
        number = self._next_segment
        segment = Mapping(os.path.join(self.folder, f"{self.name}.{number}.seg"), size)
        if self.fast is not None:
            self.records = self.fast.counters()[0]
        header = wire.SEGMENT.pack(
            wire.SEGMENT_MAGIC,
            wire.VERSION,
            os.getpid(),
            number,
            size,
            time.time_ns(),
            time.monotonic_ns(),
            self.records,
        )
        segment.memory[: len(header)] = header
        if self._segment is not None:
            self._segment.close()
        self._segment, self._memory = segment, segment.memory
        self._offset, self._end = wire.SEGMENT_SIZE, size
        if self.fast is not None:
            self.fast.stream(segment.address(), wire.SEGMENT_SIZE, size, self._head.address(), segment.fd)
        self._next_segment = number + 1
        self._kept.append((number, size, self.records))
        self._defined.clear()
        self.generation += 1
        self.state = wire.RECORDING
        self.write_head()

    def _make_room(self, size: int) -> None:
        """Remove this process's oldest segments until ``size`` more bytes fit; the newest one is always kept."""
        total = folder_bytes(self.folder) + size
        while total > self.max_bytes and len(self._kept) > 1:
            number, bytes_freed, before = self._kept.pop(0)
            try:
                os.unlink(os.path.join(self.folder, f"{self.name}.{number}.seg"))
            except FileNotFoundError:
                pass  # somebody removed it already
            total -= bytes_freed
            self._dropped_segments += 1
            self._dropped_records += self._kept[0][2] - before
        if total > self.max_bytes and not self._kept:
            raise RecorderStopped(f"the traces of other processes fill --max-bytes ({self.max_bytes})")

    # State.

    def write_head(self) -> None:
        """Bring the counters in the head up to date."""
        if self._head is None:
            return
        if self.fast is not None:
            (
                self.records,
                self._definitions,
                self.not_taken,
                self._warm_ns,
                self._warm,
                self._cold_ns,
                self._cold,
                self.step,
                inside,
                self.began_ns,
                self.size,
            ) = self.fast.counters()
            self.inside = bool(inside)
        reason = (self.stopped or "").encode("utf-8", "replace")[: wire.MAX_REASON]
        first = self._kept[0][0] if self._kept else 0
        head = wire.HEAD.pack(
            wire.HEAD_MAGIC,
            wire.VERSION,
            os.getpid(),
            self.state,
            self.records,
            self._definitions,
            self.step,
            self.every,
            self._dropped_records,
            self._dropped_segments,
            self.not_taken,
            first,
            self._next_segment,
            self._warm_ns,
            self._warm,
            self._cold_ns,
            self._cold,
            int(self.inside),
            self.began_ns,
            self.size & wire.UNKNOWN,
            *struct.unpack_from("<2Q", self._head.memory, HEAD_AT["mode_0"]),
            self.light_every,
            *(int(n) for n in self.spent),
            len(reason),
        )
        self._head.memory[: len(head)] = head
        if reason:
            self._head.memory[len(head) : len(head) + len(reason)] = reason

    def stop(self, reason: str) -> None:
        """Record nothing from now on, and leave ``reason`` in the head."""
        self.stopped = reason
        self.state = wire.STOPPED
        self.write_head()

    def abandon(self) -> None:
        """This is the child of a fork: the files stay the parent's, the first record opens new ones."""
        if self.fast is not None:
            self.fast.abandon()
        self.lock = threading.Lock()
        for mapping in (self._head, self._segment):
            if mapping is not None:
                mapping.close()
        self._head = self._segment = self._memory = None
        self._offset = self._end = self._next_segment = 0
        self._kept = []
        self._defined.clear()
        self.generation += 1
        self.records = self.not_taken = 0
        self._definitions = self._dropped_records = self._dropped_segments = 0
        self._warm_ns = self._warm = self._cold_ns = self._cold = 0
        self.inside = False
        self.spent = (0,) * 8
        self.state = wire.ARMED

    def end(self) -> None:
        """The process ends by itself."""
        if self.stopped is None:
            self.state = wire.ENDED
            self.write_head()


def folder_bytes(folder: str) -> int:
    """Bytes of all segments in ``folder``."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".seg"):
                try:
                    total += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue  # another process just removed it
    return total


def _mode_words(mode: str) -> tuple[int, int]:
    """A mode's name as the two counters of the head that hold it."""
    name = mode.encode("utf-8", "replace")[:16].ljust(16, b"\0")
    return int.from_bytes(name[:8], "little"), int.from_bytes(name[8:], "little")


def process_name(folder: str = "") -> str:
    """``<pid>-<start>``: the same for a process however often it asks, and never that of another.

    A program that replaced another by ``exec`` has its process id and start; where the other's files lie in ``folder``,
    it is ``<pid>-<start>-1``, and so on.
    """
    try:
        with open("/proc/self/stat", "rb") as file:
            start = int(file.read().rsplit(b")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        start = time.monotonic_ns()
    name = f"{os.getpid()}-{start}"
    if not folder or not os.path.exists(os.path.join(folder, name + ".head")):
        return name
    count = 1
    while os.path.exists(os.path.join(folder, f"{name}-{count}.head")):
        count += 1
    return f"{name}-{count}"
