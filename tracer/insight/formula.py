"""Shape formulas held against shapes that were seen.

A formula is what the shape interpreter wrote: ``(bs*num_draft_tokens, hidden_size)``, alternatives joined by ``or``,
``?`` for a size that was not derived. Text of an index is data: it is read with a grammar of names, numbers and
arithmetic, and never evaluated as Python.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Number = int | float


class Unknown(Exception):
    """A formula, or a part of one, that cannot be evaluated with what is known."""


@dataclass
class Symbols:
    """Values of symbols. ``free`` ones (a model's sizes) are bound by the first shape that they are held against, and
    speak for a formula but never against it.
    """

    known: dict[str, int]
    free: dict[str, int] = field(default_factory=dict)


def alternatives(formula: str) -> list[str]:
    """The shapes that a formula allows."""
    return [part.strip() for part in formula.split(" or ") if part.strip()]


def dimensions(shape: str) -> list[ast.expr | None]:
    """The sizes of one shape; None for ``?`` and for what is not arithmetic. Raises Unknown for what is no shape."""
    text = shape.strip()
    if not (text.startswith("(") and text.endswith(")")) or len(text) > 2000:
        raise Unknown
    inner = text[1:-1].strip().rstrip(",")
    return [parse(part) for part in _split(inner)] if inner else []


def is_empty(formula: str) -> bool:
    """Whether a formula is of tensors without elements, as an idle rank makes them."""
    try:
        sizes = [dimensions(shape) for shape in alternatives(formula)]
    except Unknown:
        return False
    return bool(sizes) and all(any(isinstance(n, ast.Constant) and n.value == 0 for n in shape) for shape in sizes)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def parse(text: str) -> ast.expr | None:
    """Arithmetic as a tree; None for what is none, or has a size in it that was not derived."""
    if "?" in text:
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def evaluate(node: ast.expr, symbols: Mapping[str, int]) -> Number:
    """The value of arithmetic over symbols. Raises Unknown for an unknown name or another construct."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, evaluate(left, symbols), evaluate(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args) if args:
            values = [evaluate(arg, symbols) for arg in args]
            return _function(name.lower(), values)
    raise Unknown


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv() if right:
            return left // right
        case ast.Div() if right:
            return left / right
        case ast.Mod() if right:
            return left % right
        case ast.Pow() if 0 <= right <= 8 and abs(left) < 1 << 20:
            return left**right
    raise Unknown


def _function(name: str, values: Sequence[Number]) -> Number:
    if name in ("max", "min"):
        return max(values) if name == "max" else min(values)
    if name in ("ceil", "ceiling", "floor") and len(values) == 1:
        return math.floor(values[0]) if name == "floor" else math.ceil(values[0])
    raise Unknown


def agrees(shape: str, seen: Sequence[int], symbols: Symbols) -> bool:
    """Whether one shape of a formula equals a shape that was seen. Raises Unknown where nothing of it is known.

    Sizes that were not derived agree with any. A symbol that no configuration fixes is bound to what it meets first.
    """
    sizes = dimensions(shape)
    if len(sizes) != len(seen):
        return False
    checked = not sizes
    free = dict(symbols.free)
    for size, value in zip(sizes, seen, strict=True):
        if size is None:
            continue
        if isinstance(size, ast.Name) and size.id not in symbols.known:
            # What differs from step to step (a prompt's length) is no size of the model, and says nothing.
            checked |= free.setdefault(size.id, value) == value
            continue
        try:
            wanted = evaluate(size, {**free, **symbols.known})
        except Unknown:
            continue
        if wanted != value:
            return False
        checked = True
    if not checked:
        raise Unknown
    symbols.free.update(free)
    return True
