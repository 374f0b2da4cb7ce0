"""Torch operations that compute: elementwise ones, reductions, ``topk``, ``gather``, comparisons, products."""

from __future__ import annotations

from sgltrace.index.shapes.symbolic.dims import ONE, Dim, const, some_of
from sgltrace.index.shapes.symbolic.torchcall import (
    Operation,
    Shape,
    TorchCall,
    axis,
    broadcast,
    elements,
    promote,
    with_size,
    without,
)
from sgltrace.index.shapes.symbolic.values import Const, Int, Tensor, Tuple, Unknown, Value


def _tensors(call: TorchCall) -> list[Tensor]:
    return [value for value in (*call.args, *call.kwargs.values()) if isinstance(value, Tensor)]


def elementwise(call: TorchCall) -> Value:
    """The broadcast of the tensors among the arguments."""
    tensors = _tensors(call)
    if not tensors:
        return Unknown(f"{call.name} of values that are unknown")
    shape, dtype = tensors[0].shape, tensors[0].dtype
    for other in tensors[1:]:
        shape, dtype = broadcast(shape, other.shape), promote(dtype, other.dtype)
    return call.new(shape, call.dtype or dtype, next((t.why for t in tensors if t.why), ""))


def _predicate(call: TorchCall) -> Value:
    result = elementwise(call)
    return Tensor(result.shape, "bool", result.place, result.why) if isinstance(result, Tensor) else result


def _where(call: TorchCall) -> Value:
    if len(call.args) + len(call.kwargs) == 1:
        source = call.tensor(0)
        rank = len(source.shape) if source and source.shape is not None else 1
        size = source.numel if source else None
        hits = None if size is None else some_of(size)
        index = Tensor((hits,), "int64", call.place, "the number of hits depends on the values", True)
        return Tuple((index,) * rank)
    condition, first, second = call.get(0, "condition"), call.get(1, "input"), call.get(2, "other")
    parts = [value for value in (first, second) if isinstance(value, Tensor)]
    dtype = promote(parts[0].dtype, parts[-1].dtype) if parts else None
    shape = broadcast(*(t.shape for t in (condition, condition) if isinstance(t, Tensor))) if isinstance(
        condition, Tensor) else None  # fmt: skip
    for part in parts:
        shape = broadcast(shape, part.shape)
    return call.new(shape, dtype)


def _axes(call: TorchCall, rank: int, position: int = 1) -> tuple[int, ...] | None:
    """The dimensions that a reduction names; all where it names none."""
    dim = call.get(position, "dim", "axis")
    if dim is None or (isinstance(dim, Const) and dim.value is None):
        return tuple(range(rank))
    items = elements(dim) or (dim,)
    found = [axis(item.dim.constant if isinstance(item, Int) else None, rank) for item in items]
    return None if None in found else tuple(index for index in found if index is not None)


def _keeps(call: TorchCall, position: int) -> bool:
    keep = call.get(position, "keepdim", "keepdims")
    return isinstance(keep, Const) and keep.value is True


def _reduced(call: TorchCall, source: Tensor) -> Shape | None:
    if source.shape is None:
        return None
    axes = _axes(call, len(source.shape))
    if axes is None:
        return None
    if _keeps(call, 2):
        return tuple(ONE if i in axes else dim for i, dim in enumerate(source.shape))
    return tuple(dim for i, dim in enumerate(source.shape) if i not in axes)


def _reduction(dtype: str | None = None) -> Operation:
    def operation(call: TorchCall) -> Value:
        source = call.tensor(0, "input")
        if source is None:
            return Unknown(f"{call.name} of a value that is unknown")
        kind = dtype or source.dtype
        if call.name in ("sum", "prod") and source.dtype in ("bool", "int32", "int16", "int8", "uint8"):
            kind = "int64"
        return call.new(_reduced(call, source), call.dtype or kind, source.why)

    return operation


def _extreme(call: TorchCall) -> Value:
    """``max`` and ``min``: of all, along a dimension (values and indices), or of two tensors."""
    source = call.tensor(0, "input")
    if source is None:
        return Unknown(f"{call.name} of a value that is unknown")
    if call.tensor(1, "other") is not None:
        return elementwise(call)
    values = call.new(_reduced(call, source), source.dtype, source.why)
    if call.get(1, "dim", "axis") is None or call.name in ("amax", "amin"):
        return values
    return Tuple((values, Tensor(values.shape, "int64", call.place, values.why)), ("values", "indices"))


def _topk(call: TorchCall) -> Value:
    source, count = call.tensor(0, "input"), call.get(1, "k")
    if source is None:
        return Unknown(f"{call.name} of a value that is unknown")
    index = None
    if source.shape is not None:
        named = call.integer(2, "dim")
        index = axis(-1 if named is None else named, len(source.shape))
    size = count.dim if isinstance(count, Int) else None
    shape = None if index is None or source.shape is None else with_size(source.shape, index, size)
    values = call.new(shape, source.dtype)
    return Tuple((values, Tensor(shape, "int64", call.place, values.why)), ("values", "indices"))


