"""The conditions around a place in a function: enclosing branches, loops and ``try``, and early exits before it."""

from __future__ import annotations

from typing import Any

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.model import Guard

Chain = tuple["Condition", ...]


class Condition:
    """One condition. ``test`` is None where none is written (a bare ``except``, ``try``)."""

    __slots__ = ("_guard", "holds", "kind", "line", "test")

    def __init__(self, test: s.Expr | None, holds: bool, line: int, kind: str) -> None:
        self.test = test
        self.holds = holds
        self.line = line
        self.kind = kind
        self._guard: Guard | None = None

    @property
    def guard(self) -> Guard:
        """The condition as it is written to ``index.json``."""
        if self._guard is None:
            self._guard = Guard("" if self.test is None else text(self.test), self.holds, self.line, self.kind)
        return self._guard


class Guards:
    """Where each statement and expression of a body stands. Short circuits inside expressions count as ``if``."""

    def __init__(self, body: list[s.Stmt]) -> None:
        self._chains: dict[int, Chain] = {}
        self._block(body, ())

    def at(self, node: s.Stmt | s.Expr) -> Chain:
        """The conditions around a statement or expression, outermost first; empty for one not of this body."""
        return self._chains.get(id(node), ())

    def _block(self, body: list[s.Stmt], chain: Chain) -> tuple[Chain, bool]:
        """Walk a block; the conditions that hold behind it, and whether control comes out at its end."""
        for statement in body:
            self._chains[id(statement)] = chain
            chain, through = self._statement(statement, chain)
            if not through:
                # what stands behind cannot run; it is walked so that each node has its place
                rest = body[body.index(statement) + 1 :]
                if rest:
                    self._block(rest, chain)
                return chain, False
        return chain, True

    def _statement(self, statement: s.Stmt, chain: Chain) -> tuple[Chain, bool]:
        match statement:
            case s.If(test=test, body=body, orelse=orelse, line=line):
                return self._if(test, body, orelse, line, chain)
            case s.For(target=target, iter=iterated, body=body, orelse=orelse, line=line):
                self._expression(iterated, chain)
                inside = (*chain, Condition(iterated, True, line, "loop"))
                self._expression(target, inside)
                self._block(body, inside)
                self._block(orelse, chain)
            case s.While(test=test, body=body, orelse=orelse, line=line):
                self._expression(test, chain)
                self._block(body, (*chain, Condition(test, True, line, "loop")))
                self._block(orelse, chain)
                return chain, not (isinstance(test, s.Const) and test.value is True and not _breaks(body))
            case s.With(items=items, body=body):
                for item in items:
                    self._expression(item.value, chain)
                    if item.target is not None:
                        self._expression(item.target, chain)
                return self._block(body, chain)
            case s.Try():
                return self._try(statement, chain)
            case s.Match(subject=subject, cases=cases, line=line):
                self._expression(subject, chain)
                for case in cases:
                    asked = case.values[0] if case.values else case.guard
                    inside = (*chain, Condition(asked, True, line, "case"))
                    for value in case.values:
                        self._expression(value, chain)
                    if case.guard is not None:
                        self._expression(case.guard, inside)
                    self._block(case.body, inside)
            case s.Func(params=params, decorators=decorators):
                for part in [*decorators, *(p.default for p in params if p.default is not None)]:
                    self._expression(part, chain)
            case s.Class(bases=bases, keywords=keywords, decorators=decorators, body=body):
                for part in [*bases, *(k.value for k in keywords), *decorators]:
                    self._expression(part, chain)
                self._block(body, chain)
            case s.Assert(test=test, line=line):
                self._expression(test, chain)
                return (*chain, Condition(test, True, line, "assert")), True
            case _:
                for expression in expressions(statement):
                    self._expression(expression, chain)
                return chain, not isinstance(statement, (s.Return, s.Raise, s.Jump))
        return chain, True

    def _if(
        self, test: s.Expr, body: list[s.Stmt], orelse: list[s.Stmt], line: int, chain: Chain
    ) -> tuple[Chain, bool]:
        self._expression(test, chain)
        _, through_body = self._block(body, (*chain, Condition(test, True, line, "if")))
        after_else, through_else = self._block(orelse, (*chain, Condition(test, False, line, "if")))
        if through_body and through_else:
            return chain, True
        if through_body:  # the else branch leaves: behind the statement the test held
            return (*chain, Condition(test, True, line, "return")), True
        left = Condition(test, False, line, "return")
        # an elif chain of exits: each test that led out did not hold
        further = [c for c in after_else[len(chain) + 1 :] if c.kind == "return"]
        return (*chain, left, *further), through_else

    def _try(self, statement: s.Try, chain: Chain) -> tuple[Chain, bool]:
        guarded = Condition(None, True, statement.line, "try") if statement.handlers else None
        _, through = self._block(statement.body, chain if guarded is None else (*chain, guarded))
        for handler in statement.handlers:
            if handler.type is not None:
                self._expression(handler.type, chain)
            caught = Condition(handler.type, True, statement.line, "except")
            through |= self._block(handler.body, (*chain, caught))[1]
        self._block(statement.orelse, chain)
        _, after = self._block(statement.final, chain)
        return chain, through and after

    def _expression(self, expression: s.Expr, chain: Chain) -> None:
        self._chains[id(expression)] = chain
        special = _SPECIAL.get(type(expression))
        if special is not None:
            special(self, expression, chain)
            return
        for child in s.children(expression):
            self._expression(child, chain)

    def _boolean(self, expression: s.Bool, chain: Chain) -> None:
        left = expression.left
        self._expression(left, chain)
        self._expression(expression.right, (*chain, Condition(left, expression.op == "and", s.line_of(left), "if")))

    def _conditional(self, expression: s.Cond, chain: Chain) -> None:
        test, line = expression.test, s.line_of(expression.test)
        self._expression(test, chain)
        self._expression(expression.body, (*chain, Condition(test, True, line, "if")))
        self._expression(expression.orelse, (*chain, Condition(test, False, line, "if")))

    def _lambda(self, expression: s.Lambda, chain: Chain) -> None:
        for param in expression.params:
            if param.default is not None:
                self._expression(param.default, chain)

    def _comprehension(self, expression: s.Comp, chain: Chain) -> None:
        for gen in expression.gens:
            self._expression(gen.iter, chain)
            self._expression(gen.target, chain)
            for test in gen.tests:
                self._expression(test, chain)
                chain = (*chain, Condition(test, True, s.line_of(test), "if"))
        if expression.key is not None:
            self._expression(expression.key, chain)
        self._expression(expression.element, chain)


_SPECIAL: dict[type, Any] = {
    s.Bool: Guards._boolean,
    s.Cond: Guards._conditional,
    s.Lambda: Guards._lambda,
    s.Comp: Guards._comprehension,
}


def expressions(statement: s.Stmt) -> list[s.Expr]:
    """The expressions that stand directly in a statement without blocks, in source order."""
    match statement:
        case s.Assign(targets=targets, value=value):
            return [*targets, value]
        case s.AnnAssign(target=target, value=value):
            return [target] if value is None else [target, value]
        case s.AugAssign(target=target, value=value):
            return [target, value]
        case s.ExprStmt(value=value):
            return [value]
        case s.Return(value=value) | s.Raise(value=value):
            return [] if value is None else [value]
        case s.Assert(test=test):
            return [test]
        case s.Delete(targets=targets):
            return list(targets)
    return []


def _breaks(body: list[s.Stmt]) -> bool:
    for statement in body:
        if isinstance(statement, s.Jump) and statement.kind == "break":
            return True
        if not isinstance(statement, (s.For, s.While)) and any(_breaks(inner) for inner in s.blocks(statement)):
            return True
    return False
