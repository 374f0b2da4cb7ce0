"""Off steps that a release already has: a speculative worker that can run with no draft steps, and what forbids it."""

from __future__ import annotations

from sgltrace.coupling.facts import Refusal
from sgltrace.coupling.universe import WORKER, Universe
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.model import OffStep, Place


def off_steps(universe: Universe) -> list[OffStep]:
    """Conditions in the worker's step on there being no draft steps, with the gates before them."""
    entries = [universe.fns[e] for e in sorted(universe.entries) if universe.facts[e].width_tests]
    entries = [fn for fn in entries if fn.side == WORKER and fn.per_step and not fn.other]
    gates = gates_of_adaptive(universe) if entries else []
    out = []
    for fn in entries:
        tests = universe.facts[fn.id].width_tests
        for line, test in tests:
            if any(_narrows(test, other) for _, other in tests):
                continue
            narrower = [f"line {at} on {text(more)}" for at, more in tests if _narrows(more, test)]
            what = f"runs without draft steps where {text(test)}" + "".join(f"; more depends at {n}" for n in narrower)
            out += [OffStep(path=p, function=fn.id, line=line, what=what, gates=gates) for p in sorted(fn.paths)]
    return sorted(out, key=lambda o: (o.path, o.function, o.line))


def _narrows(test: s.Expr, other: s.Expr) -> bool:
    """Whether ``test`` asks ``other`` and something else."""
    parts = _operands(test)
    return len(parts) > 1 and text(other) in map(text, parts)


def _operands(test: s.Expr) -> list[s.Expr]:
    """What an ``and`` joins, however many; a test that is none stands alone."""
    if isinstance(test, s.Bool) and test.op == "and":
        return [*_operands(test.left), *_operands(test.right)]
    return [test]


def gates_of_adaptive(universe: Universe) -> list[Place]:
    """Why a configuration may not change its number of steps: texts that are given back, or raised, for the adaptive
    mode."""
    asked = _about_adaptive(universe)
    found: dict[tuple[str, int], Place] = {}
    for refusal in universe.refusals:
        if refusal.function in asked and refusal.tests:
            fn = universe.fns[refusal.function]
            condition, holds = refusal.tests[-1]
            what = f"refused where {'' if holds else 'not '}{_short(condition)}"
            reason = _text(refusal.value)
            found[fn.id, refusal.line] = Place(
                function=fn.id, line=refusal.line, file=fn.file, what=f"{what}: {reason}" if reason else what
            )
    return [found[key] for key in sorted(found)]


def _about_adaptive(universe: Universe) -> set[str]:
    """Functions on the server's arguments that are asked where the adaptive mode is, or that ask for it themselves."""
    words = universe.vocabulary.spec.adaptive_config
    names = {m.function for word in words for m in universe.mentions.get(word, ())} | {
        a.function for word in words for a in (*universe.reads.get(word, ()), *universe.writes.get(word, ()))
    }
    names = {f for f in names if universe.is_args(universe.fns[f])}
    called = {
        fn.id
        for fn in universe.fns.values()
        if universe.is_args(fn) and fn.cls is None and any(c.function in names for c in universe.calls.get(fn.name, ()))
    }
    return {f for f in called if any(r.how == "reason" for r in universe.refusals_of(f))} | {
        f for f in called & names if any(r.how == "raise" and _mentions(r, words) for r in universe.refusals_of(f))
    }


def _mentions(refusal: Refusal, words: frozenset[str]) -> bool:
    return any(isinstance(p, s.Attr) and p.attr in words for test, _ in refusal.tests for p in s.descend(test))


def _text(value: s.Expr | None) -> str:
    """The text of a reason: its constant parts."""
    if value is None:
        return ""
    parts = [str(p.value) for p in s.descend(value) if isinstance(p, s.Const) and isinstance(p.value, str)]
    return " ".join("".join(parts).split())


def _short(node: s.Expr) -> str:
    out = text(node)
    return out if len(out) <= 120 else out[:117] + "..."
