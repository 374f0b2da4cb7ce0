"""What a signature says: the layout of a record's values, and those values once its integers are known."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from .observations import Enumerated, ListValue, ObjectValue, Opaque, TensorValue, Value
from .probe import wire

MAX_FIELDS = 20_000  # values of one record
SLOTTED = (wire.TENSOR, wire.FLAG, wire.ENUM, wire.LIST, wire.NESTED)
"""Kinds of fields that take a slot of the signature."""


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


class UnsetAt(NamedTuple):
    """A field that was None: its path, and the class that has it."""

    path: str
    cls: str | None
    field: str


def walk_unset(path: str, cls: str | None, field: str, value: Value) -> Iterator[UnsetAt]:
    """Every None in ``value``, which lies at ``path`` in ``field`` of ``cls``."""
    if value is None:
        yield UnsetAt(path, cls, field)
    elif isinstance(value, ObjectValue) and value.cls not in ("tuple", "list"):
        for name, inner in value.fields.items():
            yield from walk_unset(f"{path}.{name}", value.cls, name, inner)


class Signature:
    """A layout with its slots filled; together with a record's integers it gives the values."""

    __slots__ = ("_picks", "_tensors", "_unset", "_width", "layout", "slots")

    def __init__(self, layout: Layout, slots: tuple[object, ...]) -> None:
        self.layout = layout
        self.slots = slots
        self._tensors: tuple[TensorAt, ...] | None = None
        self._unset: tuple[UnsetAt, ...] | None = None
        self._picks: dict[tuple[str, ...], list[Pick]] = {}
        self._width: int | None = -1

    def tensors(self) -> tuple[TensorAt, ...]:
        """Every tensor in it, without addresses; they do not depend on a record's integers."""
        if self._tensors is None:
            found = (at for name, value in self._shape().items() for at in walk_tensors(name, None, name, value))
            self._tensors = tuple(
                at._replace(tensor=TensorValue(*msgspec.structs.astuple(at.tensor)[:4])) for at in found
            )
        return self._tensors

    def pick(self, ints: Sequence[int], wanted: tuple[str, ...]) -> dict[str, Value]:
        """Of the values only those whose names end in one of ``wanted``; passes over the others without making them.

        Objects are not among them. Integers that are missing end the picking.
        """
        program = self._picks.get(wanted)
        if program is None:
            program = self._picks[wanted] = self._program(wanted)
        found: dict[str, Value] = {}
        at = 0
        try:
            for name, kind, value in program:
                if kind == _CONSTANT:
                    found[name] = value
                elif kind == wire.INT:
                    found[name] = ints[at]
                    at += 1
                elif kind == wire.LIST:
                    count = ints[at]
                    if count >= 0:
                        found[name] = ListValue(count, tuple(ints[at + 1 : at + 1 + count]))
                        at += 1 + count
                    else:
                        found[name] = ListValue(-1 - count)
                        at = _after_elements(value, ints, at + 1, 0)
                elif isinstance(value, int):
                    at += value
                else:
                    at = _after_list(value, ints, at) if kind == _PASS_LIST else _after(value, ints, at, 0)
        except IndexError:
            return {}
        return found

    def _program(self, wanted: tuple[str, ...]) -> list[Pick]:
        """How to pass over the integers up to the last wanted value."""
        steps: list[Pick] = []
        last = 0
        slots = iter(self.slots)
        for name, kind, type_name in self.layout.fields:
            slot = next(slots) if kind in SLOTTED else None
            if name.endswith(wanted):
                if kind in (wire.INT, wire.LIST):
                    steps.append((name, kind, slot))
                else:
                    steps.append((name, _CONSTANT, _constant(kind, slot, type_name)))
                    if kind == wire.TENSOR and self.layout.pointers:
                        steps.append((name, _PASS, 1))
                    elif kind == wire.NESTED:
                        steps.append((name, _PASS, slot))
                last = len(steps)
            elif kind == wire.INT or (kind == wire.TENSOR and self.layout.pointers):
                steps.append((name, _PASS, 1))
            elif kind == wire.LIST:
                steps.append((name, _PASS_LIST, slot))
            elif kind == wire.NESTED and isinstance(slot, Signature):
                steps.append((name, _PASS, slot if slot.width is None else slot.width))
        return steps[:last]

    @property
    def width(self) -> int | None:
        """How many integers it takes; None where lists in it decide."""
        if self._width == -1:
            self._width = self._fixed_width(0)
        return self._width

    def _fixed_width(self, depth: int) -> int | None:
        total = 0
        slots = iter(self.slots)
        for _, kind, _ in self.layout.fields:
            slot = next(slots) if kind in SLOTTED else None
            if kind == wire.LIST or depth > _DEEPEST:
                return None
            total += kind == wire.INT or (kind == wire.TENSOR and self.layout.pointers)
            if kind == wire.NESTED and isinstance(slot, Signature):
                inner = slot._fixed_width(depth + 1)
                if inner is None:
                    return None
                total += inner
        return total

    def unset(self) -> tuple[UnsetAt, ...]:
        """Every field in it that was None."""
        if self._unset is None:
            found = (at for name, value in self._shape().items() for at in walk_unset(name, None, name, value))
            self._unset = tuple(found)
        return self._unset

    def _shape(self) -> dict[str, Value]:
        """The values without a record's integers."""
        try:
            return self._fields(itertools.repeat(-1), [MAX_FIELDS], 0)
        except _TooMuch:
            return {}

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


Pick = tuple[str, int, Any]
"""A step of passing over a record's integers: a value's name, what to do, and with what."""
_CONSTANT, _PASS, _PASS_LIST = 101, 102, 103
_DEEPEST = 8


def _constant(kind: int, slot: object, type_name: str) -> Value:
    if kind == wire.TENSOR:
        return slot if isinstance(slot, TensorValue) else Opaque("damaged")
    if kind == wire.FLAG:
        return slot == 1
    if kind == wire.ENUM:
        return Enumerated(type_name, str(slot))
    if kind == wire.NONE:
        return Opaque("unread") if type_name == "unread" else None
    return Opaque(type_name)


def _after(signature: object, ints: Sequence[int], at: int, depth: int) -> int:
    """Where the integers of an object end that begin at ``at``. Raises ``IndexError`` where they are missing."""
    if not isinstance(signature, Signature):
        return at
    if signature.width is not None:
        return at + signature.width
    if depth > _DEEPEST:
        raise IndexError
    slots = iter(signature.slots)
    for _, kind, _ in signature.layout.fields:
        slot = next(slots) if kind in SLOTTED else None
        if kind == wire.INT or (kind == wire.TENSOR and signature.layout.pointers):
            at += 1
        elif kind == wire.LIST:
            at = _after_list(slot, ints, at, depth)
        elif kind == wire.NESTED:
            at = _after(slot, ints, at, depth + 1)
    return at


def _after_list(nested: object, ints: Sequence[int], at: int, depth: int = 0) -> int:
    count = ints[at]
    return at + 1 + count if count >= 0 else _after_elements(nested, ints, at + 1, depth)


def _after_elements(nested: object, ints: Sequence[int], at: int, depth: int) -> int:
    return _after(nested, ints, at, depth + 1) if isinstance(nested, Signature) else at


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
