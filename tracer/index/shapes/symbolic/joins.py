"""What a value is after branches meet: ``join``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sgltrace.index.shapes.symbolic.dims import ONE, ZERO, Dim, perhaps

if TYPE_CHECKING:
    from collections.abc import Iterable

from sgltrace.index.shapes.symbolic.values import (
    BATCH_SIZE,
    Either,
    Given,
    Int,
    Run,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
)

MOST_ALTERNATIVES = 6
TOO_MANY = Unknown(f"more than {MOST_ALTERNATIVES} different values meet here")
"""Does not give way to what is known on another way, as other unknown values do."""


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


def specialised(value: Value, given: Given) -> Value:
    """A value as it is where symbols are known to be 1: ``bs*topk**2`` is ``bs`` where ``topk == 1``.

    Formulas in which a symbol stands once stay as they are: they hold wherever else it has another value, too.
    """
    ones = {name: dim for name, dim in given.items() if dim == ONE}
    if not ones:
        return value
    if isinstance(value, Either):
        return join_all(specialised(part, given) for part in value.values)
    if isinstance(value, Tuple):
        return Tuple(tuple(specialised(item, given) for item in value.items), value.names)
    dims = (value.dim,) if isinstance(value, Int) else value.shape if isinstance(value, Tensor) else None
    if dims and any(dim is not None and dim.has_power_of(ones) for dim in dims):
        return substitute(value, ones)
    return value


def _merge(left: Value, right: Value, given: Given | None) -> Value | None:
    """One value for both, or None where they stay apart."""
    if left == right:
        return Int(left.dim) if isinstance(left, Int) and left.given else left
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
    return Run(short.segments + tuple((item, perhaps(count)) for item, count in long.segments[kept:]))


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
        # A list that may be empty is made into a tensor where it is not; where it is, the other way counts.
        if _is_perhaps(left.shape) is not _is_perhaps(right.shape):
            return right if _is_perhaps(left.shape) else left
        if _is_idle_of(left.shape, right.shape):
            return right
        if _is_idle_of(right.shape, left.shape):
            return left
    return None


def _fits(partial: tuple[Dim | None, ...], whole: tuple[Dim | None, ...]) -> bool:
    return all((a is None and b != ZERO) or a == b for a, b in zip(partial, whole, strict=True))


def _is_perhaps(shape: tuple[Dim | None, ...]) -> bool:
    return any(dim is not None and dim.is_perhaps for dim in shape)


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
