"""A module without the bodies of its functions: what its classes and signatures are, at a fraction of the cost.

Modules that are known but not followed are read so. The bodies are blanked out of the text before LibCST reads it,
line by line, so that every line keeps its number.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator


def without_bodies(source: str) -> str:
    """The text with ``...`` for each function's body, on its last line. What ``ast`` cannot read comes back as is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    lines = source.split("\n")
    for first, last, indent in _bodies(tree.body):
        if lines[first - 1][:indent].strip():
            continue  # the body begins on the line on which the signature ends
        lines[first - 1 : last] = [""] * (last - first) + [" " * indent + "..."]
    return "\n".join(lines)


def _bodies(body: list[ast.stmt]) -> Iterator[tuple[int, int, int]]:
    """First line, last line and indentation of each body, where it stands on lines of its own."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = statement.body[0]
            decorators = getattr(first, "decorator_list", [])
            line = min([first.lineno, *(decorator.lineno for decorator in decorators)])
            if line > _end_of_header(statement) and statement.end_lineno is not None:
                yield line, statement.end_lineno, first.col_offset
        else:
            for field in ("body", "orelse", "finalbody", "handlers"):
                for inner in getattr(statement, field, ()):
                    yield from _bodies(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _end_of_header(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The last line that the signature is known to reach."""
    arguments = function.args
    parts: list[ast.AST | None] = [
        *arguments.posonlyargs,
        *arguments.args,
        arguments.vararg,
        *arguments.kwonlyargs,
        arguments.kwarg,
        *arguments.defaults,
        *arguments.kw_defaults,
        function.returns,
    ]
    ends = [getattr(part, "end_lineno", None) or 0 for part in parts if part is not None]
    return max([function.lineno, *ends])
