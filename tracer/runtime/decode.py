"""Reads trace files of any state: growing, truncated, damaged or hostile.

Every complete record is found again, with what was lost counted. Nothing read decides on a path, and no number read
decides on an allocation beyond the file's own size.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec

from .definitions import Definitions, Interned
from .observations import Value
from .probe import wire
from .signatures import Signature

READ = 16 << 20  # a segment is a sixteenth of that at most; a larger file is one that somebody joined
MAX_FILE = 1 << 30  # of one segment; what lies beyond is counted as lost
_CHUNK = 1 << 16
_PHASES = len(wire.PHASE_NAMES)


class Head(msgspec.Struct, kw_only=True):
    """The counters of one process, as ``wire.HEAD_COUNTERS``."""

    pid: int
    state: str
    records: int
    definitions: int
    last_step: int
    every: int
    dropped_records: int
    dropped_segments: int
    not_taken: int
    first_segment: int
    next_segment: int
    warm_ns: int
    warm: int
    cold_ns: int
    cold: int
    inside: bool = False
    """Whether the last step had not returned."""
    began_ns: int = 0
    """When the last step began; monotonic."""
    size: int = -1
    """Requests in the last step's batch."""
    mode: str = ""
    """The last step's forward mode."""
    light_every: int = 1
    full_ns: int = 0
    full_steps: int = 0
    light_ns: int = 0
    light_steps: int = 0
    counted_ns: int = 0
    counted_steps: int = 0
    busy_ns: int = 0
    busy_steps: int = 0
    reason: str

    @property
    def ns_per_record(self) -> float | None:
        """What the recorder measured of itself for a record with nothing new in it; None before it has."""
        return self.warm_ns / self.warm if self.warm else None

    @property
    def share(self) -> float | None:
        """The part of the steps' time that the recorder took, by its own account; None before it has one."""
        steps = self.full_steps + self.light_steps + self.counted_steps
        if not self.busy_ns or not self.busy_steps or not steps:
            return None
        spent = (self.full_ns + self.light_ns + self.counted_ns) / steps
        return spent / (self.busy_ns / self.busy_steps)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. ``signature`` is None where none was recorded or its definition is lost."""

    time_ns: int
    step: int
    site: int
    kind: int
    phase: int
    thread: int
    signature: Signature | None
    ints: tuple[int, ...]
    mode: str = ""
    """The forward mode, of a ``wire.STEP``."""

    def values(self) -> dict[str, Value]:
        """What was recorded, by selector."""
        return {} if self.signature is None else self.signature.decode(self.ints)

    def pick(self, wanted: tuple[str, ...]) -> dict[str, Value]:
        """Of what was recorded only the values whose selectors end in one of ``wanted``, which is much faster."""
        return {} if self.signature is None else self.signature.pick(self.ints, wanted)


class Loss(msgspec.Struct):
    """What could not be read."""

    bytes: int = 0
    gaps: int = 0
    unfinished: int = 0
    """Records that the process was in the middle of when it ended."""
    undefined: int = 0
    """Records whose signature's definition is lost: their time and place stand, their values do not."""
    missing_segments: int = 0
    unusable_files: int = 0
    why: list[str] = []

    def add(self, other: Loss) -> None:
        """Count ``other`` in."""
        self.bytes += other.bytes
        self.gaps += other.gaps
        self.unfinished += other.unfinished
        self.undefined += other.undefined
        self.missing_segments += other.missing_segments
        self.unusable_files += other.unusable_files
        self.why += other.why

    @property
    def any(self) -> bool:
        """Whether anything but an unfinished record was lost."""
        return bool(self.bytes or self.gaps or self.undefined or self.missing_segments or self.unusable_files)


Memory = mmap.mmap | bytes


@contextlib.contextmanager
def _held(file: BinaryIO, size: int) -> Iterator[Memory]:
    """A file's bytes: read where it is no larger than what a recorder writes, mapped where it is.

    A process that ends gives back the unused rest of its segment. Who had it mapped would die of that (SIGBUS).
    """
    if size <= READ:
        yield file.read(size)
    else:
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as memory:
            yield memory


