"""The configuration as data, and conditions over it."""

from __future__ import annotations

import ast
from typing import Any

import msgspec

Value = str | int | float | bool | None | list[Any] | dict[str, Any]


class Open(msgspec.Struct, frozen=True):
    """A value that is not decided: what it may be (empty for anything), and the facts that decide."""

    one_of: list[Value] = []
    by: list[str] = []


class Configuration(msgspec.Struct, kw_only=True):
    """What a command makes of a server.

    ``values`` are arguments after handling; ``open`` those that facts outside the command decide. What is in
    neither is not known. ``worker``, ``path`` and ``overlap`` are None where they are not decided, too.
    """

    values: dict[str, Value] = {}
    open: dict[str, Open] = {}
    worker: str | None = None
    path: str | None = None
    overlap: bool | None = None
    predicates: dict[str, bool] = {}
    """What methods of the algorithm answer, by the end of the dotted name: ``spec_algorithm.is_eagle``."""

    def holds(self, condition: str) -> bool | None:
        """Whether a condition of the source holds here; None where that is not known.

        Names are looked up by the end of the dotted name: ``self.server_args.tp_size > 1``, ``tp_size > 1`` and
        ``get_parallel().tp_size > 1`` mean the same. What is not Python is not known.

        >>> Configuration(values={"tp_size": 8}).holds("self.server_args.tp_size > 1 and not enable_lora") is None
        True
        >>> Configuration(values={"tp_size": 1}).holds("self.server_args.tp_size > 1 and not enable_lora")
        False
        """
        try:
            node = ast.parse(condition.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            return None
        options = _Evaluator(self).values(node)
        if options is None:
            return None
        truths = {bool(option) for option in options}
        return truths.pop() if len(truths) == 1 else None

    def known(self, name: str) -> list[Value] | None:
        """The values that an argument may have; None where nothing is known of it."""
        if name in self.values:
            return [self.values[name]]
        if name in self.open and self.open[name].one_of:
            return list(self.open[name].one_of)
        return None


_COMPARE = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: lambda a, b: a is b or (type(a) is type(b) and a == b),
    ast.IsNot: lambda a, b: not (a is b or (type(a) is type(b) and a == b)),
}  # fmt: skip
_ARITHMETIC = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Div: lambda a, b: a / b, ast.Mod: lambda a, b: a % b,
}  # fmt: skip
_MOST = 64
"""More possibilities than this are not told apart."""


class _Evaluator:
    """The possible values of an expression; None where it may be anything."""

    def __init__(self, configuration: Configuration) -> None:
        self._of = configuration

    def values(self, node: ast.expr) -> list[Any] | None:
        if isinstance(node, ast.Constant):
            return [node.value]
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._named(node)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            negative = isinstance(node.op, ast.USub)
            inner = self.values(node.operand)
            return None if inner is None else _each(lambda a: -a if negative else not a, inner)
        if isinstance(node, ast.BoolOp):
            return self._logical(node)
        if isinstance(node, ast.Compare):
            return self._compared(node)
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self.values(node.left), self.values(node.right)
            return None if left is None or right is None else _each(_ARITHMETIC[type(node.op)], left, right)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            parts = [self.values(item) for item in node.elts]
            return [[p[0] for p in parts if p]] if all(p is not None and len(p) == 1 for p in parts) else None
        return None

    def _named(self, node: ast.expr) -> list[Any] | None:
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        if name == "enable_overlap" and self._of.overlap is not None:
            return [self._of.overlap]
        return self._of.known(name)

    def _called(self, node: ast.Call) -> list[Any] | None:
        if node.args or node.keywords:
            return None
        text = ast.unparse(node.func)
        for name, answer in self._of.predicates.items():
            if text == name or text.endswith(f".{name}"):
                return [answer]
        return None

    def _logical(self, node: ast.BoolOp) -> list[Any] | None:
        decisive = isinstance(node.op, ast.Or)
        doubtful = False
        for part in node.values:
            options = self.values(part)
            truths = None if options is None else {bool(option) for option in options}
            if truths == {decisive}:
                return [decisive]
            doubtful |= truths != {not decisive}
        return None if doubtful else [not decisive]

    def _compared(self, node: ast.Compare) -> list[Any] | None:
        left = self.values(node.left)
        results: list[Any] = [True]
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.values(right_node)
            one = None if left is None or right is None else _each(_COMPARE[type(op)], left, right)
            if one is None:
                return None
            results = one if results == [True] else _each(lambda a, b: a and b, results, one) or []
            left = right
        return results or None


def _each(function: Any, *sides: list[Any]) -> list[Any] | None:
    chosen: list[tuple[Any, ...]] = [()]
    for side in sides:
        chosen = [(*before, value) for before in chosen for value in side]
    if len(chosen) > _MOST:
        return None
    found: list[Any] = []
    for values in chosen:
        try:
            result = function(*values)
        except Exception:
            continue  # Python refuses this possibility
        if not any(result is other or (type(result) is type(other) and result == other) for other in found):
            found.append(result)
    return found or None
