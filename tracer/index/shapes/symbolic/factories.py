"""Torch functions that make a tensor: ``zeros``, ``full``, ``arange``, ``tensor``, the ``_like`` and ``new_`` ones."""

from __future__ import annotations

from sgltrace.index.shapes.symbolic.dims import ONE, ZERO, Dim
from sgltrace.index.shapes.symbolic.torchcall import Operation, Shape, TorchCall, segments
from sgltrace.index.shapes.symbolic.values import Const, Int, Tensor, Unknown, Value, alternatives

DEFAULT_FLOAT = "float32"


def _filled(start: int, *names: str) -> Operation:
    def operation(call: TorchCall) -> Value:
        shape = call.sizes(start, *names)
        return call.new(shape, call.dtype or (DEFAULT_FLOAT if "dtype" not in call.kwargs else None))

    return operation


def _full(call: TorchCall) -> Value:
    size, fill = call.get(0, "size"), call.get(1, "fill_value")
    shape = TorchCall(call.name, [] if size is None else [size], {}, call.place).sizes(0)
    dtype = call.dtype or ("bool" if isinstance(fill, Const) and isinstance(fill.value, bool) else None)
    if dtype is None and "dtype" not in call.kwargs:
        dtype = "int64" if isinstance(fill, Int) else DEFAULT_FLOAT if isinstance(fill, Const) else None
    return call.new(shape, dtype)


def _arange(call: TorchCall) -> Value:
    alone = len(call.args) == 1 and "end" not in call.kwargs
    start = None if alone else call.get(0, "start")
    end = call.args[0] if alone else call.get(1, "end")
    step = call.kwargs.get("step") if alone else call.get(2, "step")
    return call.new((_count(_dim(start, ZERO), _dim(end, None), _dim(step, ONE)),), call.dtype or "int64")


def _dim(value: Value | None, default: Dim | None) -> Dim | None:
    if value is None:
        return default
    return value.dim if isinstance(value, Int) else None


def _count(start: Dim | None, end: Dim | None, step: Dim | None) -> Dim | None:
    if start is None or end is None or step is None:
        return None
    exact = (end - start).exact_quotient(step)
    return exact if exact is not None else (end - start + step - ONE) // step


def _tensor(call: TorchCall) -> Value:
    data = call.get(0, "data", "obj", "object")
    if data is None:
        return Unknown(f"{call.name} of nothing")
    if isinstance(data, Tensor):
        return Tensor(data.shape, call.dtype or data.dtype, call.place, data.why)
    shape, dtype = _nested(data)
    return call.new(shape, call.dtype or dtype, "" if shape is not None else f"{call.name} of a value that is unknown")


def _nested(data: Value) -> tuple[Shape | None, str | None]:
    """The shape and dtype of nested lists."""
    runs = segments(data)
    if runs is None:
        if isinstance(data, Int):
            return (), "int64"
        if isinstance(data, Const):
            return (), "bool" if isinstance(data.value, bool) else DEFAULT_FLOAT if data.value is not None else None
        if isinstance(data, Tensor):
            return data.shape, data.dtype
        return None, None
    count = ZERO
    for _, times in runs:
        count = count + times
    if not runs:
        return (ZERO,), DEFAULT_FLOAT
    first = alternatives(runs[0][0])[0]
    if isinstance(first, Unknown):
        return (count,), None
    inner, dtype = _nested(first)
    return None if inner is None else (count, *inner), dtype


def _like(call: TorchCall) -> Value:
    source = call.tensor(0, "input")
    if source is None:
        return Unknown(f"{call.name} of a value that is unknown")
    return call.new(source.shape, call.dtype or source.dtype, source.why)


def _new(start: int) -> Operation:
    def operation(call: TorchCall) -> Value:
        source = call.tensor(0)
        size = call.get(1, "size")
        if call.name == "new_tensor" and size is not None:
            shape, dtype = _nested(size)
            return call.new(shape, call.dtype or dtype)
        shape = TorchCall(call.name, call.args[start:], call.kwargs, call.place).sizes(0, "size")
        if call.name == "new_full" and size is not None:
            shape = TorchCall(call.name, [size], {}, call.place).sizes(0)
        return call.new(shape, call.dtype or (source.dtype if source else None))

    return operation


def _randint(call: TorchCall) -> Value:
    size = call.kwargs.get("size", call.args[-1] if call.args else None)
    shape = None if size is None else TorchCall(call.name, [size], {}, call.place).sizes(0)
    return call.new(shape, call.dtype or "int64")


def _empty_strided(call: TorchCall) -> Value:
    size = call.get(0, "size")
    return call.new(None if size is None else TorchCall(call.name, [size], {}, call.place).sizes(0), call.dtype)


def _from_numpy(call: TorchCall) -> Value:
    source = call.tensor(0)
    return Unknown(f"{call.name} of a value that is unknown") if source is None else source


FACTORIES: dict[str, Operation] = {
    **{name: _filled(0, "size", "shape") for name in ("empty", "zeros", "ones", "rand", "randn")},
    "full": _full,
    "arange": _arange,
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "array"), _tensor),
    **{f"{name}_like": _like for name in ("empty", "zeros", "ones", "rand", "randn", "full")},
    "randint": _randint,
    "empty_strided": _empty_strided,
    "from_numpy": _from_numpy,
}
"""By the name after ``torch.`` (and ``numpy.``, whose functions take the same arguments)."""

NEW: dict[str, Operation] = {f"new_{name}": _new(1) for name in ("empty", "zeros", "ones", "full", "tensor")}
"""Methods that make a tensor of the receiver's kind."""

TYPED = {
    "LongTensor": "int64", "IntTensor": "int32", "FloatTensor": "float32", "BoolTensor": "bool", "ByteTensor": "uint8",
}  # fmt: skip
"""Constructors by dtype, called with nested lists."""


def typed(call: TorchCall) -> Value:
    """``torch.LongTensor([...])``"""
    shape, _ = _nested(call.args[0]) if call.args else ((ZERO,), None)
    return call.new(shape, TYPED[call.name])