def read_head(path: Path) -> Head:
    """The head of a process. Raises ``ValueError`` if it is none, ``OSError`` if it cannot be read."""
    with open_regular(path) as file:
        data = file.read(wire.HEAD_SIZE)
    if len(data) < wire.HEAD.size or data[:8] != wire.HEAD_MAGIC:
        raise ValueError(f"{path.name} is not the head of a trace")
    version = int.from_bytes(data[8:12], "little")
    if version not in wire.READABLE:
        raise ValueError(f"{path.name} has version {version}, this sgltrace reads version {wire.VERSION}")
    layout, names = (wire.HEAD_1, wire.HEAD_COUNTERS_1) if version == 1 else (wire.HEAD, wire.HEAD_COUNTERS)
    _, _, pid, *counters = layout.unpack_from(data)
    held = dict(zip(names, counters, strict=True))
    state, length = held.pop("state"), held.pop("reason")
    mode = b"".join(held.pop(f"mode_{n}", 0).to_bytes(8, "little") for n in range(2))
    size = held.pop("size", wire.UNKNOWN)
    return Head(
        pid=pid,
        state=wire.STATE_NAMES[state] if state < len(wire.STATE_NAMES) else "damaged",
        reason=data[layout.size : layout.size + min(length, wire.MAX_REASON)].decode("utf-8", "replace"),
        mode=mode.rstrip(b"\0").decode("utf-8", "replace"),
        size=-1 if size >= wire.UNKNOWN else size,
        inside=bool(held.pop("inside", 0)),
        **held,
    )


def read_segment(
    path: Path, loss: Loss, sites: Container[int] | None = None, interned: Interned | None = None, shift_ns: int = 0
) -> Iterator[Record]:
    """The complete records of a segment, in order; what is not one is counted in ``loss``. Raises ``OSError``.

    ``sites`` leaves out the calls of other sites, which are checked all the same; ``interned`` is shared by segments
    whose signatures are to be the same objects; ``shift_ns`` is added to every time.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return
        usable = min(size, MAX_FILE)
        loss.bytes += size - usable
        with _held(file, usable) as memory:
            usable = len(memory)
            declared = _declared_size(memory, path, loss)
            if declared is not None and declared > size:
                loss.gaps += 1
                loss.why.append(f"{path.name}: truncated, {declared - size} of {declared} bytes are gone")
            yield from _records(memory, usable, loss, sites, Definitions(interned), shift_ns)


def complete_end(path: Path, loss: Loss) -> int | None:
    """Where the unused rest of an undamaged segment begins, rounded up to a record; None if it is damaged."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not wire.SEGMENT_SIZE <= size <= MAX_FILE:
            return None
        with _held(file, size) as memory:
            size = len(memory)
            if memory[: len(wire.SEGMENT_MAGIC)] != wire.SEGMENT_MAGIC:
                return None
            offset = wire.SEGMENT_SIZE
            while offset + wire.RECORD_SIZE <= size and (length := _complete_length(memory, offset, size)):
                offset += length
            rest = memory[offset : offset + wire.RECORD_SIZE + wire.MAX_DEFINITION]
            if rest.count(0) == len(rest) and _resume(memory, offset, size, _CHUNK)[0] == size:
                return offset
    return None


def _declared_size(memory: Memory, path: Path, loss: Loss) -> int | None:
    if len(memory) < wire.SEGMENT.size:
        return None
    if not any(memory[: wire.SEGMENT_SIZE]):
        return None  # the process ended before it had written anything here
    magic, version, _, _, size, *_ = wire.SEGMENT.unpack_from(memory)
    if magic != wire.SEGMENT_MAGIC or version not in wire.READABLE:
        loss.gaps += 1
        loss.why.append(f"{path.name}: damaged header")
        return None
    return int(size)


