"""The resolved program: what later parts of the analysis ask about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import Guards
from sgltrace.index.facts.syntax import line_of
from sgltrace.index.facts.text import text
from sgltrace.index.resolution.engine import Engine
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.uses import Use
from sgltrace.index.resolution.values import Value
from sgltrace.sources import SourceTree

if TYPE_CHECKING:
    from sgltrace.index.program.phases import Phases
    from sgltrace.index.program.roles import Cast


class Program:
    """Reached functions, who calls whom, and what expressions may be."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.tree: SourceTree = engine.tree
        self.functions: dict[str, FunctionInfo] = {}
        for function in engine.reached:
            self.functions.setdefault(function.id, function)
        self.own: frozenset[str] = frozenset(self.functions)
        """The functions that a process reaches; with ``--whole`` others are read besides."""
        self.cast: Cast
        """The parts found: process functions, scheduler, event loops, workers. Set once they are found."""
        self.phases: Phases
        """When each function runs, and on which path. Set once that is known."""
        self._guards: dict[FunctionInfo, Guards] = {}
        self._uses: dict[int, list[Use]] = {}
        for uses in engine.edges.values():
            for use in uses:
                for expression in use.expressions:
                    found = self._uses.setdefault(id(expression), [])
                    if use not in found:
                        found.append(use)

    # --- names ---

    def find_classes(self, name: str) -> list[ClassInfo]:
        """The loaded classes of that name or id, sorted by id."""
        classes = (c for m in self.engine.modules.loaded.values() for c in m.classes.values())
        return sorted((c for c in classes if name in (c.name, c.qualname, c.id)), key=lambda c: c.id)

    def find_functions(self, name: str) -> list[FunctionInfo]:
        """The reached functions whose id is, or ends with, that name, sorted by id."""
        tails = (f".{name}", f":{name}")
        return [f for key, f in sorted(self.functions.items()) if key == name or key.endswith(tails)]

    # --- expressions ---

    def types(self, expression: s.Expr, function: FunctionInfo) -> tuple[Value, ...]:
        """What an expression of a function's body may be. Empty where nothing is known, or it is a constant."""
        node = function.nodes.get(id(expression))
        return tuple(node.values) if node is not None else ()

    def classes_of(self, expression: s.Expr, function: FunctionInfo) -> list[ClassInfo]:
        """The classes of the tree that an expression may be an instance of, sorted by id."""
        from sgltrace.index.resolution.values import Instance

        found = {v.cls for v in self.types(expression, function) if isinstance(v, Instance)}
        return sorted(found, key=lambda c: c.id)

    def resolve_call(self, expression: s.Expr | s.Stmt, function: FunctionInfo) -> list[FunctionInfo]:
        """The functions of the tree that a call (or a property read, a subscript ...) at an expression may run."""
        targets = {t for use in self._uses.get(id(expression), ()) if use.function is function for t in use.targets}
        return sorted(targets, key=lambda f: f.id)

    def callers(self, function: FunctionInfo) -> list[tuple[FunctionInfo, s.Expr | s.Stmt]]:
        """Every place that calls a function, by the caller's id."""
        found = [
            (caller, expression)
            for (caller, callee, _), uses in self.engine.edges.items()
            if callee is function
            for use in uses
            for expression in use.expressions
        ]
        return sorted(found, key=lambda pair: (pair[0].id, line_of(pair[1])))

    def lookup(self, cls: ClassInfo, name: str) -> list[FunctionInfo]:
        """The methods under a name, as Python would find them on an instance."""
        from sgltrace.index.resolution.values import FunctionRef

        found = self.engine.classes.lookup(cls, name)
        return [v.function for v in found[1].values if isinstance(v, FunctionRef)] if found is not None else []

    # --- bodies ---

    def guards(self, function: FunctionInfo) -> Guards:
        """The conditions around each place of a function."""
        found = self._guards.get(function)
        if found is None:
            found = self._guards[function] = Guards(function.body)
        return found

    def statements(self, function: FunctionInfo) -> list[s.Stmt]:
        """A function's statements, always the same objects."""
        return function.body

    def text(self, expression: s.Expr) -> str:
        """An expression as source text."""
        return text(expression)

    def __iter__(self) -> Iterator[FunctionInfo]:
        return iter(list(self.engine.reached))  # to ask about one may have a module read
