"""The definitions of a segment: what its records' signatures are made of."""

from __future__ import annotations

import json

from .observations import TensorValue
from .probe import wire
from .signatures import SLOTTED, Layout, Signature

Interned = dict[tuple[Layout, tuple[object, ...]], Signature]
"""Signatures by what they say. Each segment defines its own; those that say the same are made one object by it."""


class Definitions:
    """The definitions of one segment so far. What does not fit together is left out."""

    def __init__(self, interned: Interned | None = None) -> None:
        self._interned: Interned = {} if interned is None else interned
        self._texts: dict[int, str] = {}
        self._layouts: dict[int, Layout] = {}
        self._tensors: dict[int, TensorValue] = {}
        self._signatures: dict[int, Signature] = {}

    def signature(self, number: int) -> Signature | None:
        """The signature of that number, None if it is not defined."""
        return self._signatures.get(number)

    def text(self, number: int) -> str:
        """The text of that number, ``""`` if it is not defined."""
        return self._texts.get(number, "")

    def add(self, number: int, kind: int, payload: bytes) -> None:
        """Take a definition in."""
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
        kinds = [kind for _, kind, _ in layout.fields if kind in SLOTTED]
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
        key = (layout, tuple(filled))
        return self._interned.setdefault(key, Signature(*key))


def _layout(payload: bytes) -> Layout | None:
    try:
        title, pointers, fields = json.loads(payload)
        checked = tuple((str(name), int(kind), str(type_name)) for name, kind, type_name in fields)
    except (ValueError, TypeError, RecursionError):
        return None
    return Layout(str(title), bool(pointers), checked)
