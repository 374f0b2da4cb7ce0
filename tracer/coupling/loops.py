"""Loops over a number of draft steps, and what asks for such a number."""

from __future__ import annotations

from sgltrace.coupling.facts import Call
from sgltrace.coupling.point import Site
from sgltrace.coupling.query import callers, targets
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.scan import deep
from sgltrace.coupling.universe import Fn, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.index.facts import syntax as s


def gathering(universe: Universe, fn: Fn) -> list[tuple[Site, list[Fn]]]:
    """Loops over a number of steps that fill lists, with the functions that get the lists after them."""
    facts = universe.facts[fn.id]
    if not fn.in_worker or fn.other or universe.elsewhere(fn) or not any(c.name == "range" for c in facts.calls):
        return []
    out = []
    for statement in deep(fn.body()):
        match statement:
            case s.For(iter=s.Call(func=s.Name(id="range"), args=[s.Arg(value=bound)]), body=body, line=line):
                end = max([line, *(getattr(inner, "line", 0) for inner in deep(body))])
                filled = {c.owner for c in facts.calls if c.name == "append" and line < c.line <= end}
                if mentions_width(universe, bound, facts):
                    joined = [
                        t for c in facts.calls if c.line > end and _handed(c, filled) for t in targets(universe, c)
                    ]
                    given = any(
                        isinstance(p, s.Name) and p.id in filled for _, v, _ in facts.returns for p in s.descend(v)
                    )
                    taken = [c for c in callers(universe, fn) if c.in_worker] if given else []
                    if joined or taken:
                        out.append((Site(fn.id, line, "loops over the draft's steps", 6), joined + taken))
    return out


def _handed(call: Call, names: set[str]) -> bool:
    return any(isinstance(arg.value, s.Name) and arg.value.id in names for arg in call.node.args)


def asks_one(universe: Universe, fn: Fn) -> bool:
    """Whether a function compares a number of steps with one."""
    widths = universe.vocabulary.spec.widths
    return any(
        isinstance(test, s.Cmp)
        and last_name(test.left) in widths
        and any(isinstance(right, s.Const) and right.value == 1 for right in test.rights)
        for test in (st.test for st in deep(fn.body()) if isinstance(st, s.If))
    )
