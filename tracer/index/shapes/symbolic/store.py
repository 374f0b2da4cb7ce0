"""The state that a program changes: variables and fields, with branches that can be undone and joined.

A key is ``(frame or object number, name)``. Every change is remembered, so that a branch costs what it changes
and not the size of the state.
"""

from __future__ import annotations

from collections.abc import Sequence

from sgltrace.index.shapes.symbolic.joins import join
from sgltrace.index.shapes.symbolic.values import Given, Unknown, Value

Key = tuple[int, str]
Changes = dict[Key, "Value | None"]
"""What a branch left behind: None for a key that it removed."""

MAYBE_UNSET = Unknown("not set on another way here")


class Store:
    """A dict of values with a trail of what was overwritten."""

    def __init__(self) -> None:
        self.values: dict[Key, Value] = {}
        self._names: dict[int, dict[str, None]] = {}
        self._trail: list[tuple[Key, Value | None]] = []

    def get(self, key: Key) -> Value | None:
        """The value under a key, None if there is none."""
        return self.values.get(key)

    def set(self, key: Key, value: Value) -> None:
        """Put a value under a key."""
        old = self.values.get(key)
        self._trail.append((key, old))
        self.values[key] = value
        if old is None:
            self._names.setdefault(key[0], {})[key[1]] = None

    def put(self, key: Key, value: Value) -> None:
        """Put a value that was there from the start: no branch takes it back."""
        self.values[key] = value
        self._names.setdefault(key[0], {})[key[1]] = None

    def under(self, number: int) -> list[tuple[str, Value]]:
        """What an object or frame holds: names and values, in the order in which they were first set."""
        values = self.values
        return [(name, values[number, name]) for name in self._names.get(number, ()) if (number, name) in values]

    def mark(self) -> int:
        """A point to return to."""
        return len(self._trail)

    def undo(self, mark: int) -> Changes:
        """Return to a mark. Gives what was changed since, with the latest values."""
        changes: Changes = {}
        for key, old in reversed(self._trail[mark:]):
            if key not in changes:
                changes[key] = self.values.get(key)
            if old is None:
                self.values.pop(key, None)
            else:
                self.values[key] = old
        del self._trail[mark:]
        return changes

    def keep(self, mark: int) -> None:
        """What was done since a mark holds for good: no branch around takes it back."""
        del self._trail[mark:]

    def changed_since(self, mark: int) -> Changes:
        """What was changed since a mark, with the latest values, left as it is."""
        return {key: self.values.get(key) for key, _ in self._trail[mark:]}

    def originals(self, mark: int) -> dict[Key, Value | None]:
        """What the keys that were changed since a mark held before."""
        originals: dict[Key, Value | None] = {}
        for key, old in self._trail[mark:]:
            originals.setdefault(key, old)
        return originals

    def apply(self, changes: Changes) -> None:
        """Redo what a branch did."""
        for key, value in changes.items():
            if value is not None:
                self.set(key, value)

    def merge(self, branches: Sequence[tuple[Changes, Given | None]]) -> None:
        """Go on after branches that all started here, any of which may have run. ``given`` is what a branch
        takes for granted (``topk == 1``)."""
        if not branches:
            return
        keys: dict[Key, None] = {}
        for changes, _ in branches:
            keys.update(dict.fromkeys(changes))
        for key in keys:
            before = self.values.get(key)
            merged: Value | None = None
            given_so_far: Given | None = None
            for changes, given in branches:
                value = changes.get(key, before) or MAYBE_UNSET
                if merged is None:
                    merged, given_so_far = value, given
                elif given and not given_so_far:
                    merged = join(value, merged, given)
                else:
                    merged, given_so_far = join(merged, value, given_so_far), None
            if merged is not None and merged is not before:
                self.set(key, merged)
