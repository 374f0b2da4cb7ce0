"""Torch operations that rearrange a tensor: ``reshape``, ``repeat_interleave``, ``cat``, ``expand``, ``split`` ..."""

from __future__ import annotations

from sgltrace.index.shapes.symbolic.dims import ONE, ZERO, Dim, const, product
from sgltrace.index.shapes.symbolic.torchcall import (
    DTYPES,
    Operation,
    Shape,
    TorchCall,
    axis,
    dtype_of,
    elements,
    segments,
    with_size,
    without,
)
from sgltrace.index.shapes.symbolic.values import Const, Either, Int, Ref, Run, Tensor, Tuple, Unknown, Value

MINUS_ONE = const(-1)


def _on_tensor(rule: Operation) -> Operation:
    """The operation, where the first argument is a tensor of known rank."""

    def operation(call: TorchCall) -> Value:
        source = call.tensor(0, "input", "tensor", "self")
        if source is None:
            return Unknown(f"{call.name} of a value that is unknown")
        if source.shape is None:
            if call.name in ("reshape", "view") and _reshaped_sizes(call) is not None:
                return rule(call)
            return source
        return rule(call)

    return operation


def _source(call: TorchCall) -> tuple[Tensor, Shape]:
    source = call.tensor(0, "input", "tensor", "self")
    assert source is not None and source.shape is not None
    return source, source.shape


def _reshaped_sizes(call: TorchCall) -> Shape | None:
    return TorchCall(call.name, call.args[1:], call.kwargs, call.place).sizes(0, "shape", "size")


def _reshape(call: TorchCall) -> Value:
    source = call.tensor(0, "input", "self")
    assert source is not None
    asked = call.get(1, "dtype")
    if call.name == "view" and asked is not None and dtype_of(asked) in DTYPES.values():
        return Tensor(source.shape, dtype_of(asked), call.place, source.why)
    sizes = _reshaped_sizes(call)
    if sizes is None:
        return call.new(None, source.dtype)
    if MINUS_ONE in sizes:
        index = sizes.index(MINUS_ONE)
        rest = without(sizes, index)
        total = source.numel
        inferred = None
        if total is not None and None not in rest:
            inferred = _divide(total, product(dim for dim in rest if dim is not None))
        sizes = with_size(sizes, index, inferred)
    return call.new(sizes, source.dtype, source.why)


def _divide(total: Dim, rest: Dim) -> Dim:
    return ZERO if total == ZERO else total // rest


def _flatten(call: TorchCall) -> Value:
    source, shape = _source(call)
    start = axis(call.integer(1, "start_dim") or 0, len(shape))
    last = call.integer(2, "end_dim")
    end = axis(-1 if last is None else last, len(shape))
    if start is None or end is None:
        return call.new((ONE,) if not shape else None, source.dtype)
    middle = shape[start : end + 1]
    merged = None if None in middle else product(dim for dim in middle if dim is not None)
    return call.new((*shape[:start], merged, *shape[end + 1 :]), source.dtype, source.why)


def _unsqueeze(call: TorchCall) -> Value:
    source, shape = _source(call)
    index = axis(call.integer(1, "dim"), len(shape) + 1)
    if index is None:
        return call.new(None, source.dtype)
    return call.new((*shape[:index], ONE, *shape[index:]), source.dtype, source.why)


def _squeeze(call: TorchCall) -> Value:
    source, shape = _source(call)
    if call.get(1, "dim") is None:
        return call.new(tuple(dim for dim in shape if dim != ONE), source.dtype, source.why)
    index = axis(call.integer(1, "dim"), len(shape))
    if index is None:
        return call.new(None, source.dtype)
    return call.new(without(shape, index) if shape[index] == ONE else shape, source.dtype, source.why)


def _expand(call: TorchCall) -> Value:
    source, shape = _source(call)
    sizes = _reshaped_sizes(call)
    if call.name == "expand_as":
        other = call.tensor(1, "other")
        sizes = other.shape if other else None
    if sizes is None or len(sizes) < len(shape):
        return call.new(None, source.dtype)
    padded = (ONE,) * (len(sizes) - len(shape)) + shape
    return call.new(
        tuple(old if new == MINUS_ONE else new for old, new in zip(padded, sizes, strict=True)), source.dtype
    )


def _repeat(call: TorchCall) -> Value:
    source, shape = _source(call)
    times = _reshaped_sizes(call)
    if times is None or len(times) < len(shape):
        return call.new(None, source.dtype)
    padded = (ONE,) * (len(times) - len(shape)) + shape
    return call.new(
        tuple(None if a is None or b is None else a * b for a, b in zip(padded, times, strict=True)), source.dtype
    )


