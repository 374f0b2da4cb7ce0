"""What the interpreter carries along: frames of calls, how a block ended, and what is written down on the way."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from sgltrace.index.shapes.symbolic.joins import join
from sgltrace.index.shapes.symbolic.store import Changes
from sgltrace.index.shapes.symbolic.values import Given, Obj, Place, Value

if TYPE_CHECKING:
    from sgltrace.index.resolution.entities import FunctionInfo


class Flow(Enum):
    """How a block of statements ends."""

    NEXT = "next"
    RETURN = "return"
    RAISE = "raise"
    BREAK = "break"
    CONTINUE = "continue"


_numbers = itertools.count(-1, -1)


@dataclass(eq=False)
class Frame:
    """A call that is being interpreted.

    A ``lazy`` frame runs no statements: a variable is what the function's assignments to it give, evaluated when
    somebody asks. It serves functions that run when a process starts, and questions about a single expression.
    """

    function: FunctionInfo
    parent: Frame | None = None
    """The frame of the function around a nested one."""
    receiver: Value | None = None
    lazy: bool = False
    number: int = field(default_factory=_numbers.__next__)
    given: Given = field(default_factory=dict)
    """What the branches around the current statement take for granted."""
    implied: dict[str, Given] = field(default_factory=dict)
    """By variable: what holds where it is true, or not None."""
    returns: list[tuple[Value, Given]] = field(default_factory=list)
    exits: list[tuple[Changes, Given | None]] = field(default_factory=list)
    line: int = 0
    asked: set[str] = field(default_factory=set)
    """Variables whose assignments are being evaluated, in a lazy frame."""

    def place(self, line: int | None = None) -> Place:
        """Here, or on another line of the same function."""
        return Place(self.function.id, line or self.line or self.function.line)


@dataclass(frozen=True)
class FieldWrite:
    """A field that was given a value on the way."""

    order: int
    stage: str
    place: Place
    obj: Obj
    field: str
    value: Value
    calls: tuple[str, ...]
    """The functions being run, outermost first."""


@dataclass(frozen=True)
class LocalWrite:
    """A variable that was given a tensor."""

    order: int
    stage: str
    place: Place
    name: str
    value: Value


@dataclass
class Records:
    """What was seen on the way: writes in order, and reads by field and by the place where a tensor was made."""

    fields: list[FieldWrite] = field(default_factory=list)
    locals: list[LocalWrite] = field(default_factory=list)
    reads: dict[tuple[int, str], dict[Place, None]] = field(default_factory=dict)
    """Of an object's field: where it was read."""
    seen: dict[tuple[Place, str, str], Value] = field(default_factory=dict)
    """By place, class and field: what a read found there."""
    _by_function: dict[tuple[str, str], list[FieldWrite]] = field(default_factory=dict)
    uses: dict[Place, dict[Place, None]] = field(default_factory=dict)
    """Of the place where a tensor was made: where it was passed on or read."""

    def read(self, obj: Obj, name: str, place: Place, value: Value) -> None:
        """Note a read."""
        self.reads.setdefault((obj.number, name), {})[place] = None
        key = (place, obj.cls.id if obj.cls is not None else "", name)
        known = self.seen.get(key)
        self.seen[key] = value if known is None else join(known, value)

    def written_in(self, function: str, name: str) -> list[FieldWrite]:
        """The writes of a field in a function. Asked only when a step is over."""
        if not self._by_function:
            for write in self.fields:
                self._by_function.setdefault((write.place.function, write.field), []).append(write)
        return self._by_function.get((function, name), [])

    def mark(self) -> tuple[int, int]:
        """A point to go back to."""
        return len(self.fields), len(self.locals)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Forget the writes since a point: they are run again."""
        del self.fields[mark[0] :], self.locals[mark[1] :]
