"""Arithmetic on integers, tensors and sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.symbolic.dims import Dim, const
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.reductions import elementwise, matmul
from sgltrace.index.shapes.symbolic.torchcall import TorchCall
from sgltrace.index.shapes.symbolic.values import (
    NONE,
    Const,
    Either,
    Int,
    Run,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.frames import Frame
    from sgltrace.index.shapes.interpreter.machine import Machine

_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_divide", "%": "remainder", "**": "pow",
               "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "bitwise_left_shift",
               ">>": "bitwise_right_shift"}  # fmt: skip


def binary(m: Machine, frame: Frame, op: str, left: Value, right: Value) -> Value:
    """``left op right``"""
    if isinstance(left, Either) or isinstance(right, Either):
        pairs = [(a, b) for a in alternatives(left) for b in alternatives(right) if NONE not in (a, b)]
        return join_all(binary(m, frame, op, a, b) for a, b in pairs) if pairs else Unknown("None in a sum")
    if isinstance(left, Int) and isinstance(right, Int):
        result = _integers(op, left.dim, right.dim)
        given = dict(left.given + right.given)
        if given and isinstance(result, Int):
            return Int(result.dim.substitute(given), tuple(given.items()))
        return result
    if isinstance(left, Tensor) or isinstance(right, Tensor):
        call = TorchCall(_ARITHMETIC.get(op, op), [left, right], {}, frame.place())
        if op == "@":
            return matmul(call)
        result = elementwise(call)
        if op == "/" and isinstance(result, Tensor) and result.dtype in ("int64", "int32"):
            return Tensor(result.shape, "float32", result.place, result.why)
        return result
    if op in ("+", "*"):
        listed = _sequences(m, op, left, right)
        if listed is not None:
            return listed
    if isinstance(left, Const) and isinstance(right, Const) and op == "|":
        both = (left.value, right.value)
        if all(isinstance(value, bool) for value in both):
            return Const(both[0] or both[1])
    for value in (left, right):
        if isinstance(value, Unknown):
            return value
    return Unknown(f"{op} of values that are not followed")


def _integers(op: str, left: Dim, right: Dim) -> Value:
    match op:
        case "+":
            return Int(left + right)
        case "-":
            return Int(left - right)
        case "*":
            return Int(left * right)
        case "//" if right.constant != 0:
            return Int(left // right)
        case "%" if right.constant != 0:
            return Int(left % right)
        case "**":
            return Int(left**right)
        case "/":
            exact = left.exact_quotient(right)
            return Int(exact) if exact is not None else Unknown("a quotient that may be broken")
    if left.constant is not None and right.constant is not None:
        match op:
            case "|":
                return Int(const(left.constant | right.constant))
            case "&":
                return Int(const(left.constant & right.constant))
            case "<<" if 0 <= right.constant < 64:
                return Int(const(left.constant << right.constant))
    return Unknown(f"{op} of integers")


def _sequences(m: Machine, op: str, left: Value, right: Value) -> Value | None:
    """``[x] * n`` and ``a + b``."""
    a, b = m.view(left), m.view(right)
    if op == "*" and isinstance(b, Tuple | Run):
        a, b = b, a
    if op == "*" and isinstance(a, Tuple | Run) and isinstance(b, Int):
        runs = _runs(a)
        if isinstance(a, Tuple) and b.dim.constant is not None and 0 <= b.dim.constant <= 16:
            return Tuple(a.items * b.dim.constant) if isinstance(left, Tuple) else m.new_list(
                tuple((item, const(1)) for item in a.items * b.dim.constant))  # fmt: skip
        return m.new_list(tuple((value, count * b.dim) for value, count in runs))
    if op == "+" and isinstance(a, Tuple | Run) and isinstance(b, Tuple | Run):
        if isinstance(a, Tuple) and isinstance(b, Tuple) and isinstance(left, Tuple):
            return Tuple(a.items + b.items)
        return m.new_list(_runs(a) + _runs(b))
    return None


def _runs(value: Tuple | Run) -> tuple[tuple[Value, Dim], ...]:
    return value.segments if isinstance(value, Run) else tuple((item, const(1)) for item in value.items)