def _repeat_interleave(call: TorchCall) -> Value:
    source, shape = _source(call)
    repeats, dim = call.get(1, "repeats"), call.integer(2, "dim")
    if dim is None:
        shape = (source.numel,)
        dim = 0
    index = axis(dim, len(shape))
    if index is None:
        return call.new(None, source.dtype)
    size = shape[index]
    if isinstance(repeats, Int) and size is not None:
        return call.new(with_size(shape, index, size * repeats.dim), source.dtype)
    output = call.kwargs.get("output_size")
    total = output.dim if isinstance(output, Int) else None
    return call.new(with_size(shape, index, total), source.dtype, "the repeats differ from row to row")


def _transpose(call: TorchCall) -> Value:
    source, shape = _source(call)
    if call.name == "t":
        return call.new(tuple(reversed(shape)), source.dtype, source.why)
    first, second = axis(call.integer(1, "dim0"), len(shape)), axis(call.integer(2, "dim1"), len(shape))
    if first is None or second is None:
        return call.new(None, source.dtype)
    sizes = list(shape)
    sizes[first], sizes[second] = sizes[second], sizes[first]
    return call.new(tuple(sizes), source.dtype, source.why)


def _permute(call: TorchCall) -> Value:
    source, shape = _source(call)
    order = _reshaped_sizes(TorchCall(call.name, call.args, {"size": call.kwargs.get("dims", Tuple(()))}, call.place))
    indexes = [axis(dim.constant if dim is not None else None, len(shape)) for dim in order or ()]
    if len(indexes) != len(shape) or None in indexes:
        return call.new(None, source.dtype)
    return call.new(tuple(shape[i] for i in indexes if i is not None), source.dtype, source.why)


def _cat(call: TorchCall) -> Value:
    runs = segments(call.get(0, "tensors") or Unknown(""))
    if not runs:
        return Unknown(f"{call.name} of a list that is unknown")
    dim = call.integer(1, "dim", "axis") or 0
    tensors = [(part, count) for value, count in runs for part in [_first_tensor(value)]]
    shaped = [(part, part.shape, count) for part, count in tensors if part is not None and part.shape]
    if len(shaped) < len(tensors):
        dtype = next((part.dtype for part, _ in tensors if part is not None), None)
        if not shaped:
            return call.new(None, dtype, f"{call.name} of a tensor that is unknown")
        part, shape, _ = shaped[0]
        index = axis(dim, len(shape))
        return call.new(None if index is None else with_size(shape, index, None), dtype, "a part of it is unknown")
    part, shape, _ = shaped[0]
    if call.name in ("stack", "vstack"):
        place = axis(dim, len(shape) + 1)
        if place is None:
            return call.new(None, part.dtype)
        total = _total([ONE] * len(shaped), [count for _, _, count in shaped])
        return call.new((*shape[:place], total, *shape[place:]), part.dtype, part.why)
    index = axis(dim, len(shape))
    if index is None or any(len(other) != len(shape) for _, other, _ in shaped):
        return call.new(None, part.dtype)
    total = _total([other[index] for _, other, _ in shaped], [count for _, _, count in shaped])
    return call.new(with_size(shape, index, total), part.dtype, part.why)


def _first_tensor(value: Value) -> Tensor | None:
    if isinstance(value, Either):
        return next((part for part in value.values if isinstance(part, Tensor) and part.shape is not None), None)
    return value if isinstance(value, Tensor) else None


def _total(sizes: list[Dim | None] | list[Dim], counts: list[Dim]) -> Dim | None:
    total = ZERO
    for size, count in zip(sizes, counts, strict=True):
        if size is None:
            return None
        total = total + size * count
    return total


