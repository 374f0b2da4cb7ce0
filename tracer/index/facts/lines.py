"""Line numbers for LibCST's nodes.

LibCST keeps no positions in its nodes, and its metadata providers cost ten times its parser. Python's own
``ast`` has the lines: both trees hold the same nodes, so the n-th statement of one is the n-th statement of the
other when both are read in source order. What stands inside a statement of one line is on that line; inside the
others the n-th call is the n-th call, and so on. That costs a sixth of the parser. Where ``ast`` cannot read the
file (syntax newer than the running Python) or the two disagree, LibCST's own positions are used.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

CALL, ATTRIBUTE, SUBSCRIPT, LAMBDA = range(4)
_KIND: dict[type, int] = {ast.Call: CALL, ast.Attribute: ATTRIBUTE, ast.Subscript: SUBSCRIPT, ast.Lambda: LAMBDA}


class Mismatch(Exception):
    """The two trees do not hold the same nodes."""


class TooDeep(Exception):
    """Nested beyond what any hand writes. LibCST's parser would overflow its stack, which ends the process, or not come
    to an end: a chain of subscripts costs it the square of its length.
    """


LONGEST_BOOLEAN = 1000
"""Operands of one ``and`` or ``or``, which ``ast`` holds flat and LibCST nested."""
DEEPEST = 500
"""Expressions inside one another, or ``elif`` after ``elif``."""
LONGEST_LINE = 2 * DEEPEST
"""A shorter one has no room for what nests so deeply that LibCST's parser dies of it."""


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
    return [*node.decorator_list, *params, *_by_position([*node.bases, *node.keywords])]


def _function(node: Any) -> list[Any]:
    return [*node.decorator_list, *getattr(node, "type_params", []), node.args, node.returns]


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
    ast.Lambda: lambda n: [n.args, n.body],
    ast.Attribute: lambda n: [n.value],
    ast.Subscript: lambda n: [n.value, n.slice],
    ast.keyword: lambda n: [n.value],
    ast.Expr: lambda n: [n.value],
    ast.Return: lambda n: [n.value],
    ast.Assign: lambda n: [*n.targets, n.value],
    ast.BinOp: lambda n: [n.left, n.right],
    ast.Compare: lambda n: [n.left, *n.comparators],
    ast.ExceptHandler: lambda n: [n.type],
    ast.match_case: lambda n: [n.pattern, n.guard],
    ast.MatchMapping: lambda n: [part for pair in zip(n.keys, n.patterns, strict=True) for part in pair],
}

_LEAVES = frozenset(
    [ast.Name, ast.Constant, ast.Load, ast.Store, ast.Del, ast.alias]
    + [t for t in vars(ast).values() if isinstance(t, type) and issubclass(t, (ast.operator, ast.cmpop))]
    + [t for t in vars(ast).values() if isinstance(t, type) and issubclass(t, (ast.unaryop, ast.boolop))]
)

_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
"""The fields that hold further statements, in source order."""
_HAVE_BLOCKS = frozenset(
    t
    for t in vars(ast).values()
    if isinstance(t, type)
    and issubclass(t, (ast.stmt, ast.excepthandler, ast.match_case))
    and not set(_BLOCKS).isdisjoint(t._fields)
)


def _generic(node: Any) -> list[Any]:
    out: list[Any] = []
    for field in node._fields:
        if field not in _BLOCKS:
            value = getattr(node, field, None)
            if isinstance(value, list):
                out += value
            else:
                out.append(value)
    return out


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a statement, handler or case, and of the expressions in its head (what comes before its blocks)."""

    first: int
    last: int
    inside: list[list[int]] | None
    """The first lines of its calls, attributes, subscripts and lambdas; None where all are on its own first line."""


def lines_of_statements(source: str) -> list[Lines]:
    """The lines of all statements, handlers and cases, in source order.

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
    texts = re.split(r"\r\n?|\n", source)
    out: list[Lines] = []
    elifs: dict[Any, int] = {}
    stack: list[Any] = [*reversed(tree.body)]
    while stack:
        node = stack.pop()
        first = _first_line(node)
        if type(node) in _HAVE_BLOCKS:
            blocks = [block for field in _BLOCKS if (block := getattr(node, field, None))]
            last = getattr(node, "end_lineno", first)
            short = _has_short_head(node, first, blocks[0][0], texts)
            for block in reversed(blocks):
                stack += reversed(block)
            _count_elifs(node, elifs)
            head = blocks[0][0].lineno if hasattr(blocks[0][0], "lineno") else last
        else:
            head = last = node.end_lineno
            short = first == last and node.end_col_offset < LONGEST_LINE
        if not short and sum(map(len, texts[first - 1 : head])) >= LONGEST_LINE:
            _check_depth(node)
        out.append(Lines(first, last, None if short else _lines_inside(node)))
    return out