def _records(
    memory: Memory,
    size: int,
    loss: Loss,
    sites: Container[int] | None,
    definitions: Definitions,
    shift_ns: int,
) -> Iterator[Record]:
    offset = wire.SEGMENT_SIZE
    effort = 4 * size + _CHUNK  # bytes of CRC spent on finding the way again in a damaged file
    unpack, head = wire.RECORD.unpack_from, wire.RECORD_SIZE
    longest = head + max(wire.MAX_DEFINITION, 8 * wire.MAX_INTS) + 8
    last = size - head
    while offset <= last:
        commit, length, time_ns, step, number, site, kind, phase, thread, count = unpack(memory, offset)
        # The same test as `_complete_length`, without the call: this loop sees every record there is.
        if (
            commit == 0
            or length < head
            or length & 7
            or length > longest
            or offset + length > size
            or (crc32(memory[offset + 4 : offset + length]) or 1) != commit
        ):
            found, effort = _resume(memory, offset + 8, size, effort)
            _count_gap(memory, offset, found, size, loss)
            offset = found
            continue
        start = offset + head
        if kind in wire.DEFINITIONS:
            definitions.add(number, kind, memory[start : min(start + step, offset + length)])
        elif kind in wire.KIND_NAMES and phase < _PHASES and 8 * count == length - head:
            if kind == wire.STEP:
                ints = tuple(memoryview(memory[start : start + 8 * count]).cast("q"))
                mode = definitions.text(number)
                yield Record(time_ns + shift_ns, step, site, kind, phase, thread, None, ints, mode)
            elif sites is None or site in sites or kind > wire.RAISE:
                signature = definitions.signature(number) if number else None
                if number and signature is None:
                    loss.undefined += 1
                ints = tuple(memoryview(memory[start : start + 8 * count]).cast("q")) if count else ()
                yield Record(time_ns + shift_ns, step, site, kind, phase, thread, signature, ints)
            elif number and definitions.signature(number) is None:
                loss.undefined += 1
        else:
            loss.bytes += length
            loss.gaps += 1
        offset += length


def _complete_length(memory: Memory, offset: int, size: int) -> int:
    """The length of the complete record at ``offset``; 0 if there is none."""
    commit, length = wire.RECORD.unpack_from(memory, offset)[:2]
    if commit == 0 or length < wire.RECORD_SIZE or length % 8 or offset + length > size:
        return 0
    if length > wire.RECORD_SIZE + max(wire.MAX_DEFINITION, 8 * wire.MAX_INTS) + 8:
        return 0
    body = memory[offset + 4 : offset + length]
    return length if (crc32(body) or 1) == commit else 0


def _resume(memory: Memory, offset: int, size: int, effort: int) -> tuple[int, int]:
    """Where the next complete record begins, ``size`` if there is none, and the effort that is left."""
    while offset + wire.RECORD_SIZE <= size:
        if offset % _CHUNK == 0:
            chunk = memory[offset : offset + _CHUNK]
            if chunk.count(0) == len(chunk):
                offset += len(chunk)
                continue
        commit, length = wire.RECORD.unpack_from(memory, offset)[:2]
        if commit and wire.RECORD_SIZE <= length <= size - offset and length % 8 == 0:
            if _complete_length(memory, offset, size):
                return offset, effort
            effort -= min(length, wire.MAX_DEFINITION)
            if effort < 0:
                return size, 0
        offset += 8
    return size, effort


def _count_gap(memory: Memory, offset: int, found: int, size: int, loss: Loss) -> None:
    """Count what lies between two complete records; the unused rest of a segment is zero and no loss."""
    lost = 0
    first = memory[offset : min(offset + 8, size)]
    for at in range(offset, found, _CHUNK):
        chunk = memory[at : min(at + _CHUNK, found)]
        lost += len(chunk) - chunk.count(0)
    if lost == 0 and found >= size:
        return
    if found >= size and first[:4] == b"\0\0\0\0" and lost <= wire.MAX_DEFINITION:
        loss.unfinished += 1
        return
    loss.bytes += found - offset if found < size else lost
    loss.gaps += 1


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a link is not followed. Raises ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "rb")
