"""Reads trace files of any state: growing, truncated, damaged or hostile.

Every complete record is found again, with what was lost counted. Nothing read decides on a path, and no number read
decides on an allocation beyond the file's own size.
"""

from __future__ import annotations

import errno
import itertools
import json
import mmap
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from .observations import Enumerated, ListValue, ObjectValue, Opaque, TensorValue, Value
from .probe import wire

MAX_FILE = 1 << 30  # of one segment; what lies beyond is counted as lost
MAX_FIELDS = 20_000  # values of one record
_CHUNK = 1 << 16


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
    reason: str

    @property
    def ns_per_record(self) -> float | None:
        """What the recorder measured of itself for a record with nothing new in it; None before it has."""
        return self.warm_ns / self.warm if self.warm else None


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

    def values(self) -> dict[str, Value]:
        """What was recorded, by selector."""
        return {} if self.signature is None else self.signature.decode(self.ints)


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


class Layout(msgspec.Struct, frozen=True):
    """The fields of a value: name, kind (``wire.FIELD_KINDS``) and type."""

    title: str
    pointers: bool
    fields: tuple[tuple[str, int, str], ...]


class TensorAt(NamedTuple):
    """A tensor in a record's values: its path, and the class and field that hold it."""

    path: str
    cls: str | None
    field: str
    tensor: TensorValue


def walk_tensors(path: str, cls: str | None, field: str, value: Value) -> Iterator[TensorAt]:
    """Every tensor in ``value``, which lies at ``path`` in ``field`` of ``cls``."""
    if isinstance(value, TensorValue):
        yield TensorAt(path, cls, field, value)
    elif isinstance(value, ListValue) and value.elements is not None:
        yield from walk_tensors(path, cls, field, value.elements)
    elif isinstance(value, ObjectValue):
        sequence = value.cls in ("tuple", "list")
        for name, inner in value.fields.items():
            if sequence:
                yield from walk_tensors(f"{path}[{name}]", cls, f"{field}[{name}]", inner)
            else:
                yield from walk_tensors(f"{path}.{name}", value.cls, name, inner)


class Signature:
    """A layout with its slots filled; together with a record's integers it gives the values."""

    __slots__ = ("_tensors", "layout", "slots")

    def __init__(self, layout: Layout, slots: tuple[object, ...]) -> None:
        self.layout = layout
        self.slots = slots
        self._tensors: tuple[TensorAt, ...] | None = None

    def tensors(self) -> tuple[TensorAt, ...]:
        """Every tensor in it, without addresses; they do not depend on a record's integers."""
        if self._tensors is None:
            try:
                fields = self._fields(itertools.repeat(-1), [MAX_FIELDS], 0)
            except _TooMuch:
                fields = {}
            found = (at for name, value in fields.items() for at in walk_tensors(name, None, name, value))
            self._tensors = tuple(
                at._replace(tensor=TensorValue(*msgspec.structs.astuple(at.tensor)[:4])) for at in found
            )
        return self._tensors

    def decode(self, ints: Sequence[int]) -> dict[str, Value]:
        """The values by name. Integers that are missing (a damaged definition) end the decoding."""
        numbers = iter(ints)
        budget = [MAX_FIELDS]
        try:
            return self._fields(numbers, budget, 0)
        except (StopIteration, _TooMuch):
            return {}

    def _fields(self, ints: Iterator[int], budget: list[int], depth: int) -> dict[str, Value]:
        if depth > 8:
            raise _TooMuch
        fields: dict[str, Value] = {}
        slots = iter(self.slots)
        for name, kind, type_name in self.layout.fields:
            budget[0] -= 1
            if budget[0] < 0:
                raise _TooMuch
            value: Value
            if kind == wire.NONE:
                value = Opaque("unread") if type_name == "unread" else None
            elif kind == wire.TENSOR:
                tensor = next(slots)
                value = tensor if isinstance(tensor, TensorValue) else Opaque("damaged")
                if self.layout.pointers:
                    address = _next(ints)
                    if isinstance(value, TensorValue):
                        value = TensorValue(value.shape, value.stride, value.dtype, value.device, address)
            elif kind == wire.INT:
                value = _next(ints)
            elif kind == wire.FLAG:
                value = next(slots) == 1
            elif kind == wire.ENUM:
                value = Enumerated(type_name, str(next(slots)))
            elif kind == wire.LIST:
                value = _list(next(slots), ints, budget, depth)
            elif kind == wire.NESTED:
                nested = next(slots)
                if isinstance(nested, Signature):
                    value = ObjectValue(nested.layout.title, nested._fields(ints, budget, depth + 1))
                else:
                    value = Opaque(type_name)
            else:
                value = Opaque(type_name)
            fields[name] = value
        return fields


