"""The values that an expression of the source may have under a configuration, without running anything."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: a is b or (type(a) is type(b) and a == b),
    ast.IsNot: lambda a, b: not (a is b or (type(a) is type(b) and a == b)),
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b, ast.Mod: lambda a, b: a % b,
}  # fmt: skip
MOST = 64
"""More possibilities than this are not told apart."""
DEEP = 12
"""Through so many names a value is followed."""

Options = list[Any]
"""The values that something may have."""


class Evaluator:
    """The possible values of an expression; None where it may be anything.

    ``known`` gives the values of an argument by name, ``meanings`` what other names stand for, ``predicates`` what
    calls of the algorithm's methods answer.
    """

    def __init__(
        self,
        known: Callable[[str], Sequence[Any] | None],
        meanings: dict[str, list[str]],
        predicates: dict[str, bool],
    ) -> None:
        self._known, self._meanings, self._predicates = known, meanings, predicates
        self._found: dict[str, Options | None] = {}
        self._deep = 0

    def truth(self, condition: str) -> bool | None:
        """Whether a condition holds; None where that is not known. What is not Python is not known."""
        node = parsed(condition)
        return None if node is None else _truth(self.values(node))

    def values(self, node: ast.expr) -> Options | None:
        """What an expression may be."""
        match node:
            case ast.Constant(value=value):
                return [value]
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return self._named(name)
            case ast.Call():
                return self._called(node)
            case ast.NamedExpr(value=value):
                return self.values(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                truth = _truth(self.values(operand))
                return None if truth is None else [not truth]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.values(operand)
                return None if inner is None else _each(lambda a: -a, inner)
            case ast.BoolOp():
                return self._logical(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                truth = _truth(self.values(test))
                if truth is not None:
                    return self.values(body if truth else orelse)
                return _either(self.values(body), self.values(orelse))
            case ast.Compare():
                return self._compared(node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                one, other = self.values(left), self.values(right)
                return None if one is None or other is None else _each(_ARITHMETIC[type(op)], one, other)
            case ast.Subscript(value=ast.Tuple(elts=items), slice=ast.Constant(value=int(at))) if at < len(items):
                return self.values(items[at])
            case ast.Subscript(value=value, slice=ast.Constant(value=at)):
                inner = self.values(value)
                return None if inner is None else _each(lambda a: a[at], inner)
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                parts = [self.values(item) for item in items]
                if all(part is not None and len(part) == 1 for part in parts):
                    return [tuple(part[0] for part in parts if part)]
        return None

    def _named(self, name: str) -> Options | None:
        found = self._known(name)
        return list(found) if found is not None else self._meant(name)

    def _meant(self, name: str) -> Options | None:
        """What a name's definitions say, all of them."""
        if name in self._found:
            return self._found[name]
        if name not in self._meanings or self._deep >= DEEP:
            return None
        self._found[name] = None  # a circle
        self._deep += 1
        found: Options | None = []
        for text in self._meanings[name]:
            node = parsed(text)
            found = _either(found, None if node is None else self.values(node))
        self._deep -= 1
        self._found[name] = found
        return found

    def _called(self, node: ast.Call) -> Options | None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if not node.args and not node.keywords:
            text = ast.unparse(node.func)
            for predicate, answer in self._predicates.items():
                if text == predicate or text.endswith(f".{predicate}"):
                    return [answer]
        if name == "getattr" and len(node.args) > 1:
            asked = self.values(node.args[1])
            found: Options | None = []
            for one in asked if asked is not None else [""]:
                found = _either(found, self._named(str(one)))
            return found
        if name == "bool" and len(node.args) == 1:
            truth = _truth(self.values(node.args[0]))
            return None if truth is None else [truth]
        return self._meant(f"{name}()")

    def _logical(self, node: ast.BoolOp) -> Options | None:
        decisive = isinstance(node.op, ast.Or)
        found: Options | None = []
        for part in node.values[:-1]:
            options = self.values(part)
            if _truth(options) is decisive:
                return _either(found, options) if found is not None else [decisive]
            if options is None:
                found = None
            elif found is not None:
                found = _either(found, [option for option in options if bool(option) is decisive])
        last = self.values(node.values[-1])
        if found is None:
            return [decisive] if _truth(last) is decisive else None
        return _either(found, last)

    def _compared(self, node: ast.Compare) -> Options | None:
        left = self.values(node.left)
        results: Options = [True]
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right_node, (ast.Tuple, ast.List, ast.Set)):
                one = self._among(left, right_node.elts, isinstance(op, ast.NotIn))
                right: Options | None = None
            else:
                right = self.values(right_node)
                one = None if left is None or right is None else _each(_COMPARE[type(op)], left, right)
            if one is None:
                return None
            results = one if results == [True] else _each(lambda a, b: a and b, results, one) or []
            left = right
        return results or None

    def _among(self, left: Options | None, items: list[ast.expr], negative: bool) -> Options | None:
        """Whether a value is one of several expressions: known where one of them is it, or none can be."""
        if left is None:
            return None
        found: Options = []
        for value in left:
            sides = [self.values(item) for item in items]
            if any(side is not None and all(value == option for option in side) for side in sides):
                answer: Options = [True]
            elif any(side is None for side in sides):
                return None
            else:
                answer = [False, True] if any(value in side for side in sides if side) else [False]
            found = _either(found, answer) or []
        return [not answer for answer in found] if negative else found


@lru_cache(maxsize=20_000)
def parsed(text: str) -> ast.expr | None:
    """An expression; None for what is none."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _truth(options: Options | None) -> bool | None:
    truths = set() if options is None else {bool(option) for option in options}
    return truths.pop() if len(truths) == 1 else None


def _either(one: Options | None, other: Options | None) -> Options | None:
    if one is None or other is None:
        return None
    found = list(one)
    for value in other:
        if not any(value is known or (type(value) is type(known) and value == known) for known in found):
            found.append(value)
    return found if len(found) <= MOST else None


def _each(function: Callable[..., Any], *sides: Options) -> Options | None:
    chosen: list[tuple[Any, ...]] = [()]
    for side in sides:
        chosen = [(*before, value) for before in chosen for value in side]
    if len(chosen) > MOST:
        return None
    found: Options = []
    for values in chosen:
        try:
            result = function(*values)
        except Exception:
            continue  # Python refuses this possibility
        found = _either(found, [result]) or []
    return found or None
