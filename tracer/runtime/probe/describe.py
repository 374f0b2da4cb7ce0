"""Turns arguments, attributes and results into interned signatures and a few integers.

Nothing here touches a tensor's values or the device: shape, stride, dtype, device and (on request) the address are
metadata that PyTorch holds on the host. Attributes are read from ``__dict__`` or slots; a property is never run.
"""

from __future__ import annotations

import enum
import fnmatch
import json
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import wire
from .recorder import Recorder

MAX_DEPTH = 3  # a record's values, their fields, and the tracked objects in those
MAX_LIST = 256  # longer lists are recorded by their length
MAX_SEQUENCE = 16  # tensors of a tuple or list that are looked at
MAX_HELD = 50_000  # definitions held in memory before they are forgotten
_INT_RANGE = (-(1 << 63), (1 << 63) - 1)
_ONLY_INTS = {int}
_ONLY_LISTS = {list}


class Unread:
    """Stands for an attribute that is not there, or that only a property could give."""


UNREAD = Unread()


def read_attribute(owner: Any, name: str) -> Any:
    """The attribute as it is stored; ``UNREAD`` for a property, a method, or nothing at all."""
    if isinstance(owner, type):
        return next((vars(cls)[name] for cls in owner.__mro__ if name in vars(cls)), UNREAD)
    try:
        stored = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        stored = {}
    if name in stored:
        return stored[name]
    for cls in type(owner).__mro__:
        if name in cls.__dict__:
            value = cls.__dict__[name]
            if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                try:
                    return value.__get__(owner)
                except AttributeError:
                    return UNREAD
            return UNREAD if hasattr(type(value), "__get__") else value
    return UNREAD


class Layout:
    """What a set of named values is made of, and how to read those that are recorded."""

    __slots__ = ("number", "steps")

    def __init__(self, number: int, steps: tuple[tuple[int, int, bool], ...]) -> None:
        self.number = number
        self.steps = steps


