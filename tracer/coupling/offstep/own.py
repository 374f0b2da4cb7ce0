"""Off steps that a release already has: a speculative worker that can run with no draft steps, and what forbids it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgltrace.coupling.offstep.marks import WIDTH
from sgltrace.coupling.offstep.steps import Steps
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.model import OffStep, Place

SHORT = 120


def off_steps(steps: Steps) -> list[OffStep]:
    """Conditions in a worker's step on there being no draft steps, with the gates before them."""
    found: list[OffStep] = []
    for path, entry in sorted(steps.parts.entries.items()):
        tests = list(_tests(steps, entry))
        gates = gates_of(steps) if tests else []
        for line, test in tests:
            if any(_narrows(test, other) for _, other in tests):
                continue
            narrower = [f"line {at} on {text(more)}" for at, more in tests if _narrows(more, test)]
            what = f"runs without draft steps where {text(test)}" + "".join(f"; more depends at {n}" for n in narrower)
            found.append(OffStep(path=path, function=entry.id, line=line, what=what, gates=gates))
    return sorted(found, key=lambda o: (o.path, o.function, o.line))


def _tests(steps: Steps, entry: FunctionInfo) -> Iterator[tuple[int, s.Expr]]:
    """The conditions of a step that ask whether a width is zero."""
    for statement in s.nested(entry.body):
        if isinstance(statement, (s.If, s.While)):
            nodes = {id(m.node) for m in steps.marks.of(entry) if m.source == WIDTH}
            if any(_is_zero(part, nodes) for part in s.descend(statement.test)):
                yield statement.line, statement.test


def _is_zero(node: s.Expr, widths: set[int]) -> bool:
    return (
        isinstance(node, s.Cmp)
        and id(node.left) in widths
        and any(isinstance(right, s.Const) and right.value == 0 for right in node.rights)
    )


def _narrows(test: s.Expr, other: s.Expr) -> bool:
    """Whether ``test`` asks ``other`` and something else."""
    parts = _operands(test)
    return len(parts) > 1 and text(other) in map(text, parts)


def _operands(test: s.Expr) -> list[s.Expr]:
    """What an ``and`` joins, however many; a test that is none stands alone."""
    if isinstance(test, s.Bool) and test.op == "and":
        return [*_operands(test.left), *_operands(test.right)]
    return [test]


def gates_of(steps: Steps) -> list[Place]:
    """Why a configuration may not change its number of steps: texts that are given back, or raised, where the
    adaptive mode is asked for."""
    words = steps.words.spec.adaptive_config
    naming = asking(steps)
    asked = {callee for f in naming for callee, _, _ in steps.sites.out.get(f, ()) if _gives_reasons(callee)}
    for function in naming:
        for callee, _, places in steps.sites.out.get(function, ()):
            chains = [steps.program.guards(function).at(place) for place in places]
            tests = [c.test for chain in chains for c in chain if c.test is not None]
            if any(isinstance(p, s.Attr) and p.attr in words for test in tests for p in s.descend(test)):
                asked |= {c for c, _, _ in steps.sites.out.get(callee, ()) if _gives_reasons(c)}
    found: dict[tuple[str, int], Place] = {}
    for function in {*naming, *asked}:
        for conditions, statement in _refusals(function.body, ()):
            value = statement.value
            reason = _text(value)
            own = any(isinstance(p, s.Attr) and p.attr in words for t, _ in conditions for p in s.descend(t))
            if not conditions or not reason or not (function in asked or (own and isinstance(statement, s.Raise))):
                continue
            test, holds = conditions[-1]
            short = text(test) if len(text(test)) <= SHORT else text(test)[: SHORT - 3] + "..."
            found[function.id, statement.line] = Place(
                function=function.id,
                line=statement.line,
                file=function.module.path,
                what=f"refused where {'' if holds else 'not '}{short}: {reason}",
            )
    return [found[key] for key in sorted(found)]


def asking(steps: Steps) -> list[FunctionInfo]:
    """The functions that ask for the adaptive mode."""
    words = steps.words.spec.adaptive_config
    return sorted({f for word in words for f in steps.marks.loading(word)}, key=lambda f: f.id)


def _gives_reasons(function: FunctionInfo) -> bool:
    """Whether a function gives back a text where something is not supported, and None where nothing is."""
    given = [x.value for x in s.nested(function.body) if isinstance(x, s.Return)]
    none = any(v is None or (isinstance(v, s.Const) and v.value is None) for v in given)
    return none and any(v is not None and _text(v) for v in given)


def _refusals(
    body: Iterable[s.Stmt], under: tuple[tuple[s.Expr, bool], ...]
) -> Iterator[tuple[tuple[tuple[s.Expr, bool], ...], s.Return | s.Raise]]:
    for statement in body:
        if isinstance(statement, (s.Return, s.Raise)):
            yield under, statement
        elif isinstance(statement, s.If):
            yield from _refusals(statement.body, (*under, (statement.test, True)))
            yield from _refusals(statement.orelse, (*under, (statement.test, False)))
        else:
            for inner in s.blocks(statement):
                yield from _refusals(inner, under)


def _text(value: s.Expr | None) -> str:
    """The text of a reason: its constant parts."""
    if value is None:
        return ""
    parts = [str(p.value) for p in s.descend(value) if isinstance(p, s.Const) and isinstance(p.value, str)]
    return " ".join("".join(parts).split())
