"""Questions that several rules ask: who writes a field with speculation, who without, who reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sgltrace.coupling.point import Site, site
from sgltrace.coupling.regime import PLAIN, SPEC, last_name
from sgltrace.coupling.scan import Access, Call, Facts
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Fn, Universe
from sgltrace.index import syntax as s
from sgltrace.index.text import text

_SHORT = 72


def show(node: s.Expr | None) -> str:
    """An expression as text, cut where it is long."""
    if node is None:
        return "?"
    out = text(node)
    return out if len(out) <= _SHORT else out[: _SHORT - 3] + "..."


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


def writes_of(access: Access) -> str:
    """What a write does, for a reader."""
    verb = {"augment": "adds to", "in-place": "changes in place", "item": "writes elements of", "delete": "deletes"}
    if access.how in verb:
        return f"{verb[access.how]} {access.field}: {show(access.value)}"
    return f"sets {access.field} = {show(access.value)}"


def reads_of(access: Access) -> str:
    """What a read is for, for a reader."""
    how = {"index": "indexes", "divisor": "divides by", "test": "decides by", "call": "calls on"}
    return f"{how.get(access.how, 'reads')} {access.owner + '.' if access.owner else ''}{access.field}"


def spec_writes(universe: Universe, names: Iterable[str], resets: bool = False) -> list[Access]:
    """Writes that only a speculative server makes."""
    return [
        a
        for a in universe.written(names)
        if (universe.fn(a).side == WORKER or a.regime == SPEC) and a.regime != PLAIN and (resets or not is_reset(a))
    ]


def plain_writes(universe: Universe, names: Iterable[str]) -> list[Access]:
    """Writes that a server without speculation makes each step and a speculative one does not."""
    return [
        a for a in universe.written(names) if a.regime == PLAIN and universe.fn(a).side != WORKER and not is_reset(a)
    ]


def shared_writes(universe: Universe, names: Iterable[str]) -> list[Access]:
    """Writes of a step that both make."""
    return [
        a
        for a in universe.written(names)
        if a.regime is None
        and universe.fn(a).side in (SCHEDULER, TARGET)
        and universe.fn(a).per_step
        and not is_reset(a)
    ]


def step_reads(
    universe: Universe, names: Iterable[str], sides: Iterable[str] = (SCHEDULER, TARGET, WORKER)
) -> list[Access]:
    """Reads in code that runs every step, on some sides."""
    allowed = frozenset(sides)
    return [a for a in universe.read(names) if universe.fn(a).per_step and universe.fn(a).side in allowed]


def weighted(
    universe: Universe, items: Iterable[Access], what: Callable[[Access], str], weigh: Callable[[Access], int]
) -> list[Site]:
    """Sites with a weight for each access."""
    return [site(a, what(a), weigh(a)) for a in items]


def calls_on(universe: Universe, owners: Iterable[str], names: Iterable[str] | None = None) -> Iterator[Call]:
    """Calls of methods of what a field holds."""
    wanted = frozenset(owners)
    method = None if names is None else frozenset(names)
    for name in sorted(universe.calls):
        if method is not None and name not in method:
            continue
        for call in universe.calls[name]:
            if call.owner in wanted:
                yield call


def targets(universe: Universe, call: Call) -> list[Fn]:
    """The functions that a call may run, as the call graph knows them."""
    return [
        universe.fns[callee]
        for callee in sorted(universe.callees.get(call.function, ()))
        if universe.fns[callee].name == call.name
    ]


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
            if all(any(_amount(v) and mentions_width(universe, v, f) for _, v, _ in f.returns) for f in found)
        }
        if len(universe.width_calls) == before:
            break
    return universe.width_calls


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


def owner_name(node: s.Expr) -> str:
    """The last name of an expression, or an empty text."""
    return last_name(node) or ""


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
            if access.write and access.owner == "self" and access.value is not None:
                if any(isinstance(p, s.Attr) and p.attr == field for p in s.descend(access.value)):
                    copies.add((access.field, universe.fns[function].cls))
    for field, cls in sorted(copies, key=str):
        reads += [
            a
            for a in universe.read({field})
            if (universe.fn(a).per_step
            and a.owner == "self"
            and cls in universe.lineage(universe.fn(a).cls))
            or (universe.fn(a).per_step and a.owner == "self" and universe.fn(a).cls in universe.lineage(cls))
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


BATCHES = ("scheduler_batch", "worker_batch", "forward_batch")
DRAFTS = ("draft_input", "draft_extend_input", "spec_input")
