"""``tensor[...]``: what a subscript of integers, slices, None, masks and index tensors leaves."""

from __future__ import annotations

from sgltrace.index.shapes.symbolic.dims import ONE, Dim, const, some_of
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.torchcall import Shape, broadcast, elements, slice_size
from sgltrace.index.shapes.symbolic.values import (
    NONE,
    Const,
    Int,
    Place,
    Range,
    Run,
    Span,
    Tensor,
    Tuple,
    Unknown,
    Value,
)


def subscript(source: Tensor, index: Value, place: Place) -> Tensor:
    """The tensor that ``source[index]`` is, or what assigning to it must broadcast to."""
    parts = list(index.items) if isinstance(index, Tuple) else [index]
    masks = sum(_mask_rank(part) for part in parts)
    if source.shape is None:
        return Tensor(None, source.dtype, place, source.why or "an index into a tensor that is unknown")
    taken = masks + sum(not _adds(part) and not _is_mask(part) for part in parts)
    shape: list[Dim | None] = []
    rest = list(source.shape)
    picked: Shape | None = None
    picked_at = 0
    ragged = source.ragged
    why = source.why
    for part in parts:
        if isinstance(part, Const) and part.value is Ellipsis:
            skip = len(rest) - (taken - sum(1 for p in parts[: parts.index(part)] if not _adds(p)))
            shape += [rest.pop(0) for _ in range(max(skip, 0))]
        elif isinstance(part, Const) and part.value is None:
            shape.append(ONE)
        elif not rest:
            return Tensor(None, source.dtype, place, "more indices than dimensions")
        elif isinstance(part, Span):
            shape.append(slice_size(part, rest.pop(0)))
        elif isinstance(part, Int):
            rest.pop(0)
        elif _is_mask(part):
            assert isinstance(part, Tensor) and part.shape is not None
            del rest[: len(part.shape)]
            hits = None if part.numel is None else some_of(part.numel)
            picked, picked_at, ragged = (hits,), len(shape), True
            why = "the number of hits of a mask depends on the values"
        else:
            rest.pop(0)
            chosen = _index_shape(part)
            if chosen is None:
                return Tensor(None, source.dtype, place, "an index is unknown")
            picked_at = picked_at if picked is not None else len(shape)
            picked = chosen if picked is None else broadcast(picked, chosen)
            ragged = ragged or (isinstance(part, Tensor) and part.ragged)
    if picked is not None:
        shape[picked_at:picked_at] = picked
    final = (*shape, *rest)
    return Tensor(final, source.dtype, place, why if None in final else "", ragged)


def _adds(part: Value) -> bool:
    return isinstance(part, Const) and (part.value is None or part.value is Ellipsis)


def _is_mask(part: Value) -> bool:
    return isinstance(part, Tensor) and part.dtype == "bool" and part.shape is not None


def _mask_rank(part: Value) -> int:
    return len(part.shape) if isinstance(part, Tensor) and part.shape is not None and _is_mask(part) else 0


def _index_shape(part: Value) -> Shape | None:
    if isinstance(part, Tensor):
        return part.shape
    if isinstance(part, Range):
        return (part.count,)
    if isinstance(part, Run):
        return (part.count,)
    items = elements(part)
    return None if items is None else (const(len(items)),)


def element_of(base: Value, index: Value) -> Value:
    """``base[index]`` of a range or sequence."""
    if isinstance(base, Range):
        if isinstance(index, Int):
            return Int(base.start + index.dim * base.step)
        return Unknown("a part of a range")
    items = elements(base)
    position = index.dim.constant if isinstance(index, Int) else None
    if items is not None and position is not None and -len(items) <= position < len(items):
        return items[position]
    if items is not None and isinstance(index, Span):
        bounds = _bounds(index)
        if bounds is not None:
            return Tuple(items[bounds])
    if isinstance(base, Run):
        return _part_of_run(base, index, position)
    if isinstance(base, Unknown):
        return base
    return Unknown("an index that is not known")


def _bounds(index: Span) -> slice | None:
    """A slice with known bounds."""
    bounds: list[int | None] = []
    for part in (index.lower, index.upper, index.step):
        if part is None or part == NONE:
            bounds.append(None)
        elif isinstance(part, Int) and part.dim.constant is not None:
            bounds.append(part.dim.constant)
        else:
            return None
    return slice(bounds[0], bounds[1], bounds[2])


def _part_of_run(base: Run, index: Value, position: int | None) -> Value:
    if not base.segments:
        return Unknown("an element of an empty list")
    if position == 0:
        return base.segments[0][0]
    if position == -1:
        return base.segments[-1][0]
    if isinstance(index, Int):
        return join_all(value for value, _ in base.segments)
    if isinstance(index, Span) and len(base.segments) == 1 and (index.lower is None or isinstance(index.lower, Int)):
        size = slice_size(index, base.count)
        if size is not None:
            return Run(((base.segments[0][0], size),))
    if isinstance(index, Span) and index.lower is None and index.upper == Int(const(-1)):
        value, count = base.segments[-1]
        return Run((*base.segments[:-1], (value, count - const(1))))
    if isinstance(index, Span) and len(base.segments) >= 1:
        return Unknown("a part of a list")
    return Unknown("an index that is not known")
