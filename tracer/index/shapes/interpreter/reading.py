"""What a function's or class's statements assign, call and import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import Chain, Guards, expressions

if TYPE_CHECKING:
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import FunctionInfo


@dataclass(frozen=True)
class Assignment:
    """``target = value`` in a function. ``index`` is the target's position where ``count`` targets unpack the value;
    ``element`` says that a loop gives the target the value's elements."""

    function: FunctionInfo
    value: s.Expr
    guards: tuple[tuple[s.Expr, bool], ...]
    index: int | None = None
    count: int = 0
    annotation: s.Expr | None = None
    element: bool = False
    line: int = 0


def calls_in(body: list[s.Stmt]) -> list[s.Call]:
    """The calls in statements, those in nested blocks too."""
    return [
        node
        for statement in s.nested(body)
        for expression in expressions(statement)
        for node in s.descend(expression)
        if isinstance(node, s.Call)
    ]


def imports_in(body: list[s.Stmt]) -> list[s.Import | s.ImportFrom]:
    """The import statements, those in nested blocks too."""
    return [statement for statement in s.nested(body) if isinstance(statement, s.Import | s.ImportFrom)]


def runs_base(call: s.Call, base: FunctionInfo) -> bool:
    """Whether a call in a constructor runs the constructor ``base``."""
    func = call.func
    if not isinstance(func, s.Attr) or func.attr != base.name:
        return False
    value = func.value
    if isinstance(value, s.Call):
        return isinstance(value.func, s.Name) and value.func.id == "super"
    return isinstance(value, s.Name) and base.owner is not None and value.id == base.owner.name


def body_values(body: list[s.Stmt]) -> dict[str, s.Expr]:
    """What a class body assigns."""
    values: dict[str, s.Expr] = {}
    for statement in body:
        if isinstance(statement, s.Assign):
            for target in statement.targets:
                if isinstance(target, s.Name):
                    values[target.id] = statement.value
        elif isinstance(statement, s.AnnAssign) and statement.value is not None:
            if isinstance(statement.target, s.Name):
                values[statement.target.id] = statement.value
        else:
            for inner in s.blocks(statement):
                values |= body_values(inner)
    return values


def assignments(program: Program, function: FunctionInfo) -> list[tuple[s.Expr, Assignment]]:
    """The assignments in a function and their targets."""
    guards = program.guards(function)
    out: list[tuple[s.Expr, Assignment]] = []
    _collect(function, function.body, guards, out)
    return out


def _collect(function: FunctionInfo, body: list[s.Stmt], guards: Guards, out: list[tuple[s.Expr, Assignment]]) -> None:
    for statement in body:
        tests = _tests(guards.at(statement))
        if isinstance(statement, s.Assign):
            for target in statement.targets:
                _targets(target, Assignment(function, statement.value, tests, line=statement.line), out)
        elif isinstance(statement, s.AnnAssign) and statement.value is not None:
            made = Assignment(function, statement.value, tests, annotation=statement.annotation, line=statement.line)
            out.append((statement.target, made))
        elif isinstance(statement, s.For):
            _targets(
                statement.target, Assignment(function, statement.iter, tests, element=True, line=statement.line), out
            )
        elif isinstance(statement, s.With):
            for item in statement.items:
                if item.target is not None:
                    _targets(item.target, Assignment(function, item.value, tests, line=statement.line), out)
        for inner in s.blocks(statement):
            _collect(function, inner, guards, out)


def _targets(target: s.Expr, assignment: Assignment, out: list[tuple[s.Expr, Assignment]]) -> None:
    if not isinstance(target, s.Seq):
        out.append((target, assignment))
        return
    for i, item in enumerate(target.items):
        if not isinstance(item, s.Star | s.Seq):
            out.append((item, replace(assignment, index=i, count=len(target.items))))


def _tests(chain: Chain) -> tuple[tuple[s.Expr, bool], ...]:
    return tuple((c.test, c.holds) for c in chain if c.test is not None and c.kind in ("if", "return", "assert"))


def is_none(node: s.Expr) -> bool:
    """Whether an expression is None as written."""
    return isinstance(node, s.Const) and node.value is None
