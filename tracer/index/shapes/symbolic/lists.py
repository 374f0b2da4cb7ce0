"""Lists and dicts, whose elements lie in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.symbolic.dims import ONE, Dim
from sgltrace.index.shapes.symbolic.store import Store
from sgltrace.index.shapes.symbolic.torchcall import elements
from sgltrace.index.shapes.symbolic.values import (
    Const,
    Obj,
    Run,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
)

if TYPE_CHECKING:
    pass


class Lists:
    """The part of the machine that knows containers."""

    store: Store

    def new_list(self, segments: tuple[tuple[Value, Dim], ...]) -> Obj:
        """A list with these elements."""
        made = Obj(None, kind="list")
        self.store.set((made.number, "[]"), Run(segments))
        return made

    def new_dict(self, items: dict[str, Value]) -> Obj:
        """A dict with these keys."""
        made = Obj(None, kind="dict")
        for key, value in items.items():
            self.store.set((made.number, repr(Const(key))), value)
        return made

    def list_segments(self, obj: Obj) -> tuple[tuple[Value, Dim], ...]:
        """A list's elements."""
        held = self.store.get((obj.number, "[]"))
        return held.segments if isinstance(held, Run) else ()

    def set_list(self, obj: Obj, segments: tuple[tuple[Value, Dim], ...]) -> None:
        """Change a list's elements."""
        self.store.set((obj.number, "[]"), Run(segments))

    def extend(self, obj: Obj, more: Value) -> None:
        """``obj += more``"""
        view = self.view(more)
        if isinstance(view, Run):
            self.set_list(obj, self.list_segments(obj) + view.segments)
        elif isinstance(view, Tuple):
            self.set_list(obj, self.list_segments(obj) + tuple((item, ONE) for item in view.items))

    def view(self, value: Value) -> Value:
        """A value as operations take it: a list by its elements."""
        if isinstance(value, Obj) and value.kind == "list":
            segments = self.list_segments(value)
            whole = elements(Run(segments))
            return Tuple(whole) if whole is not None else Run(segments)
        return value

    def whole_view(self, value: Value) -> Value:
        """``view``, of what is inside too: nested lists."""
        view = self.view(value)
        if isinstance(view, Tuple):
            return Tuple(tuple(self.whole_view(item) for item in view.items), view.names)
        if isinstance(view, Run):
            return Run(tuple((self.whole_view(item), count) for item, count in view.segments))
        return view

    def items(self, value: Value) -> list[Value] | None:
        """The elements of a sequence of known length."""
        view = self.view(value)
        if isinstance(view, Tensor) and view.shape and view.shape[0] is not None:
            count = view.shape[0].constant
            return None if count is None else [view.same_data(view.shape[1:])] * count
        found = elements(view)
        return None if found is None else list(found)

    def parts(self, value: Value, count: int) -> list[Value]:
        """The values that so many targets get."""
        known = next((part for part in alternatives(value) if self.items(part) is not None), value)
        found = self.items(known)
        if found is not None and len(found) == count:
            return found
        return [Unknown("a part of a value that is unknown")] * count

    def fields_of(self, obj: Obj) -> list[tuple[str, Value]]:
        """The fields of an object that hold something."""
        return self.store.under(obj.number)
