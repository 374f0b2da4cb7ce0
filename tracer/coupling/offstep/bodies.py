"""The expressions of statements and of bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import expressions


def expressions_of(statement: s.Stmt) -> Iterator[s.Expr]:
    """The expressions of a statement, without those of its blocks."""
    roots: list[s.Expr] = expressions(statement)
    match statement:
        case s.If(test=test) | s.While(test=test):
            roots = [test]
        case s.For(iter=iterated):
            roots = [iterated]
        case s.With(items=items):
            roots = [item.value for item in items]
    for root in roots:
        yield from s.descend(root)


def expressions_in(body: Iterable[s.Stmt]) -> Iterator[s.Expr]:
    """Every expression of some statements and of those inside them."""
    for statement in s.nested(body):
        yield from expressions_of(statement)
