"""The bodies of functions, such that two can be told to be the same under other names."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from sgltrace.interpreter import deep_recursion
from sgltrace.model import Index
from sgltrace.sources import SourceTree, UndecodableSource, UnreadableFile, decode_source

_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, UndecodableSource)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Line:
    """A statement without the bodies in it: what it is like, and the names in it, in order."""

    shape: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Body:
    """The statements of a function, without its docstring and without the functions in it."""

    lines: tuple[Line, ...]

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """What it is like, whatever its names are."""
        return tuple(line.shape for line in self.lines)

    @cached_property
    def size(self) -> int:
        """How much it tells: a function of two statements is like many others."""
        return sum(1 + len(line.words) for line in self.lines)


class Bodies:
    """The functions of a source as they are written. Files are read when they are asked for."""

    def __init__(self, tree: SourceTree, index: Index) -> None:
        self._tree = tree
        self._files = {function.id: function.file for function in index.functions}
        self._nodes: dict[str, dict[str, FunctionNode]] = {}
        self._bodies: dict[str, Body | None] = {}
        self._data: dict[str, bytes | None] = {}

    def data(self, file: str) -> bytes | None:
        """The bytes of a file; None where there are none."""
        if file not in self._data:
            try:
                self._data[file] = self._tree.read(file)
            except UnreadableFile:
                self._data[file] = None
        return self._data[file]

    def file_of(self, function: str) -> str:
        """The file of a function of the index."""
        return self._files[function]

    def defines(self, function: str, file: str) -> bool:
        """Whether a file has a function of that id, reached or not."""
        return function.partition(":")[2] in self._in(file)

    def body(self, function: str) -> Body | None:
        """The body of a function of the index; None for what is no ``def``, and for what cannot be parsed."""
        if function not in self._bodies:
            node = self._in(self._files[function]).get(function.partition(":")[2])
            self._bodies[function] = None if node is None else Body(tuple(_lines(node)))
        return self._bodies[function]

    def _in(self, file: str) -> dict[str, FunctionNode]:
        if file not in self._nodes:
            found: dict[str, FunctionNode] = {}
            data = self.data(file)
            if data is not None:
                with deep_recursion(), contextlib.suppress(*_UNREADABLE):
                    _collect(ast.parse(decode_source(data)), "", found)
            self._nodes[file] = found
        return self._nodes[file]


def _collect(node: ast.AST, prefix: str, found: dict[str, FunctionNode]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = f"{prefix}{child.name}"
            found.setdefault(name, child)
            _collect(child, f"{name}.<locals>.", found)
        elif isinstance(child, ast.ClassDef):
            _collect(child, f"{prefix}{child.name}.", found)
        elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            _collect(child, prefix, found)


def _lines(function: FunctionNode) -> Iterator[Line]:
    yield _line(function.args)
    body = function.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    yield from _statements(body)


def _statements(body: Iterable[ast.AST]) -> Iterator[Line]:
    for statement in body:
        yield _line(statement)
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "handlers", "cases", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list):
                yield from _statements(inner)


def _line(node: ast.AST) -> Line:
    shape: list[str] = []
    words: list[str] = []
    _read(node, shape, words)
    return Line(" ".join(shape), tuple(words))


def _read(node: ast.AST, shape: list[str], words: list[str]) -> None:
    """The kind of each node, and each name. Statements inside are lines of their own."""
    if isinstance(node, ast.Constant):
        shape.append(repr(node.value)[:40])
        return
    shape.append(type(node).__name__)
    for field, value in ast.iter_fields(node):
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, ast.AST):
            _read(value, shape, words)
        elif isinstance(value, list) and field not in ("type_params", "decorator_list"):
            for item in value:
                if isinstance(item, str):
                    words.append(item)
                elif isinstance(item, ast.AST) and not isinstance(item, (ast.stmt, ast.excepthandler, ast.match_case)):
                    _read(item, shape, words)
