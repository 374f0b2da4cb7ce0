"""Shapes as text and as SymPy expressions: for reading, comparing, and evaluating against what was observed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.symbolic.dims import Dim, Op, const, symbol
from sgltrace.index.shapes.symbolic.values import BATCH_SIZE, Either, Int, Obj, Range, Run, Span, Tensor, Tuple, Value

if TYPE_CHECKING:
    import sympy


def shape_text(value: Value) -> str | None:
    """``(bs*num_draft_tokens,)`` of a tensor, the formula of a number, ``[x] * n`` of a list; None where unknown.

    Where a value may be one of several, they are joined by `` or ``.
    """
    match value:
        case Tensor(shape=shape) if shape is not None:
            parts = ["?" if dim is None else str(dim) for dim in shape]
            return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        case Int(dim=dim):
            return str(dim)
        case Run(segments=segments):
            return " + ".join(f"[{shape_text(item) or '?'}] * {_factor(count)}" for item, count in segments) or "[]"
        case Range() as numbers:
            return f"range of {numbers.count}"
        case Tuple(items=items):
            inner = [shape_text(item) for item in items]
            return f"({', '.join(text or '?' for text in inner)}{',' * (len(inner) == 1)})" if any(inner) else None
        case Span(lower=lower, upper=upper):
            bounds = ["" if part is None else shape_text(part) or "?" for part in (lower, upper)]
            return f"slice({', '.join(bounds)})"
        case Either(values=values):
            texts = [text for text in (shape_text(part) for part in values) if text is not None]
            return " or ".join(dict.fromkeys(texts)) or None
    return None


def _factor(dim: Dim) -> str:
    text = str(dim)
    return text if text.replace("_", "").isalnum() else f"({text})"


def dtype_text(value: Value) -> str | None:
    """The dtype of a tensor, ``int`` or ``list`` of Python's own."""
    match value:
        case Tensor(dtype=dtype):
            return dtype
        case Int():
            return "int"
        case Run():
            return "list"
        case Span():
            return "slice"
        case Either(values=values):
            return next((dtype for dtype in map(dtype_text, values) if dtype is not None), None)
    return None


def stride_text(value: Value) -> str | None:
    """Where request ``i`` begins in a tensor: its row, or ``i`` times the rows that each request has."""
    if not isinstance(value, Tensor) or not value.shape or value.shape[0] is None:
        return None
    rows = value.shape[0].exact_quotient(symbol(BATCH_SIZE))
    if rows is None:
        return None
    return "row i" if rows == const(1) else f"i*{_factor(rows)}"


def why_unknown(value: Value) -> str:
    """Why a shape, or a part of it, was not derived."""
    if isinstance(value, Tensor):
        return value.why or "not derived"
    if isinstance(value, Obj):
        return "an object"
    return getattr(value, "why", "not derived")


def expression(dim: Dim) -> sympy.Expr:
    """A dimension as a SymPy expression over positive integer symbols."""
    import sympy

    total: sympy.Expr = sympy.Integer(0)
    for monomial, count in dim.terms.items():
        product: sympy.Expr = sympy.Integer(count)
        for base, power in monomial:
            factor = sympy.Symbol(base, integer=True, positive=True) if isinstance(base, str) else _operation(base)
            product *= factor**power
        total += product
    return total


def _operation(op: Op) -> sympy.Expr:
    import sympy

    args = [expression(arg) for arg in op.args]
    match op.name:
        case "max":
            return sympy.Max(*args)
        case "min":
            return sympy.Min(*args)
        case "//":
            return sympy.floor(args[0] / args[1])
        case "%":
            return sympy.Mod(args[0], args[1])
        case "**":
            return args[0] ** args[1]
    return sympy.Function(op.name)(*args)