class _TooMuch(Exception):
    """A record of a shape that no recorder writes."""


def _next(ints: Iterator[int]) -> int:
    try:
        return next(ints)
    except StopIteration:
        raise _TooMuch from None


def _list(nested: object, ints: Iterator[int], budget: list[int], depth: int) -> ListValue:
    count = _next(ints)
    if count >= 0:
        if count > wire.MAX_INTS:
            raise _TooMuch
        return ListValue(count, tuple(_next(ints) for _ in range(count)))
    elements = None
    if isinstance(nested, Signature):
        elements = ObjectValue(nested.layout.title, nested._fields(ints, budget, depth + 1))
    return ListValue(-1 - count, None, elements)


def read_head(path: Path) -> Head:
    """The head of a process. Raises ``ValueError`` if it is none, ``OSError`` if it cannot be read."""
    with _open(path) as file:
        data = file.read(wire.HEAD_SIZE)
    if len(data) < wire.HEAD.size or data[:8] != wire.HEAD_MAGIC:
        raise ValueError(f"{path.name} is not the head of a trace")
    _, version, pid, *counters = wire.HEAD.unpack_from(data)
    if version != wire.VERSION:
        raise ValueError(f"{path.name} has version {version}, this sgltrace reads version {wire.VERSION}")
    held = dict(zip(wire.HEAD_COUNTERS, counters, strict=True))
    state, length = held.pop("state"), held.pop("reason")
    return Head(
        pid=pid,
        state=wire.STATE_NAMES[state] if state < len(wire.STATE_NAMES) else "damaged",
        reason=data[wire.HEAD.size : wire.HEAD.size + min(length, wire.MAX_REASON)].decode("utf-8", "replace"),
        **held,
    )


def read_segment(path: Path, loss: Loss) -> Iterator[Record]:
    """The complete records of a segment, in order; what is not one is counted in ``loss``. Raises ``OSError``."""
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return
        usable = min(size, MAX_FILE)
        loss.bytes += size - usable
        with mmap.mmap(file.fileno(), usable, access=mmap.ACCESS_READ) as memory:
            declared = _declared_size(memory, path, loss)
            if declared is not None and declared > size:
                loss.gaps += 1
                loss.why.append(f"{path.name}: truncated, {declared - size} of {declared} bytes are gone")
            yield from _records(memory, usable, loss)


def complete_end(path: Path, loss: Loss) -> int | None:
    """Where the unused rest of an undamaged segment begins, rounded up to a record; None if it is damaged."""
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not wire.SEGMENT_SIZE <= size <= MAX_FILE:
            return None
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as memory:
            if memory[: len(wire.SEGMENT_MAGIC)] != wire.SEGMENT_MAGIC:
                return None
            offset = wire.SEGMENT_SIZE
            while offset + wire.RECORD_SIZE <= size and (length := _complete_length(memory, offset, size)):
                offset += length
            rest = memory[offset : offset + wire.RECORD_SIZE + wire.MAX_DEFINITION]
            if rest.count(0) == len(rest) and _resume(memory, offset, size, _CHUNK)[0] == size:
                return offset
    return None


def _declared_size(memory: mmap.mmap, path: Path, loss: Loss) -> int | None:
    if len(memory) < wire.SEGMENT.size:
        return None
    if not any(memory[: wire.SEGMENT_SIZE]):
        return None  # the process ended before it had written anything here
    magic, version, _, _, size, *_ = wire.SEGMENT.unpack_from(memory)
    if magic != wire.SEGMENT_MAGIC or version != wire.VERSION:
        loss.gaps += 1
        loss.why.append(f"{path.name}: damaged header")
        return None
    return int(size)