class Describer:
    """Describes values to a recorder.

    ``tracked`` are patterns of class names (subclasses count) whose fields are recorded;
    ``host_values`` are patterns of names whose lists of int are recorded with their values, other lists only with
    their length; ``not_followed`` are fields of tracked objects whose own fields are not recorded.
    """

    def __init__(
        self,
        recorder: Recorder,
        tracked: Iterable[str],
        host_values: Sequence[str],
        pointers: bool,
        not_followed: Iterable[str] = (),
    ) -> None:
        self.recorder = recorder
        self.tracked = tuple(tracked)
        self.host_values = tuple(host_values)
        self.pointers = pointers
        self.not_followed = frozenset(not_followed)
        self._texts: dict[str, int] = {}
        self._layouts: dict[Any, Layout] = {}
        self._tensors: dict[Any, int] = {}
        self._signatures: dict[Any, int] = {}
        self._classes: dict[type, Callable[[Any], tuple[Sequence[str], Sequence[Any]]] | None] = {}
        self._generation = 0

    def values(self, owner: str, names: tuple[str, ...], values: Sequence[Any], ints: list[int]) -> int:
        """The signature of ``values``, called ``names``; integers are appended to ``ints``.

        ``owner`` says whose they are: the name of a class or of a side of a site.
        """
        if self.recorder.definitions > MAX_HELD:
            self.forget()
        return self.describe(owner, names, values, ints, 0)

    def forget(self) -> None:
        """Start anew with definitions."""
        self.recorder.forget_definitions()
        for held in (self._texts, self._layouts, self._tensors, self._signatures):
            held.clear()

    def describe(
        self, owner: str | type, names: Sequence[str], values: Sequence[Any], ints: list[int], depth: int
    ) -> int:
        """As ``values``, at ``depth`` below the record."""
        layout = self.layout(owner, names, values)
        key: list[Any] = [layout]
        for index, kind, keep in layout.steps:
            value = values[index]
            if kind == wire.TENSOR:
                try:
                    key += (value.shape, value.stride(), value.dtype, value.device)
                except (RuntimeError, NotImplementedError):  # sparse, nested: no strides
                    key += (value.shape, (), value.dtype, value.device)
                if self.pointers:
                    ints.append(_address(value))
            elif kind == wire.INT:
                ints.append(value if _INT_RANGE[0] <= value <= _INT_RANGE[1] else _INT_RANGE[1])
            elif kind == wire.FLAG:
                key.append(value)
            elif kind == wire.ENUM:
                key.append(str(value._name_))
            elif kind == wire.LIST:
                key.append(self.listed(value, ints, keep, depth))
            else:
                key.append(self.nested(value, ints, depth + 1))
        signature = self._signatures.get(tuple(key))
        if signature is None:
            signature = self._signatures[tuple(key)] = self._new_signature(layout, key)
        return signature

    def layout(self, owner: str | type, names: Sequence[str], values: Sequence[Any]) -> Layout:
        """The layout of these values; equal for equal owner, names and types."""
        shape = (owner, *names, *map(type, values))
        layout = self._layouts.get(shape)
        if layout is None:
            layout = self._layouts[shape] = self._new_layout(owner, names, values)
        return layout

    def nested(self, value: Any, ints: list[int], depth: int) -> int:
        """The signature of a tuple or a tracked object; 0 where it lies too deep."""
        if depth > MAX_DEPTH:
            return 0
        if type(value) is tuple:
            return self._sequence(value, ints, depth)
        fields = self._classes[type(value)]
        assert fields is not None
        names, values = fields(value)
        return self.describe(type(value), names, values, ints, depth)

    def listed(self, value: list[Any], ints: list[int], keep: bool, depth: int) -> int:
        """Append a list's length or integers to ``ints``; the signature of its tensors, 0 where it has none."""
        count = len(value)
        if keep and count <= MAX_LIST:
            kinds = set(map(type, value))
            if not kinds or kinds == _ONLY_INTS:
                ints.append(count)
                ints += value
                return 0
        if 0 < count <= MAX_LIST and type(value[0]) is list and set(map(type, value)) == _ONLY_LISTS:
            ints.append(count)  # one list for each request: how long each is
            ints += map(len, value)
            return 0
        ints.append(-1 - count)
        if count and depth < MAX_DEPTH and self._is_recorded(value[0]):
            return self._sequence(value, ints, depth + 1)
        return 0

    def _sequence(self, value: Sequence[Any], ints: list[int], depth: int) -> int:
        values = value[:MAX_SEQUENCE]
        return self.describe(type(value).__name__, ORDINALS[: len(values)], values, ints, depth)

    def _is_recorded(self, value: Any) -> bool:
        return self._kind(type(value)) in (wire.TENSOR, wire.NESTED)

    # What is seen for the first time.

    def _kind(self, cls: type) -> int:
        if cls is type(None) or cls is Unread:
            return wire.NONE
        if cls in _tensor_types():
            return wire.TENSOR
        if cls is bool:
            return wire.FLAG
        if issubclass(cls, enum.Enum):
            return wire.ENUM
        if cls is int:
            return wire.INT
        if cls is list:
            return wire.LIST
        if cls is tuple:
            return wire.NESTED
        if cls not in self._classes:
            self._classes[cls] = self._reader(cls)
        return wire.NESTED if self._classes[cls] is not None else wire.OTHER

    def _reader(self, cls: type) -> Callable[[Any], tuple[Sequence[str], Sequence[Any]]] | None:
        """How to read the fields of a tracked class; None if it is not tracked."""
        if not any(fnmatch.fnmatchcase(c.__name__, pattern) for c in cls.__mro__ for pattern in self.tracked):
            return None
        if issubclass(cls, tuple):
            ordinals = tuple(getattr(cls, "_fields", ()))
            return lambda owner: (ordinals, owner)
        if cls.__dictoffset__:
            return _read_dict
        names = tuple(
            name
            for c in reversed(cls.__mro__)
            for name, member in vars(c).items()
            if isinstance(member, types.MemberDescriptorType) and not name.startswith("__")
        )
        return lambda owner: (names, [getattr(owner, name, UNREAD) for name in names])

    def _new_layout(self, owner: str | type, names: Sequence[str], values: Sequence[Any]) -> Layout:
        fields = []
        steps = []
        for index, (name, value) in enumerate(zip(names, values, strict=True)):
            kind = self._kind(type(value))
            if kind == wire.NESTED and name in self.not_followed:
                kind = wire.OTHER
            keep = kind == wire.LIST and any(fnmatch.fnmatchcase(name, p) for p in self.host_values)
            if kind not in (wire.NONE, wire.OTHER):
                steps.append((index, kind, keep))
            fields.append([name, kind, "unread" if value is UNREAD else _type_name(type(value))])
        title = owner if isinstance(owner, str) else _type_name(owner)
        payload = _layout_payload(title, fields, self.pointers)
        return Layout(self.recorder.new_definition(wire.DEFINE_LAYOUT, payload), tuple(steps))

    def _new_signature(self, layout: Layout, key: list[Any]) -> int:
        slots: list[int] = []
        at = 1
        for _, kind, _ in layout.steps:
            if kind == wire.TENSOR:
                slots.append(self._tensor(*key[at : at + 4]))
                at += 4
            elif kind == wire.FLAG:
                slots.append(int(key[at]))
                at += 1
            elif kind == wire.ENUM:
                slots.append(self.text(key[at]))
                at += 1
            elif kind in (wire.LIST, wire.NESTED):
                slots.append(key[at])
                at += 1
        needs = [layout.number]
        steps = [kind for _, kind, _ in layout.steps if kind != wire.INT]
        needs += [slot for slot, kind in zip(slots, steps, strict=True) if kind != wire.FLAG and slot]
        payload = b"".join(number.to_bytes(4, "little") for number in (layout.number, *slots))
        return self.recorder.new_definition(wire.DEFINE_SIGNATURE, payload, tuple(needs))

    def _tensor(self, shape: Sequence[int], stride: Sequence[int], dtype: Any, device: Any) -> int:
        key = (tuple(shape), tuple(stride), dtype, device)
        number = self._tensors.get(key)
        if number is None:
            texts = self.text(str(dtype).removeprefix("torch.")), self.text(str(device))
            head = wire.TENSOR_HEAD.pack(*texts, len(shape))
            sizes = [*shape, *(stride or [-1] * len(shape))]
            payload = head + b"".join(int(n).to_bytes(8, "little", signed=True) for n in sizes)
            number = self._tensors[key] = self.recorder.new_definition(wire.DEFINE_TENSOR, payload, texts)
        return number

    def text(self, text: str) -> int:
        """The id of ``text``."""
        number = self._texts.get(text)
        if number is None:
            payload = text.encode("utf-8", "replace")[:4096]
            number = self._texts[text] = self.recorder.new_definition(wire.DEFINE_TEXT, payload)
        return number


ORDINALS = tuple(str(n) for n in range(MAX_SEQUENCE))


def _read_dict(owner: Any) -> tuple[Sequence[str], Sequence[Any]]:
    fields = owner.__dict__
    return tuple(fields), tuple(fields.values())


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}:{cls.__qualname__}"


def _layout_payload(title: str, fields: list[list[Any]], pointers: bool) -> bytes:
    payload = json.dumps([title, int(pointers), fields], separators=(",", ":")).encode()
    if len(payload) <= wire.MAX_DEFINITION:
        return payload
    short = [[name[:80], kind, ""] for name, kind, _ in fields]
    return json.dumps([title[:80], int(pointers), short], separators=(",", ":")).encode()


def _tensor_types() -> tuple[type, ...]:
    """``torch.Tensor`` and ``Parameter`` themselves: a subclass may run Python when its shape is asked for."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return ()
    parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
    return (torch.Tensor,) if parameter is None else (torch.Tensor, parameter)


def _address(tensor: Any) -> int:
    """Where the tensor's first element lies; 0 where it has no storage. Never makes a lazy copy real."""
    torch: Any = sys.modules["torch"]
    try:
        return int(torch._C._data_address(tensor))
    except (AttributeError, RuntimeError):
        return 0
