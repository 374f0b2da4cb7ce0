"""How far calls are followed, and which results are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sgltrace.index.fields.tracked import roles
from sgltrace.index.shapes.interpreter.world import World
from sgltrace.index.shapes.symbolic.store import Store
from sgltrace.index.shapes.symbolic.values import (
    Obj,
    Value,
)
from sgltrace.model import PHASES

if TYPE_CHECKING:
    from sgltrace.index.fields import FieldFlow
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import FunctionInfo

MemoKey = tuple["FunctionInfo", tuple["Value | None", ...], tuple[tuple[str, "Value"], ...]]
DEEPEST = 24
"""Calls nested deeper than this are not entered."""
DEEPEST_QUESTION = 5
"""Nor are calls nested so deep in the evaluation of a field that was set when the process started."""
MOST_IN_QUESTION = 300
"""Nor after so many statements in one such evaluation."""
MOST_STATEMENTS = 20_000
"""After so many statements no further function is entered."""


class Limits:
    """The part of the machine that decides whether to enter a function."""

    world: World
    store: Store
    path: str
    moving: set[FunctionInfo]
    """The functions that write a field of the step, themselves or through what they call."""
    stack: list[FunctionInfo]
    questions: list[tuple[int, int]]
    """Of each evaluation under way, how deep in calls and after how many statements it began."""
    spent: int

    def spend(self) -> None:
        """Count a statement."""
        self.spent += 1

    def may_enter(self, function: FunctionInfo) -> bool:
        """Whether a call may still be followed."""
        if len(self.stack) >= DEEPEST or self.spent > MOST_STATEMENTS or function.is_generator:
            return False
        if not self.questions and not self.runs_in_step(function):
            return False
        if self.questions:
            depth, spent = self.questions[0]
            if len(self.stack) - depth >= DEEPEST_QUESTION or self.spent - spent > MOST_IN_QUESTION:
                return False
        return self.stack.count(function) < 2

    def runs_in_step(self, function: FunctionInfo) -> bool:
        """Whether a function runs while the scheduler turns, and not only before, by the call graph."""
        phases = self.world.program.phases
        if any(phases.runs(function, path, phase) for path in (self.path, "any") for phase in PHASES[2:]):
            return True
        return not any(phases.runs(function, "any", phase) for phase in PHASES[:2])

    def is_idle_work(self, function: FunctionInfo, args: list[Value]) -> bool:
        """Whether a call whose result nobody uses leaves nothing behind that shapes depend on."""
        if function in self.moving or function.parent is not None:
            return False
        return not any(isinstance(arg, Obj) and arg.kind in ("list", "dict") for arg in args)

    def memo_key(
        self, function: FunctionInfo, first: Value | None, args: list[Value], kwargs: dict[str, Value]
    ) -> MemoKey | None:
        """What the result of a function that writes no step's field depends on; None where it is not kept."""
        if function in self.moving or function.parent is not None:
            return None
        values = (first, *args, *kwargs.values())
        if any(isinstance(value, Obj) and value.kind in ("list", "dict") for value in values):
            return None
        return function, (first, *args), tuple(kwargs.items())

    @contextmanager
    def aside(self, function: FunctionInfo) -> Iterator[None]:
        """While a function runs that writes no step's field: only its result counts, so it is followed less far."""
        if function in self.moving or self.questions:
            yield
            return
        self.questions.append((len(self.stack), self.spent))
        try:
            yield
        finally:
            self.questions.pop()

    @contextmanager
    def question(self) -> Iterator[None]:
        """While something is evaluated that was there before the step: calls are followed less far, and what they
        change holds for good."""
        mark = self.store.mark()
        self.questions.append((len(self.stack), self.spent))
        try:
            yield
        finally:
            self.questions.pop()
            self.store.keep(mark)


def moving_functions(program: Program, flow: FieldFlow) -> set[FunctionInfo]:
    """The functions from which a write of a field that lives for a step or a request is reached."""
    callers: dict[FunctionInfo, list[FunctionInfo]] = {}
    for caller, callee, _ in program.engine.edges:
        callers.setdefault(callee, []).append(caller)
    lasting = {key for key, role in roles().items() if role.carries == "process"} - {"future_map"}
    pending = [
        function
        for function, accesses in flow.by_function.items()
        if any(a.is_write and a.kind != "default" and flow.role(a.cls) not in lasting for a in accesses)
    ]
    found = set(pending)
    while pending:
        for caller in callers.get(pending.pop(), ()):
            if caller not in found:
                found.add(caller)
                pending.append(caller)
    return found
