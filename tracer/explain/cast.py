"""Who handles the arguments in a release: the record, what makes it, what a launch asks of it, and the scheduler."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from sgltrace.errors import InputError
from sgltrace.explain.vocabulary import Hints
from sgltrace.sources import SourceTree, UndecodableSource, UnreadableFile, decode_source


@dataclass
class Parts:
    """The parts found; what is None or empty was not, and what hangs on it is unknown."""

    module: str
    """The module that defines the record."""
    record: str
    """The class whose options the command line sets."""
    prepare: str | None = None
    """The function that makes the record of the words of a command line."""
    asked: list[str] = field(default_factory=list)
    """What a launch calls on the record, in its order."""
    scheduler_module: str | None = None
    process: str | None = None
    scheduler: str | None = None


def find_parts(tree: SourceTree, hints: Hints) -> Parts:
    """Look for the parts. Raises InputError where no class defines the options of the command line."""
    modules = _Modules(tree)
    scheduler_module = modules.defining(hints.process, [f"{tree.package}.{name}" for name in hints.scheduler_modules])
    candidates = _records(modules)
    if not candidates:
        raise InputError(
            f"{tree.source.requested}: no class defines the options of a command line (no `add_cli_args` beside a "
            f"`from_cli_args` below {tree.package}.srt); sgltrace explains SGLang's servers only"
        )
    imported = modules.names_imported_by(scheduler_module) if scheduler_module else set()
    module, record = min(candidates, key=lambda pair: (pair[1] not in imported, len(pair[0]), pair))
    parts = Parts(module, record, _preparer(modules, module, record))
    parts.asked = _asked(modules, tree, hints, record)
    if scheduler_module is not None:
        parts.scheduler_module = scheduler_module
        parts.process = modules.first(scheduler_module, hints.process)
        parts.scheduler = modules.first(scheduler_module, hints.scheduler) or modules.made_with(
            scheduler_module, parts.process
        )
    return parts


class _Modules:
    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._parsed: dict[str, ast.Module | None] = {}

    def names(self) -> list[str]:
        prefix = f"{self._tree.package}.srt."
        return [name for name in self._tree.modules if name.startswith(prefix)]

    def has(self, module: str) -> bool:
        return module in self._tree.modules

    def data(self, module: str) -> bytes:
        try:
            return self._tree.read_module(module)
        except UnreadableFile:
            return b""

    def tree(self, module: str) -> ast.Module | None:
        if module not in self._parsed:
            try:
                self._parsed[module] = ast.parse(decode_source(self.data(module)))
            except (SyntaxError, ValueError, UndecodableSource):
                self._parsed[module] = None
        return self._parsed[module]

    def top(self, module: str, kind: type | tuple[type, ...]) -> list[ast.stmt]:
        parsed = self.tree(module)
        return [node for node in parsed.body if isinstance(node, kind)] if parsed is not None else []

    def first(self, module: str, patterns: tuple[str, ...]) -> str | None:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names = [getattr(node, "name", "") for node in self.top(module, kinds)]
        return next((name for pattern in patterns for name in names if fnmatchcase(name, pattern)), None)

    def defining(self, patterns: tuple[str, ...], first: list[str]) -> str | None:
        wanted = [f"def {pattern}(".encode() for pattern in patterns]
        for module in [*filter(self.has, first), *self.names()]:
            if any(word in self.data(module) for word in wanted):
                return module
        return None

    def made_with(self, module: str, process: str | None) -> str | None:
        """The class that a process function makes an instance of, of those that its module defines."""
        classes = {getattr(node, "name", "") for node in self.top(module, ast.ClassDef)}
        for node in self.top(module, ast.FunctionDef):
            if getattr(node, "name", "") != process:
                continue
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in classes:
                    return call.func.id
        return None

    def names_imported_by(self, module: str) -> set[str]:
        nodes = self.top(module, ast.ImportFrom)
        return {alias.name for node in nodes for alias in getattr(node, "names", ())}


def _records(modules: _Modules) -> list[tuple[str, str]]:
    found = []
    for module in modules.names():
        data = modules.data(module)
        if b"def add_cli_args" not in data or b"def from_cli_args" not in data:
            continue
        for node in modules.top(module, ast.ClassDef):
            names = {getattr(item, "name", "") for item in node.body}  # type: ignore[attr-defined]
            if {"add_cli_args", "from_cli_args"} <= names:
                found.append((module, node.name))  # type: ignore[attr-defined]
    return found


def _preparer(modules: _Modules, module: str, record: str) -> str | None:
    """The function that adds the record's options to a parser and makes the record of what was parsed."""
    for node in modules.top(module, ast.FunctionDef):
        called = {
            f"{call.func.value.id}.{call.func.attr}"
            for call in ast.walk(node)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
        }
        if {f"{record}.add_cli_args", f"{record}.from_cli_args"} <= called:
            return str(getattr(node, "name", ""))
    return None


def _asked(modules: _Modules, tree: SourceTree, hints: Hints, record: str) -> list[str]:
    """Methods without arguments that a launch calls on the record, as statements, in order."""
    found: dict[str, None] = {}
    for name in hints.launch:
        parsed = modules.tree(f"{tree.package}.{name}") if modules.has(f"{tree.package}.{name}") else None
        for node in ast.walk(parsed) if parsed is not None else ():
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            holders = {arg.arg for arg in node.args.args if _names(arg.annotation, record) or arg.arg == "server_args"}
            for statement in ast.walk(node):
                call = statement.value if isinstance(statement, ast.Expr) else None
                if (
                    isinstance(call, ast.Call)
                    and not call.args
                    and not call.keywords
                    and isinstance(call.func, ast.Attribute)
                    and isinstance(call.func.value, ast.Name)
                    and call.func.value.id in holders
                ):
                    found[call.func.attr] = None
    return list(found)


def _names(annotation: ast.expr | None, record: str) -> bool:
    return annotation is not None and record in ast.unparse(annotation)
