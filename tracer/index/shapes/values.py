"""What the interpreter knows of a value: a tensor's shape, an integer's formula, an object, or that it does not.

Values are immutable. What can change (an object's fields, a list's elements) lies in the ``store`` under the
object's identity, so that a branch can be undone. ``join`` says what a value is after two branches meet.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Union

from sgltrace.index.shapes.dims import ONE, ZERO, Dim, const, product, some_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sgltrace.index.entities import ClassInfo

BATCH_SIZE = "bs"
"""The symbol for the number of requests in a batch; at 0 a batch is idle."""
MOST_ALTERNATIVES = 6


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
    """An integer, by its formula."""

    dim: Dim


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
TOO_MANY = Unknown(f"more than {MOST_ALTERNATIVES} different values meet here")
"""Does not give way to what is known on another way, as other unknown values do."""
TRUE, FALSE = Const(True), Const(False)


def alternatives(value: Value) -> tuple[Value, ...]:
    """The values it may be."""
    return value.values if isinstance(value, Either) else (value,)


def is_unknown(value: Value) -> bool:
    """Whether nothing at all was derived."""
    return isinstance(value, Unknown) or (isinstance(value, Tensor) and value.shape is None)


def number(value: int) -> Int:
    """A whole number as a value."""
    return Int(const(value))


def join(left: Value, right: Value, given: Given | None = None) -> Value:
    """What a value is that is ``left`` on one way and ``right`` on the other.

    What is unknown on one way gives way to what is known on the other: the formula then holds on the ways that
    were understood. A shape that is the other's at batch size 0 is the idle case of it, and one that is the
    other's under what the left way takes as ``given`` (``topk == 1``) a special case of it.
    """
    if left is right or left in (right, TOO_MANY):
        return left
    if right == TOO_MANY:
        return right
    merged: list[Value] = list(alternatives(left))
    for value in alternatives(right):
        for i, other in enumerate(merged):
            both = _merge(other, value, given)
            if both is not None:
                merged[i] = both
                break
        else:
            merged.append(value)
    if len(merged) == 1:
        return merged[0]
    if len(merged) > MOST_ALTERNATIVES:
        return TOO_MANY
    return Either(tuple(merged))


def join_all(values: Iterable[Value]) -> Value:
    """The join of at least one value."""
    first, *rest = values
    for value in rest:
        first = join(first, value)
    return first


def substitute(value: Value, given: Given) -> Value:
    """The value with symbols replaced in its shape or formula."""
    if isinstance(value, Int):
        return Int(value.dim.substitute(given))
    if isinstance(value, Tensor) and value.shape is not None:
        return value.same_data(tuple(None if dim is None else dim.substitute(given) for dim in value.shape))
    if isinstance(value, Tuple):
        return Tuple(tuple(substitute(item, given) for item in value.items), value.names)
    return value


def _merge(left: Value, right: Value, given: Given | None) -> Value | None:
    """One value for both, or None where they stay apart."""
    if left == right:
        return left
    if isinstance(left, Unknown):
        return right
    if isinstance(right, Unknown):
        return left
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return _merge_tensors(left, right, given)
    if isinstance(left, Tuple) and isinstance(right, Tuple) and len(left.items) == len(right.items):
        items = (join(a, b, given) for a, b in zip(left.items, right.items, strict=True))
        return Tuple(tuple(items), left.names)
    if isinstance(left, Run) and isinstance(right, Run):
        return _merge_runs(left, right) or _merge_runs(right, left)
    if isinstance(left, Int) and isinstance(right, Int):
        if given and right.dim.substitute(given) == left.dim.substitute(given):
            return right
        if left.dim == ZERO and _idle(right.dim) == ZERO:
            return right
        if right.dim == ZERO and _idle(left.dim) == ZERO:
            return left
    return None


def _merge_runs(short: Run, long: Run) -> Run | None:
    """A list to which one way has appended: what it appended is there or not."""
    kept = len(short.segments)
    if long.segments[:kept] != short.segments:
        return None
    return Run(short.segments + tuple((item, some_of(count)) for item, count in long.segments[kept:]))


def _merge_tensors(left: Tensor, right: Tensor, given: Given | None) -> Tensor | None:
    if left.shape is None:
        return right
    if right.shape is None:
        return left
    if left.shape == right.shape:
        return left if left.dtype is not None else right
    if len(left.shape) == len(right.shape):
        if any(dim is None for dim in left.shape) and _fits(left.shape, right.shape):
            return right
        if any(dim is None for dim in right.shape) and _fits(right.shape, left.shape):
            return left
        if given and substitute(left, given) == substitute(replace(right, dtype=left.dtype, place=left.place), given):
            return right
        if _is_idle_of(left.shape, right.shape):
            return right
        if _is_idle_of(right.shape, left.shape):
            return left
    return None


def _fits(partial: tuple[Dim | None, ...], whole: tuple[Dim | None, ...]) -> bool:
    return all((a is None and b != ZERO) or a == b for a, b in zip(partial, whole, strict=True))


def _is_idle_of(idle: tuple[Dim | None, ...], shape: tuple[Dim | None, ...]) -> bool:
    """Whether ``idle`` is ``shape`` with no rows: 0 where the other has a formula, the rest alike or unknown."""
    if ZERO not in idle:
        return False
    for a, b in zip(idle, shape, strict=True):
        if a is None or b is None or a in (b, _idle(b)) or (a == ZERO and b.constant is None):
            continue
        return False
    return True


def _idle(dim: Dim) -> Dim:
    return dim.substitute({BATCH_SIZE: ZERO})
