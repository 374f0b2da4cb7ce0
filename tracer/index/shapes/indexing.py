"""``tensor[...]``: what a subscript of integers, slices, None, masks and index tensors leaves."""

from __future__ import annotations

from sgltrace.index.shapes.dims import ONE, Dim, const, some_of
from sgltrace.index.shapes.torchcall import Shape, broadcast, elements, slice_size
from sgltrace.index.shapes.values import Const, Int, Place, Range, Run, Span, Tensor, Tuple, Value


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
