"""Questions that several rules ask: who writes a field with speculation, who without, who reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgltrace.coupling.facts import Access, Call
from sgltrace.coupling.point import Found, Site
from sgltrace.coupling.regime import PLAIN, SPEC
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Fn, Universe
from sgltrace.coupling.wording import show
from sgltrace.index.facts import syntax as s

BATCHES = ("scheduler_batch", "worker_batch", "forward_batch")
DRAFTS = ("draft_input", "draft_extend_input", "spec_input")


def on_path(universe: Universe, items: Iterable[Found], path: str) -> list[Found]:
    """Those of some findings that happen on a path; what belongs to other algorithms and platforms does not."""
    return [
        i
        for i in items
        if path in universe.paths_of(i.function)
        and getattr(i, "path", None) in (None, path)
        and not universe.elsewhere(universe.fns[i.function])
    ]


def is_reset(access: Access) -> bool:
    """Whether a write only clears a field: a constant, an empty container, the attribute of a new object's default."""
    if access.how in ("augment", "in-place", "item"):
        return False
    value = access.value
    match value:
        case s.Const():
            return True
        case s.Seq(items=[]) | s.Map(keys=[]):
            return True
        case s.Unary(value=s.Const()):
            return True
    return False


def is_copy(access: Access) -> bool:
    """Whether a write hands the same field on from another object: ``a.x = b.x``, ``A(x=b.x)``."""
    return isinstance(access.value, s.Attr) and access.value.attr == access.field


def spec_writes(universe: Universe, names: Iterable[str], resets: bool = False) -> list[Access]:
    """Writes that only a speculative server makes."""
    return [
        a
        for a in universe.written(names)
        if (universe.fn(a).side == WORKER or a.regime == SPEC or universe.role(a.cls) in DRAFTS)
        and a.regime != PLAIN
        and (resets or not is_reset(a))
    ]


def plain_writes(universe: Universe, names: Iterable[str]) -> list[Access]:
    """Writes that a server without speculation makes each step and a speculative one does not."""
    return [
        a for a in universe.written(names) if a.regime == PLAIN and universe.fn(a).side != WORKER and not is_reset(a)
    ]


def step_reads(
    universe: Universe, names: Iterable[str], sides: Iterable[str] = (SCHEDULER, TARGET, WORKER)
) -> list[Access]:
    """Reads in code that runs every step, on some sides."""
    allowed = frozenset(sides)
    return [a for a in universe.read(names) if universe.fn(a).per_step and universe.fn(a).side in allowed]


def calls_on(universe: Universe, owners: Iterable[str], names: Iterable[str] | None = None) -> Iterator[Call]:
    """Calls of methods of what a field holds."""
    wanted = None if names is None else frozenset(names)
    for owner in sorted(frozenset(owners)):
        for call in universe.calls_on.get(owner, ()):
            if wanted is None or call.name in wanted:
                yield call


def targets(universe: Universe, call: Call) -> list[Fn]:
    """The functions that a call may run, as the call graph knows them."""
    return [
        universe.fns[callee]
        for callee in sorted(universe.callees.get(call.function, ()))
        if universe.fns[callee].name == call.name
    ]


def by_regime(universe: Universe, calls: Iterable[Call]) -> list[Call]:
    """The calls, each at the place where a regime is chosen: a function that both regimes run hands on its callers'."""
    out = []
    for call in calls:
        fn = universe.fn(call)
        if call.regime is None and fn.side == SCHEDULER:
            above = [c for c in universe.calls.get(fn.name, ()) if fn.id in universe.callees.get(c.function, ())]
            chosen = [c for c in above if c.regime is not None or universe.fn(c).side == WORKER]
            if chosen:
                out += chosen
                continue
        out.append(call)
    return out


def callers(universe: Universe, fn: Fn, depth: int = 1) -> list[Fn]:
    """Who calls a function, up to some steps away, nearest first."""
    seen, out, level = {fn.id}, [], [fn.id]
    for _ in range(depth):
        following = []
        for callee in level:
            for caller in sorted(universe.callers.get(callee, ())):
                if caller not in seen and caller in universe.fns:
                    seen.add(caller)
                    following.append(caller)
                    out.append(universe.fns[caller])
        level = following
    return out


def call_line(universe: Universe, caller: Fn, callee: Fn) -> int:
    """The first line at which one function calls another; the caller's own where it is not known."""
    facts = universe.facts.get(caller.id)
    if facts is not None:
        for call in facts.calls:
            if call.name == callee.name or (callee.name == "__init__" and call.name == callee.cls):
                return call.line
    return caller.line


def held_by(universe: Universe, items: Iterable[Access], roles: Iterable[str], unknown: bool = True) -> list[Access]:
    """The accesses whose holder has one of the roles; ``unknown`` keeps those whose holder is not known."""
    wanted = frozenset(roles)
    out = []
    for access in items:
        role = universe.role(access.cls)
        if role in wanted or (role is None and access.cls is None and unknown):
            out.append(access)
    return out


def paths_of(universe: Universe, functions: Iterable[str]) -> tuple[str, ...]:
    """The paths on which any of the functions runs, in order."""
    found: set[str] = set()
    for function in functions:
        found |= universe.paths_of(function)
    return tuple(sorted(found))


def reads_after(universe: Universe, names: Iterable[str]) -> list[Access]:
    """Reads of fields of the server's arguments, and of the fields that objects copy them into when they are made."""
    reads = [a for a in universe.read(names) if not universe.is_args(universe.fn(a))]
    functions = {a.function: a.field for a in reads if universe.fn(a).at_start}
    copies: set[tuple[str, str | None]] = set()
    for function, field in functions.items():
        for access in universe.facts[function].accesses:
            value = access.value if access.write and access.owner == "self" else None
            if value is not None and any(isinstance(p, s.Attr) and p.attr == field for p in s.descend(value)):
                copies.add((access.field, universe.fns[function].cls))
    for field, cls in sorted(copies, key=str):
        reads += [
            a
            for a in universe.read({field})
            if universe.fn(a).per_step
            and a.owner == "self"
            and (cls in universe.lineage(universe.fn(a).cls) or universe.fn(a).cls in universe.lineage(cls))
        ]
    return reads


def start_writes(universe: Universe, names: Iterable[str]) -> list[Access]:
    """Writes made while a process starts or captures graphs."""
    return [a for a in universe.written(names) if universe.fn(a).at_start]


def decides(universe: Universe, function: str, lines: Iterable[int]) -> list[Site]:
    """The conditions at some lines of a function, as sites."""
    wanted = set(lines)
    facts = universe.facts.get(function)
    if facts is None:
        return []
    return [Site(function, b.line, f"decides by {show(b.test)}", 6) for b in facts.branches if b.line in wanted]


def predicates_in(universe: Universe, function: str) -> list[Site]:
    """The functions that only return a condition on speculation, and that a function asks."""
    known = universe.predicates.derived
    return [
        Site(callee, universe.fns[callee].line, "says whether the process speculates", 4)
        for callee in sorted(universe.callees.get(function, ()))
        if universe.fns[callee].name in known
    ]


def comes_from(node: s.Expr, names: frozenset[str], local: dict[str, s.Expr], depth: int = 0) -> bool:
    """Whether a value has one of some fields in it, by itself or through local names."""
    for part in s.descend(node):
        if isinstance(part, s.Attr) and part.attr in names:
            return True
        if (
            isinstance(part, s.Name)
            and part.id in local
            and depth < 3
            and comes_from(local[part.id], names, local, depth + 1)
        ):
            return True
    return False
