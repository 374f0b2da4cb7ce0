"""The arguments of a call of torch's, and the small questions that every operation asks of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sgltrace.index.shapes.symbolic.dims import ONE, ZERO, Dim, const
from sgltrace.index.shapes.symbolic.values import (
    A_NUMBER,
    Const,
    Either,
    Int,
    Place,
    Range,
    Ref,
    Run,
    Span,
    Tensor,
    Tuple,
    Unknown,
    Value,
)

Shape = tuple[Dim | None, ...]
_FLOATS = ("float64", "float32", "bfloat16", "float16")
_INTS = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = {
    "float": "float32", "long": "int64", "int": "int32", "half": "float16", "double": "float64", "short": "int16",
    "bool": "bool", "uint32": "uint32", "uint16": "uint16", "uint64": "uint64",
    **{name: name for name in (*_FLOATS, *_INTS)},
}  # fmt: skip


@dataclass
class TorchCall:
    """A call of a torch function; of a method, the tensor is the first argument."""

    name: str
    args: list[Value]
    kwargs: dict[str, Value]
    place: Place

    def get(self, position: int, *names: str) -> Value | None:
        """The argument at a position or by one of its names."""
        if position < len(self.args):
            return self.args[position]
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return None

    def tensor(self, position: int, *names: str) -> Tensor | None:
        """That argument, if it is a tensor."""
        value = self.get(position, *names)
        return value if isinstance(value, Tensor) else None

    def integer(self, position: int, *names: str) -> int | None:
        """That argument, if it is a whole number."""
        value = self.get(position, *names)
        return value.dim.constant if isinstance(value, Int) else None

    @property
    def dtype(self) -> str | None:
        """The ``dtype`` asked for."""
        return dtype_of(self.kwargs.get("dtype"))

    def new(self, shape: Shape | None, dtype: str | None, why: str = "") -> Tensor:
        """A tensor made by this call."""
        if shape is None or None in shape:
            why = why or f"{self.name} of something unknown"
        return Tensor(shape, dtype, self.place, why)

    def sizes(self, start: int, *names: str) -> Shape | None:
        """A shape given as one sequence or as several integers, from a position on."""
        value = self.get(start, *names)
        if value is None:
            return ()
        items = elements(value)
        if items is None:
            items = tuple(self.args[start:]) if start < len(self.args) else (value,)
        if items == (value,) and isinstance(value, Unknown | Either) and value != A_NUMBER:
            return None  # it may be a whole shape
        return tuple(item.dim if isinstance(item, Int) else None for item in items)


Operation = Callable[[TorchCall], Value]
"""What a call gives; ``Unknown`` where it cannot be told."""


def dtype_of(value: Value | None) -> str | None:
    """The name of a dtype: ``torch.int64``, ``torch.long``, ``"int64"`` or Python's ``int``."""
    if isinstance(value, Ref):
        return DTYPES.get(value.target.rpartition(".")[2])
    if isinstance(value, Const) and isinstance(value.value, str):
        return DTYPES.get(value.value.rpartition(".")[2], value.value)
    return None


def elements(value: Value) -> tuple[Value, ...] | None:
    """The elements of a sequence of known length."""
    if isinstance(value, Tuple):
        return value.items
    if isinstance(value, Run):
        items: list[Value] = []
        for item, count in value.segments:
            if count.constant is None or count.constant > 64:
                return None
            items += [item] * count.constant
        return tuple(items)
    return None


def segments(value: Value) -> tuple[tuple[Value, Dim], ...] | None:
    """The elements of a sequence as runs."""
    if isinstance(value, Run):
        return value.segments
    if isinstance(value, Tuple):
        return tuple((item, ONE) for item in value.items)
    if isinstance(value, Range):
        return ((Int(value.start), value.count),)
    return None


def axis(dim: int | None, rank: int) -> int | None:
    """A dimension's index counted from the front; None where there is none such."""
    if dim is None or not -rank <= dim < rank:
        return None
    return dim % rank


def without(shape: Shape, index: int) -> Shape:
    """A shape less one dimension."""
    return shape[:index] + shape[index + 1 :]


def with_size(shape: Shape, index: int, size: Dim | None) -> Shape:
    """A shape with one dimension's size set."""
    return (*shape[:index], size, *shape[index + 1 :])


def broadcast(left: Shape | None, right: Shape | None) -> Shape | None:
    """The shape of an elementwise operation on two."""
    if left is None or right is None:
        return None
    rank = max(len(left), len(right))
    left = (ONE,) * (rank - len(left)) + left
    right = (ONE,) * (rank - len(right)) + right
    return tuple(_wider(a, b) for a, b in zip(left, right, strict=True))


def _wider(left: Dim | None, right: Dim | None) -> Dim | None:
    if left == right or right == ONE or right is None:
        return left if left != ONE or right is not None else None
    if left == ONE or left is None:
        return right
    # Both are formulas and the program runs, so they are equal; the one with fewer symbols says more.
    return left if len(left.symbols()) <= len(right.symbols()) else right


def promote(left: str | None, right: str | None) -> str | None:
    """The dtype of an arithmetic operation on two tensors."""
    if left == right or right in (None, "bool"):
        return left
    if left in (None, "bool"):
        return right
    for kinds in (_FLOATS, _INTS):
        for kind in kinds:
            if kind in (left, right):
                return kind
    return None


def slice_size(span: Span, size: Dim | None) -> Dim | None:
    """How many elements ``lower:upper:step`` picks of ``size``, taking the bounds to lie inside."""
    lower = _bound(span.lower, size, ZERO)
    upper = _bound(span.upper, size, size)
    step = ONE if span.step is None else span.step.dim if isinstance(span.step, Int) else None
    if lower is None or upper is None or step is None or (step.constant or 1) < 0:
        return None
    if size is not None and size.constant is not None and upper.constant is not None:
        upper = const(min(upper.constant, size.constant))
    count = upper - lower
    if step != ONE:
        count = (count + step - ONE) // step
    if count.constant is not None and count.constant < 0:
        return ZERO
    return count


def _bound(value: Value | None, size: Dim | None, default: Dim | None) -> Dim | None:
    if value is None or (isinstance(value, Const) and value.value is None):
        return default
    if not isinstance(value, Int):
        return None
    if (value.dim.constant or 0) < 0 or (value.dim.constant is None and all(c < 0 for c in value.dim.terms.values())):
        return None if size is None else size + value.dim
    return value.dim
