"""Line numbers for LibCST's nodes.

LibCST keeps no positions in its nodes, and its metadata providers cost ten times its parser. Python's own
``ast`` has the lines: both trees hold the same nodes, so the n-th call of one is the n-th call of the other
when both are read in source order. That costs a third of the parser. Where ``ast`` cannot read the file
(syntax newer than the running Python) or the two disagree, LibCST's own positions are used.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

STATEMENT, CALL, ATTRIBUTE, SUBSCRIPT, LAMBDA = range(5)
KINDS = 5

Span = tuple[int, int]
"""First and last line."""


class Mismatch(Exception):
    """The two trees do not hold the same nodes."""


class TooDeep(Exception):
    """Nested beyond what Python itself compiles; LibCST's parser would overflow its stack and end the process."""


LONGEST_BOOLEAN = 1000
"""Operands of one ``and`` or ``or``, which ``ast`` holds flat and LibCST nested."""


def _arguments(node: ast.arguments) -> list[Any]:
    positional = node.posonlyargs + node.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(node.defaults)) + list(node.defaults)
    out: list[Any] = []
    for arg, default in zip(positional, defaults, strict=True):
        out += [arg.annotation, default]
    if node.vararg:
        out.append(node.vararg.annotation)
    for arg, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        out += [arg.annotation, default]
    if node.kwarg:
        out.append(node.kwarg.annotation)
    return out


def _by_position(nodes: list[Any]) -> list[Any]:
    return sorted(nodes, key=lambda n: (n.lineno, n.col_offset))


def _call(node: ast.Call) -> list[Any]:
    if node.keywords and node.args and isinstance(node.args[-1], ast.Starred):
        return [node.func, *_by_position([*node.args, *node.keywords])]
    return [node.func, *node.args, *node.keywords]


def _class(node: ast.ClassDef) -> list[Any]:
    params = getattr(node, "type_params", [])
    return [*node.decorator_list, *params, *_by_position([*node.bases, *node.keywords]), *node.body]


def _function(node: Any) -> list[Any]:
    return [*node.decorator_list, *getattr(node, "type_params", []), node.args, node.returns, *node.body]


def _dict(node: ast.Dict) -> list[Any]:
    return [part for pair in zip(node.keys, node.values, strict=True) for part in pair]


_ORDER: dict[type, Callable[[Any], list[Any]]] = {
    ast.arguments: _arguments,
    ast.Call: _call,
    ast.ClassDef: _class,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.Dict: _dict,
    ast.IfExp: lambda n: [n.body, n.test, n.orelse],
    ast.Attribute: lambda n: [n.value],
    ast.Subscript: lambda n: [n.value, n.slice],
    ast.keyword: lambda n: [n.value],
    ast.Expr: lambda n: [n.value],
    ast.Return: lambda n: [n.value],
    ast.Assign: lambda n: [*n.targets, n.value],
    ast.BinOp: lambda n: [n.left, n.right],
    ast.Compare: lambda n: [n.left, *n.comparators],
    ast.If: lambda n: [n.test, *n.body, *n.orelse],
    ast.MatchMapping: lambda n: [part for pair in zip(n.keys, n.patterns, strict=True) for part in pair],
}

_LEAVES = frozenset(
    [ast.Name, ast.Constant, ast.Load, ast.Store, ast.Del, ast.Pass, ast.Break, ast.Continue, ast.alias]
    + [t for t in vars(ast).values() if isinstance(t, type) and issubclass(t, (ast.operator, ast.cmpop))]
    + [t for t in vars(ast).values() if isinstance(t, type) and issubclass(t, (ast.unaryop, ast.boolop))]
)

_KIND: dict[type, int] = {
    ast.Call: CALL,
    ast.Attribute: ATTRIBUTE,
    ast.Subscript: SUBSCRIPT,
    ast.Lambda: LAMBDA,
}
_KIND.update({t: STATEMENT for t in vars(ast).values() if isinstance(t, type) and issubclass(t, ast.stmt)})


def _generic(node: Any) -> list[Any]:
    out: list[Any] = []
    for field in node._fields:
        value = getattr(node, field, None)
        if isinstance(value, list):
            out += value
        elif value is not None:
            out.append(value)
    return out


def spans_by_kind(source: str) -> list[list[Span]]:
    """The spans of all statements, calls, attributes, subscripts and lambdas, each in source order.

    Raises SyntaxError or ValueError where ``ast`` cannot read the source, TooDeep where it must not go to LibCST.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (RecursionError, MemoryError) as error:
        raise TooDeep from error
    except SyntaxError as error:
        if "too many" in str(error.msg):  # nested parentheses, levels of indentation, statically nested blocks
            raise TooDeep from error
        raise
    lists: list[list[Span]] = [[] for _ in range(KINDS)]
    stack: list[Any] = [tree]
    pop, kind_of, order_of, leaves = stack.pop, _KIND.get, _ORDER.get, _LEAVES
    while stack:
        node = pop()
        kind_class = type(node)
        kind = kind_of(kind_class)
        if kind is not None:
            lists[kind].append((node.lineno, node.end_lineno))
            if kind_class in leaves:
                continue
        elif kind_class is ast.BoolOp and len(node.values) > LONGEST_BOOLEAN:
            raise TooDeep
        order = order_of(kind_class)
        for child in reversed(order(node) if order is not None else _generic(node)):
            if (isinstance(child, ast.AST) and type(child) not in leaves) or type(child) in (
                ast.Pass,
                ast.Break,
                ast.Continue,
            ):
                stack.append(child)
    return lists


class PairedLines:
    """Spans handed out in source order."""

    def __init__(self, spans: list[list[Span]]) -> None:
        self._spans = [iter(kind) for kind in spans]

    def span(self, kind: int, node: cst.CSTNode) -> Span:
        """The span of the next node of that kind; raises Mismatch where ``ast`` has no such node."""
        span = next(self._spans[kind], None)
        if span is None:
            raise Mismatch
        return span

    def finish(self) -> None:
        """Raises Mismatch unless every node was paired."""
        if any(next(spans, None) is not None for spans in self._spans):
            raise Mismatch


class LibcstLines:
    """Spans from LibCST's own positions: ten times slower, and always there."""

    def __init__(self, module: cst.Module) -> None:
        self._positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)

    def span(self, kind: int, node: cst.CSTNode) -> Span:
        """The node's span."""
        position = self._positions[node]
        start: int = position.start.line
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            start = self._positions[node.name].start.line
        return start, position.end.line

    def finish(self) -> None:
        """Nothing to check."""
