"""What a run has changed, so that it can be taken back, applied again, and joined with what another run changed."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sgltrace.evaluate.unknown import ABSENT, Maybe, Unknown, describe, one_of, same

Place = tuple[str, int, Any]
"""Kind, identity of the holder, key in it."""
Change = tuple[Any, Any]
"""The holder, and what the place holds afterwards."""
Delta = dict[Place, Change]
"""What a run changed, place by place."""

_SCALARS = (int, float, str, bool, type(None))
CONTENT = "content"
"""The kind of place that is all of a list, set or dict."""


def own_names(holder: Any) -> Any:
    """The ``__dict__`` of an object, past what its class makes of attributes; None where it has none."""
    try:
        return object.__getattribute__(holder, "__dict__")
    except AttributeError:
        return None


def read(kind: str, holder: Any, key: Any) -> Any:
    """What a place holds; ``ABSENT`` for one that is not bound."""
    if kind == "item":
        return holder.get(key, ABSENT)
    if kind == "attribute":
        own = own_names(holder)
        if own is not None and key in own:
            return own[key]
        slot = getattr(type(holder), key, None)  # a field of a Struct, or of a class with __slots__
        if isinstance(slot, types.MemberDescriptorType):
            try:
                return slot.__get__(holder)
            except AttributeError:
                return ABSENT
        return ABSENT
    return type(holder)(holder)


def _write(kind: str, holder: Any, key: Any, value: Any) -> None:
    if kind == "item":
        if value is ABSENT:
            holder.pop(key, None)
        else:
            holder[key] = value
    elif kind == "attribute":
        own = own_names(holder)
        if value is ABSENT and isinstance(own, dict):
            own.pop(key, None)
        elif value is ABSENT:
            (type.__delattr__ if isinstance(holder, type) else object.__delattr__)(holder, key)
        elif isinstance(holder, type):
            type.__setattr__(holder, key, value)
        else:
            (_struct_setter(holder) or object.__setattr__)(holder, key, value)
    elif isinstance(holder, list):
        holder[:] = value
    else:
        holder.clear()
        holder.update(value)


def _struct_setter(holder: Any) -> Callable[[Any, str, Any], None] | None:
    if not hasattr(type(holder), "__struct_fields__"):
        return None
    import msgspec

    return msgspec.Struct.__setattr__


class Journal:
    """Changes of scopes (dicts), attributes and containers, in the frames of the conditions that are being tried."""

    def __init__(self) -> None:
        self._frames: list[dict[Place, tuple[Any, Any]]] = []

    @property
    def is_trying(self) -> bool:
        """Whether one side of an unknown condition runs."""
        return bool(self._frames)

    def note(self, kind: str, holder: Any, key: Any = None) -> None:
        """A place is about to change. Cheap where nothing is being tried."""
        if self._frames:
            place = (kind, id(holder), key)
            frame = self._frames[-1]
            if place not in frame:
                frame[place] = (holder, read(kind, holder, key))

    def set_item(self, holder: dict[Any, Any], key: Any, value: Any) -> None:
        """``holder[key] = value``; ``ABSENT`` takes it away."""
        self.note("item", holder, key)
        _write("item", holder, key, value)

    def set_attribute(self, holder: Any, key: str, value: Any) -> None:
        """``holder.key = value``, past any setter of its class."""
        self.note("attribute", holder, key)
        _write("attribute", holder, key, value)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is changed inside stays, whatever is being tried: a module runs once."""
        frames, self._frames = self._frames, []
        try:
            yield
        finally:
            self._frames = frames

    def begin(self) -> None:
        """Begin to try something."""
        self._frames.append({})

    def take_back(self) -> Delta:
        """End what ``begin`` began: everything is as it was, and what it had changed is returned."""
        frame = self._frames.pop()
        delta: Delta = {place: (holder, read(place[0], holder, place[2])) for place, (holder, _) in frame.items()}
        for place, (holder, old) in reversed(frame.items()):
            _write(place[0], holder, place[2], old)
        return delta

    def apply(self, delta: Delta) -> None:
        """Make the changes of a run that was taken back."""
        for (kind, _, key), (holder, value) in delta.items():
            self.note(kind, holder, key)
            _write(kind, holder, key, value)

    def join(self, first: Delta, second: Delta, condition: Unknown) -> Delta:
        """The changes of one run or the other: ``first`` where the condition holds."""
        joined: Delta = {}
        for place in [*first, *(place for place in second if place not in first)]:
            kind, _, key = place
            holder = (first.get(place) or second[place])[0]
            now = read(kind, holder, key)
            left = first[place][1] if place in first else now
            right = second[place][1] if place in second else now
            if kind == CONTENT:
                value = join_contents(left, right, condition)
            else:
                value = join_values(left, right, condition, str(key))
            joined[place] = (holder, value)
        return joined


def negation(condition: Unknown) -> Unknown:
    """``not condition``."""
    if condition.parts and condition.parts[0] == "not":
        return condition.parts[1][0]  # type: ignore[no-any-return]
    return Unknown(f"not {condition.name}", (), condition.roots, ("not", (condition,)))


def join_values(left: Any, right: Any, condition: Unknown, name: str = "") -> Any:
    """One value or the other. What is bound on one side alone is taken to be bound where it is read."""
    if same(left, right):
        return left
    if left is ABSENT:
        return right
    if right is ABSENT:
        return left
    if type(left) is type(right) and isinstance(left, (list, dict)) and not (left and right):
        return join_contents(left, right, condition)
    if type(left) is type(right) is tuple and len(left) == len(right):
        return tuple(join_values(a, b, condition, name) for a, b in zip(left, right, strict=True))
    shown = name or f"{describe(left)} if {condition.name} else {describe(right)}"
    return one_of((left, right), shown, condition.roots)


def join_contents(left: Any, right: Any, condition: Unknown) -> Any:
    """The contents of a container after one run or the other; what only one has is there under the condition."""
    otherwise = negation(condition)
    if isinstance(left, list):
        if len(left) == len(right) and all(isinstance(x, _SCALARS) for x in (*left, *right)):
            return [join_values(a, b, condition) for a, b in zip(left, right, strict=True)]
        shared = 0
        while shared < min(len(left), len(right)) and same(left[shared], right[shared]):
            shared += 1
        return [
            *left[:shared],
            *(Maybe(item, condition) for item in left[shared:]),
            *(Maybe(item, otherwise) for item in right[shared:]),
        ]
    if isinstance(left, dict):
        joined: dict[Any, Any] = {}
        for key in [*left, *(key for key in right if key not in left)]:
            if key not in right:
                joined[key] = Maybe(left[key], condition)
            elif key not in left:
                joined[key] = Maybe(right[key], otherwise)
            else:
                joined[key] = join_values(left[key], right[key], condition, str(key))
        return joined
    if same(left, right):
        return left
    kind = type(left)
    return kind(
        [*(left & right), *(Maybe(x, condition) for x in left - right), *(Maybe(x, otherwise) for x in right - left)]
    )