def _records(memory: mmap.mmap, size: int, loss: Loss) -> Iterator[Record]:
    definitions = _Definitions()
    offset = wire.SEGMENT_SIZE
    effort = 4 * size + _CHUNK  # bytes of CRC spent on finding the way again in a damaged file
    unpack = wire.RECORD.unpack_from
    while offset + wire.RECORD_SIZE <= size:
        length = _complete_length(memory, offset, size)
        if length == 0:
            found, effort = _resume(memory, offset + 8, size, effort)
            _count_gap(memory, offset, found, size, loss)
            offset = found
            continue
        _, _, time_ns, step, number, site, kind, phase, thread, count = unpack(memory, offset)
        start = offset + wire.RECORD_SIZE
        if kind in wire.DEFINITIONS:
            definitions.add(number, kind, memory[start : min(start + step, offset + length)])
        elif kind in wire.KIND_NAMES and phase < len(wire.PHASE_NAMES) and 8 * count == length - wire.RECORD_SIZE:
            signature = definitions.signature(number) if number else None
            if number and signature is None:
                loss.undefined += 1
            ints = tuple(memoryview(memory[start : start + 8 * count]).cast("q")) if count else ()
            yield Record(time_ns, step, site, kind, phase, thread, signature, ints)
        else:
            loss.bytes += length
            loss.gaps += 1
        offset += length


def _complete_length(memory: mmap.mmap, offset: int, size: int) -> int:
    """The length of the complete record at ``offset``; 0 if there is none."""
    commit, length = wire.RECORD.unpack_from(memory, offset)[:2]
    if commit == 0 or length < wire.RECORD_SIZE or length % 8 or offset + length > size:
        return 0
    if length > wire.RECORD_SIZE + max(wire.MAX_DEFINITION, 8 * wire.MAX_INTS) + 8:
        return 0
    body = memory[offset + 4 : offset + length]
    return length if (crc32(body) or 1) == commit else 0


def _resume(memory: mmap.mmap, offset: int, size: int, effort: int) -> tuple[int, int]:
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


def _count_gap(memory: mmap.mmap, offset: int, found: int, size: int, loss: Loss) -> None:
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


class _Definitions:
    """The definitions of one segment so far. What does not fit together is left out."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._layouts: dict[int, Layout] = {}
        self._tensors: dict[int, TensorValue] = {}
        self._signatures: dict[int, Signature] = {}

    def signature(self, number: int) -> Signature | None:
        return self._signatures.get(number)

    def add(self, number: int, kind: int, payload: bytes) -> None:
        if kind == wire.DEFINE_TEXT:
            self._texts[number] = payload.decode("utf-8", "replace")
        elif kind == wire.DEFINE_LAYOUT:
            layout = _layout(payload)
            if layout is not None:
                self._layouts[number] = layout
        elif kind == wire.DEFINE_TENSOR:
            tensor = self._tensor(payload)
            if tensor is not None:
                self._tensors[number] = tensor
        else:
            signature = self._new_signature(payload)
            if signature is not None:
                self._signatures[number] = signature

    def _tensor(self, payload: bytes) -> TensorValue | None:
        if len(payload) < wire.TENSOR_HEAD.size:
            return None
        dtype, device, dimensions = wire.TENSOR_HEAD.unpack_from(payload)
        numbers = payload[wire.TENSOR_HEAD.size :]
        if dimensions > 64 or len(numbers) != 16 * dimensions:
            return None
        sizes = tuple(memoryview(numbers).cast("q"))
        stride = sizes[dimensions:]
        return TensorValue(
            sizes[:dimensions],
            None if -1 in stride else stride,
            self._texts.get(dtype, "?"),
            self._texts.get(device, "?"),
        )

    def _new_signature(self, payload: bytes) -> Signature | None:
        if len(payload) < 4 or len(payload) % 4:
            return None
        number, *slots = memoryview(payload).cast("I")
        layout = self._layouts.get(number)
        if layout is None:
            return None
        filled: list[object] = []
        kinds = [kind for _, kind, _ in layout.fields if kind in _SLOTTED]
        if len(kinds) != len(slots):
            return None
        for kind, slot in zip(kinds, slots, strict=True):
            if kind == wire.TENSOR:
                filled.append(self._tensors.get(slot))
            elif kind == wire.FLAG:
                filled.append(slot)
            elif kind == wire.ENUM:
                filled.append(self._texts.get(slot, "?"))
            else:
                filled.append(self._signatures.get(slot))
        return Signature(layout, tuple(filled))


_SLOTTED = (wire.TENSOR, wire.FLAG, wire.ENUM, wire.LIST, wire.NESTED)


def _layout(payload: bytes) -> Layout | None:
    try:
        title, pointers, fields = json.loads(payload)
        checked = tuple((str(name), int(kind), str(type_name)) for name, kind, type_name in fields)
    except (ValueError, TypeError, RecursionError):
        return None
    return Layout(str(title), bool(pointers), checked)


def _open(path: Path) -> BinaryIO:
    """Open a regular file for reading; a link is not followed. Raises ``OSError``."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(fd, "rb")