def _split(call: TorchCall) -> Value:
    source, shape = _source(call)
    size, dim = call.get(1, "split_size_or_sections", "split_size", "chunks"), call.integer(2, "dim") or 0
    index = axis(dim, len(shape))
    if index is None or size is None:
        return Unknown(f"{call.name} of a value that is unknown")
    runs = segments(size)
    if runs is not None:
        parts = [(call.new(with_size(shape, index, part.dim if isinstance(part, Int) else None), source.dtype), count)
                 for part, count in runs]  # fmt: skip
        whole = elements(Run(tuple(parts)))
        return Run(tuple(parts)) if whole is None else Tuple(whole)
    total = shape[index]
    if not isinstance(size, Int) or total is None:
        return Unknown(f"{call.name} by a size that is unknown")
    each, count = (total // size.dim, size.dim) if call.name in ("chunk", "tensor_split") else (
        size.dim, (total + size.dim - ONE) // size.dim)  # fmt: skip
    return Run(((call.new(with_size(shape, index, each), source.dtype), count),))


def _unbind(call: TorchCall) -> Value:
    source, shape = _source(call)
    index = axis(call.integer(1, "dim") or 0, len(shape))
    count = None if index is None else shape[index]
    if index is None or count is None:
        return Unknown(f"{call.name} of a value that is unknown")
    return Run(((call.new(without(shape, index), source.dtype), count),))


def _narrow(call: TorchCall) -> Value:
    source, shape = _source(call)
    index, length = axis(call.integer(1, "dim"), len(shape)), call.get(3, "length")
    if index is None:
        return call.new(None, source.dtype)
    return call.new(with_size(shape, index, length.dim if isinstance(length, Int) else None), source.dtype)


def _same(call: TorchCall) -> Value:
    source, _ = _source(call)
    return source


def _cast(call: TorchCall) -> Value:
    source, _ = _source(call)
    dtype = DTYPES.get(call.name)
    for value in (*call.args[1:], *call.kwargs.values()):
        if isinstance(value, Tensor):
            dtype = value.dtype or dtype
        elif isinstance(value, Ref | Const) and dtype_of(value) in DTYPES.values():
            dtype = dtype_of(value)
    return Tensor(source.shape, dtype or source.dtype, source.place, source.why, source.ragged)


def _pad(call: TorchCall) -> Value:
    source, shape = _source(call)
    pads = elements(call.get(1, "pad") or Unknown(""))
    if pads is None or len(pads) % 2 or len(pads) // 2 > len(shape):
        return call.new(None, source.dtype)
    sizes = list(shape)
    for i in range(len(pads) // 2):
        before, after, old = pads[2 * i], pads[2 * i + 1], sizes[-1 - i]
        known = isinstance(before, Int) and isinstance(after, Int) and old is not None
        sizes[-1 - i] = old + before.dim + after.dim if known else None  # type: ignore[union-attr, operator]
    return call.new(tuple(sizes), source.dtype)


VIEWS: dict[str, Operation] = {
    "reshape": _on_tensor(_reshape), "view": _on_tensor(_reshape), "unflatten": lambda call: call.new(None, None),
    "flatten": _on_tensor(_flatten), "ravel": _on_tensor(_flatten),
    "unsqueeze": _on_tensor(_unsqueeze), "expand_dims": _on_tensor(_unsqueeze), "squeeze": _on_tensor(_squeeze),
    "expand": _on_tensor(_expand), "expand_as": _on_tensor(_expand), "broadcast_to": _on_tensor(_expand),
    "repeat": _on_tensor(_repeat), "tile": _on_tensor(_repeat),
    "repeat_interleave": _on_tensor(_repeat_interleave),
    "transpose": _on_tensor(_transpose), "swapaxes": _on_tensor(_transpose), "t": _on_tensor(_transpose),
    "permute": _on_tensor(_permute),
    "cat": _cat, "concat": _cat, "concatenate": _cat, "stack": _cat,
    "split": _on_tensor(_split), "chunk": _on_tensor(_split), "tensor_split": _on_tensor(_split),
    "unbind": _on_tensor(_unbind), "narrow": _on_tensor(_narrow), "pad": _on_tensor(_pad),
    **{name: _on_tensor(_same) for name in (
        "contiguous", "clone", "detach", "cpu", "cuda", "pin_memory", "requires_grad_", "data_ptr_", "flip", "roll",
        "tril", "triu", "numpy", "share_memory_", "squeeze_", "copy", "fill_", "copy_", "zero_", "add_", "sub_",
        "mul_", "div_", "clamp_", "clamp_min_", "clamp_max_", "masked_fill_", "masked_fill", "scatter_", "scatter",
        "index_fill_", "index_add_", "index_copy_", "index_put_", "scatter_add_", "uniform_", "normal_", "bernoulli_",
        "logical_or_", "logical_and_", "logical_not_", "bitwise_or_", "bitwise_and_", "exponential_", "sigmoid_",
        "random_", "put_", "index_add", "index_fill", "index_copy", "scatter_add", "scatter_reduce_", "record_stream_",
    )},
    **{name: _on_tensor(_cast) for name in (
        "to", "type", "astype", "float", "long", "int", "half", "bool", "double", "short", "bfloat16", "type_as",
    )},
}  # fmt: skip
"""By the name after ``torch.``, or of the method; the tensor is the first argument."""