def check_expression(source: str) -> None:
    """Raise TooDeep, SyntaxError or ValueError for a quoted annotation that must not go to LibCST."""
    if len(source) >= LONGEST_LINE:
        raise TooDeep
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(source, mode="eval")


def _count_elifs(node: Any, elifs: dict[Any, int]) -> None:
    """Note how many ``if`` an ``elif`` stands behind. Raises TooDeep."""
    if type(node) is ast.If and len(node.orelse) == 1 and type(node.orelse[0]) is ast.If:
        count = elifs[node.orelse[0]] = elifs.get(node, 0) + 1
        if count > DEEPEST:
            raise TooDeep


def _check_depth(node: Any) -> None:
    """Raise TooDeep where the expressions of a statement's head nest more than is sound."""
    level = [child for child in _generic(node) if isinstance(child, ast.AST)]
    for _ in range(DEEPEST):
        level = [child for inner in level for child in ast.iter_child_nodes(inner) if type(child) not in _LEAVES]
        if not level:
            return
    raise TooDeep


def _first_line(node: Any) -> int:
    line: int = node.pattern.lineno if type(node) is ast.match_case else node.lineno
    return line


def _has_short_head(node: Any, first: int, inner: Any, texts: list[str]) -> bool:
    """Whether what comes before a node's first block is on one line, as far as that is seen at once."""
    if getattr(node, "decorator_list", None) or len(texts[first - 1]) >= LONGEST_LINE:
        return False
    below = _first_line(inner)
    if below == first:
        return True
    return below == first + 1 and not texts[below - 1][: getattr(inner, "col_offset", 0)].strip()


def _lines_inside(node: Any) -> list[list[int]]:
    lists: list[list[int]] = [[] for _ in _KIND]
    stack = [node]
    while stack:
        node = stack.pop()
        kind_class = type(node)
        kind = _KIND.get(kind_class)
        if kind is not None:
            lists[kind].append(node.lineno)
        elif kind_class is ast.BoolOp and len(node.values) > LONGEST_BOOLEAN:
            raise TooDeep
        order = _ORDER.get(kind_class)
        for child in reversed(order(node) if order is not None else _generic(node)):
            if isinstance(child, ast.AST) and type(child) not in _LEAVES:
                stack.append(child)
    return lists


class PairedLines:
    """Lines handed out in source order. Raises Mismatch where ``ast`` has other nodes."""

    def __init__(self, lines: list[Lines]) -> None:
        self._statements = iter(lines)
        self._inside: list[Iterator[int]] = []

    def enter(self, node: cst.CSTNode) -> Lines:
        """The lines of the next statement, handler or case."""
        self._check_all_paired()
        lines = next(self._statements, None)
        if lines is None:
            raise Mismatch
        self._inside = [iter(kind) for kind in lines.inside or ()]
        return lines

    def expression(self, kind: int, node: cst.CSTNode) -> int:
        """The first line of the next expression of that kind in the statement that was entered last."""
        line = next(self._inside[kind], None)
        if line is None:
            raise Mismatch
        return line

    def finish(self) -> None:
        """Nothing may be left over."""
        self._check_all_paired()
        if next(self._statements, None) is not None:
            raise Mismatch

    def _check_all_paired(self) -> None:
        if any(next(kind, None) is not None for kind in self._inside):
            raise Mismatch


class LibcstLines:
    """Lines from LibCST's own positions: ten times slower, and always there."""

    def __init__(self, module: cst.Module) -> None:
        self._positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)

    def enter(self, node: cst.CSTNode) -> Lines:
        """The lines of a statement, handler or case."""
        named = node.name if isinstance(node, (cst.FunctionDef, cst.ClassDef)) else node
        return Lines(self._positions[named].start.line, self._positions[node].end.line, [])

    def expression(self, kind: int, node: cst.CSTNode) -> int:
        """The first line of an expression."""
        return self._positions[node].start.line