def _sort(call: TorchCall) -> Value:
    source = call.tensor(0, "input")
    if source is None:
        return Unknown(f"{call.name} of a value that is unknown")
    order = Tensor(source.shape, "int64", call.place, source.why)
    return order if call.name == "argsort" else Tuple((source, order), ("values", "indices"))


def _gather(call: TorchCall) -> Value:
    source, index = call.tensor(0, "input"), call.tensor(2, "index")
    return call.new(index.shape if index else None, source.dtype if source else None)


def _index_select(call: TorchCall) -> Value:
    source, dim, index = call.tensor(0, "input"), call.integer(1, "dim"), call.tensor(2, "index")
    if source is None or source.shape is None or index is None:
        return call.new(None, source.dtype if source else None)
    where = axis(dim, len(source.shape))
    return call.new(None if where is None else with_size(source.shape, where, index.numel), source.dtype)


def _take_along(call: TorchCall) -> Value:
    source, index = call.tensor(0, "input"), call.tensor(1, "indices", "index")
    return call.new(index.shape if index else None, source.dtype if source else None)


def _picked(call: TorchCall) -> Value:
    source = call.tensor(0, "input")
    why = "the number of hits depends on the values"
    size = source.numel if source is not None else None
    hits = None if size is None else some_of(size)
    if call.name == "nonzero":
        rank = None if source is None or source.shape is None else const(len(source.shape))
        return Tensor((hits, rank), "int64", call.place, why, True)
    return Tensor((hits,), source.dtype if source else None, call.place, why, True)


def _scan(call: TorchCall) -> Value:
    source = call.tensor(0, "input")
    if source is None:
        return Unknown(f"{call.name} of a value that is unknown")
    kind = "int64" if source.dtype in ("int32", "bool", "int16", "int8", "uint8") else source.dtype
    return call.new(source.shape, call.dtype or kind, source.why)


def _bincount(call: TorchCall) -> Value:
    length = call.get(2, "minlength")
    return call.new((length.dim if isinstance(length, Int) else None,), "int64")


def matmul(call: TorchCall) -> Value:
    """``left @ right``: the rows of one, the columns of the other."""
    left, right = call.tensor(0, "input"), call.tensor(1, "other", "mat2", "weight")
    if left is None or left.shape is None:
        return Unknown(f"{call.name} of a value that is unknown")
    last: Dim | None = None
    if right is not None and right.shape is not None and len(right.shape) >= 2:
        last = right.shape[-2] if call.name == "linear" else right.shape[-1]
    return call.new((*left.shape[:-1], last), left.dtype)


def _searchsorted(call: TorchCall) -> Value:
    values = call.tensor(1, "input")
    return call.new(values.shape if values else (), "int64")


def _multinomial(call: TorchCall) -> Value:
    source, count = call.tensor(0, "input"), call.get(1, "num_samples")
    if source is None or source.shape is None:
        return call.new(None, "int64")
    return call.new((*without(source.shape, len(source.shape) - 1), count.dim if isinstance(count, Int) else None),
                    "int64")  # fmt: skip


_ELEMENTWISE = (
    "add", "sub", "mul", "div", "pow", "abs", "exp", "log", "sqrt", "rsqrt", "sigmoid", "relu", "silu", "gelu", "tanh",
    "neg", "floor", "ceil", "round", "clamp", "clip", "clamp_min", "clamp_max", "minimum", "maximum", "remainder",
    "fmod", "floor_divide", "true_divide", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
    "bitwise_left_shift", "bitwise_right_shift", "nan_to_num", "dropout", "layer_norm", "rms_norm", "multiply",
    "subtract", "square", "reciprocal", "sign", "trunc", "addcmul", "lerp", "log2", "log1p", "expm1", "sin", "cos",
)  # fmt: skip
_PREDICATES = (
    "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor", "isnan", "isinf",
    "isfinite", "isin", "isclose",
)  # fmt: skip

COMPUTATIONS: dict[str, Operation] = {
    **dict.fromkeys(_ELEMENTWISE, elementwise),
    **dict.fromkeys(_PREDICATES, _predicate),
    "where": _where,
    **{name: _reduction() for name in ("sum", "mean", "prod", "var", "std", "norm", "logsumexp", "median")},
    **{name: _reduction("bool") for name in ("any", "all")},
    **{name: _reduction("int64") for name in ("argmax", "argmin", "count_nonzero")},
    **dict.fromkeys(("max", "min", "amax", "amin"), _extreme),
    "topk": _topk, "sort": _sort, "argsort": _sort, "gather": _gather, "index_select": _index_select,
    "take_along_dim": _take_along, "take": _take_along, "nonzero": _picked, "masked_select": _picked,
    "flatnonzero": _picked, "unique": _picked,
    **dict.fromkeys(("cumsum", "cumprod", "softmax", "log_softmax", "cummax", "normalize"), _scan),
    "bincount": _bincount, "searchsorted": _searchsorted, "bucketize": _searchsorted, "multinomial": _multinomial,
    **dict.fromkeys(("matmul", "mm", "bmm", "linear"), matmul),
}  # fmt: skip
"""By the name after ``torch.`` (and ``torch.nn.functional.``), or of the method."""
