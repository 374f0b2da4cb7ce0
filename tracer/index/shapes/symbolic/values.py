"""What the interpreter knows of a value: a tensor's shape, an integer's formula, an object, or that it does not.

Values are immutable. What can change (an object's fields, a list's elements) lies in the ``store`` under the
object's identity, so that a branch can be undone. ``join`` says what a value is after two branches meet.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Union

from sgltrace.index.shapes.symbolic.dims import ONE, ZERO, Dim, const, product

if TYPE_CHECKING:
    from sgltrace.index.resolution.entities import ClassInfo

BATCH_SIZE = "bs"
"""The symbol for the number of requests in a batch; at 0 a batch is idle."""


@dataclass(frozen=True)
class Unknown:
    """A value that was not derived, and why."""

    why: str


@dataclass(frozen=True)
class Const:
    """None, a string, a boolean, a float or Ellipsis."""

    value: Any


@dataclass(frozen=True)
class Int:
    """An integer, by its formula. ``given`` is what holds where it is this one of several (``topk == 1``)."""

    dim: Dim
    given: tuple[tuple[str, Dim], ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Place:
    """A function and a line of it."""

    function: str
    line: int


@dataclass(frozen=True)
class Tensor:
    """A tensor. ``shape`` is None where not even the number of dimensions is known, a dimension None where it is
    not; ``dtype`` is torch's name (``int64``) or None."""

    shape: tuple[Dim | None, ...] | None
    dtype: str | None = None
    place: Place | None = None
    """Where it was made."""
    why: str = ""
    """Why ``shape`` (or a dimension of it) is unknown."""
    ragged: bool = False
    """Whether the number of rows depends on the values (a mask, ``nonzero``)."""

    @property
    def numel(self) -> Dim | None:
        """The number of elements."""
        if self.shape is None or any(dim is None for dim in self.shape):
            return None
        return product(dim for dim in self.shape if dim is not None)

    def same_data(self, shape: tuple[Dim | None, ...] | None) -> Tensor:
        """A view of it with another shape."""
        return replace(self, shape=shape)


@dataclass(frozen=True)
class Tuple:
    """A tuple or ``torch.Size`` of known length. ``names`` are those of a named tuple's fields."""

    items: tuple[Value, ...]
    names: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Run:
    """A list read as a whole: runs of a value and how often it stands there."""

    segments: tuple[tuple[Value, Dim], ...]

    @property
    def count(self) -> Dim:
        """Its length."""
        return sum((count for _, count in self.segments), ZERO)


@dataclass(frozen=True)
class Range:
    """``range(start, stop, step)``."""

    start: Dim
    stop: Dim
    step: Dim = field(default=ONE)

    @property
    def count(self) -> Dim:
        """How many numbers it gives, if it counts upwards."""
        return (self.stop - self.start + self.step - ONE) // self.step


@dataclass(frozen=True)
class Span:
    """``slice(lower, upper, step)``; None where left out."""

    lower: Value | None
    upper: Value | None
    step: Value | None = None


@dataclass(frozen=True)
class Member:
    """A member of an enum class of the program."""

    cls: ClassInfo
    name: str


@dataclass(eq=False)
class Obj:
    """An object, compared by identity. What is in it lies in the store.

    ``kind`` is ``object`` (of a class of the program, which an annotation may narrow), ``list`` or ``dict``.
    """

    cls: ClassInfo | None
    name: str = ""
    """How the source calls it, for messages (``batch.spec_info``)."""
    kind: str = "object"
    each: bool = False
    """Whether it stands for every element of a list."""
    lazy: bool = False
    """Whether its fields are what its class's methods write, evaluated when asked for."""
    arguments: tuple[list[Value], dict[str, Value]] | None = None
    """What its constructor got, where it is lazy and that is known."""
    owner: Obj | None = None
    """The object in whose field it was found."""
    number: int = field(default_factory=itertools.count(1).__next__)

    def __repr__(self) -> str:
        return f"Obj({self.cls.name if self.cls else self.kind} {self.name or self.number})"


@dataclass(frozen=True)
class Ref:
    """A function, class, module or name outside the program.

    ``kind`` is ``function``, ``class``, ``module``, ``external`` or ``builtin method``; ``target`` its id or dotted
    name; a method has the ``bound`` value that it was read from.
    """

    kind: str
    target: str
    bound: Value | None = None
    info: Any = field(default=None, compare=False)
    """The function's or class's entity; of a nested function, with the frame around it."""
    frame: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Either:
    """One of a few values, where branches met that do not agree."""

    values: tuple[Value, ...]


Value = Union[Unknown, Const, Int, Tensor, Tuple, Run, Range, Span, Member, Obj, Ref, Either]  # noqa: UP007

Given = dict[str, Dim]
"""Symbols that have a known value on one way."""

NONE = Const(None)
A_NUMBER = Unknown("a number that is not known")
TRUE, FALSE = Const(True), Const(False)


def alternatives(value: Value) -> tuple[Value, ...]:
    """The values it may be."""
    return value.values if isinstance(value, Either) else (value,)


def number(value: int) -> Int:
    """A whole number as a value."""
    return Int(const(value))
