"""Speculative widths (draft steps, tokens, candidates) under the other names that code gives them."""

from __future__ import annotations

from sgltrace.coupling.facts import Access, Facts
from sgltrace.coupling.point import Site
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.universe import Fn, Universe
from sgltrace.index.facts import syntax as s

ARITHMETIC = frozenset(["max", "min", "int", "sum", "ceil", "ceil_align", "next_power_of_2"])
"""Functions that give back a number worked out from what they are handed."""


def mentions_width(universe: Universe, node: s.Expr | None, facts: Facts | None = None, depth: int = 0) -> bool:
    """Whether a value has a speculative width in it: by name, through local names, or through what a call returns.

    A comparison with a width is no width.
    """
    if node is None or depth > 4 or isinstance(node, s.Cmp):
        return False
    widths = universe.vocabulary.spec.widths
    match node:
        case s.Attr(attr=attr):
            if attr in widths or (facts is not None and _own(node) and attr in widths_of(universe, facts.function)):
                return True
            return mentions_width(universe, node.value, facts, depth + 1)
        case s.Name(id=name):
            if name in widths:
                return True
            if facts is None:
                return False
            bound = facts.local.get(name)
            if bound is not None and bound is not node and mentions_width(universe, bound, facts, depth + 1):
                return True
            return any(
                mentions_width(universe, value, facts, depth + 1)
                for _, added, value in facts.augmented
                if added == name
            )
        case s.Call(func=func):
            if last_name(func) in universe.width_calls:
                return True
    return any(mentions_width(universe, part, facts, depth) for part in s.children(node))


def width_calls(universe: Universe) -> frozenset[str]:
    """The names of functions that return a width, directly or through one another."""
    named: dict[str, list[Facts]] = {}
    for function, facts in universe.facts.items():
        if facts.returns and not universe.fns[function].name.startswith("__"):
            named.setdefault(universe.fns[function].name, []).append(facts)
    few = {name: found for name, found in named.items() if len(found) <= 3}
    for _ in range(4):
        before = len(universe.width_calls)
        universe.width_calls |= {
            name
            for name, found in few.items()
            if all(any(_number(universe, v, f) for _, v, _ in f.returns) for f in found)
        }
        if len(universe.width_calls) == before:
            break
    return universe.width_calls


def _number(universe: Universe, value: s.Expr, facts: Facts) -> bool:
    """Whether a returned value is a width, or worked out from one: what a call is handed, it does not give back."""
    made = facts.local.get(value.id, value) if isinstance(value, s.Name) else value
    if isinstance(made, s.Call) and last_name(made.func) not in universe.width_calls | ARITHMETIC:
        return False
    return _amount(value) and mentions_width(universe, value, facts)


def widths_of(universe: Universe, function: str) -> frozenset[str]:
    """The fields of a method's own class that hold a width, besides those that the vocabulary names."""
    cls = universe.fns[function].cls
    return frozenset().union(*(universe.width_fields.get(c, frozenset()) for c in universe.lineage(cls)))


def find_width_fields(universe: Universe) -> None:
    """Fields that a class computes from a width when it is made, such as ``self.max_num_token``."""
    for _ in range(2):
        found: dict[str, set[str]] = {}
        for accesses in universe.writes.values():
            for a in accesses:
                fn = universe.fns[a.function]
                if fn.cls is None or not fn.at_start or a.owner != "self" or a.how != "assign" or a.value is None:
                    continue
                if _amount(a.value) and mentions_width(universe, a.value, universe.facts[a.function]):
                    found.setdefault(fn.cls, set()).add(a.field)
        universe.width_fields = {cls: frozenset(names) for cls, names in sorted(found.items())}


def width_reads(universe: Universe) -> list[Access]:
    """Reads of a width under any of its names."""
    named = {n for names in universe.width_fields.values() for n in names} | universe.vocabulary.spec.widths
    return [
        a
        for a in universe.read(named)
        if a.field in universe.vocabulary.spec.widths
        or (a.owner == "self" and a.field in widths_of(universe, a.function))
    ]


def _own(node: s.Attr) -> bool:
    return isinstance(node.value, s.Name) and node.value.id == "self"


def _amount(value: s.Expr) -> bool:
    """Whether a returned value can be a number: no display, no new object, no call on something else."""
    match value:
        case s.Name() | s.Attr() | s.Bin() | s.Cond() | s.Const():
            return True
        case s.Call(func=s.Name(id=name)):
            return not name[:1].isupper()
        case s.Call(func=s.Attr(value=s.Name(id="self"))):
            return True
    return False


def widths_behind(universe: Universe, fn: Fn) -> list[Site]:
    """The functions that a function asks, at one or two removes, how many tokens a step takes."""
    out: list[Site] = []
    level, seen = [fn.id], {fn.id}
    for weight in (5, 4):
        following = [c for f in level for c in sorted(universe.callees.get(f, ())) if c not in seen]
        for callee in following:
            facts = universe.facts.get(callee)
            if facts is None or callee not in universe.fns or universe.fns[callee].name not in universe.width_calls:
                continue
            out += [
                Site(callee, line, "says how many tokens a step takes", weight)
                for line, value, _ in facts.returns
                if mentions_width(universe, value, facts)
            ]
        seen |= set(following)
        level = following
    return out
