"""Where a statement runs: its names, its module, its function, and the conditions that led there."""

from __future__ import annotations

from typing import Any

from sgltrace.evaluate.functions import Function, Module, Scope


class Frame:
    """One activation of a function, a class body, a module's top or a comprehension."""

    def __init__(
        self,
        module: Module,
        locals_: Scope,
        enclosing: tuple[Scope, ...] = (),
        function: Function | None = None,
        prefix: str = "",
        caller: Frame | None = None,
    ) -> None:
        self.module = module
        self.locals = locals_
        self.enclosing = enclosing
        self.function = function
        self.prefix = prefix
        self.caller = caller
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.line = 0
        self.conditions: list[tuple[str, int]] = []
        self.yields: list[Any] | None = None
        self.tries = 0
        self.is_class = False

    @property
    def id(self) -> str:
        """``module:qualname`` of the function that runs."""
        return self.function.id if self.function is not None else f"{self.module.name}:"

    def inner_scopes(self) -> tuple[Scope, ...]:
        """What a function defined here closes over: a class's own names are not part of it."""
        if self.is_class:
            return self.enclosing
        return self.enclosing if self.locals is self.module.scope else (self.locals, *self.enclosing)

    def nested(self) -> Frame:
        """The scope of a comprehension."""
        enclosing = self.enclosing if self.locals is self.module.scope else (self.locals, *self.enclosing)
        inner = Frame(self.module, {}, enclosing, self.function, self.prefix, self.caller)
        inner.line, inner.conditions = self.line, self.conditions
        return inner
