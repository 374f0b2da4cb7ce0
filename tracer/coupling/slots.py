"""Who reserves KV slots: how far from the allocator, before the worker or in it, by what amount."""

from __future__ import annotations

from sgltrace.coupling.point import Site, of, sites
from sgltrace.coupling.query import comes_from
from sgltrace.coupling.universe import WORKER, Fn, Universe
from sgltrace.coupling.wording import show, writes_of


def allocating(universe: Universe) -> dict[str, int]:
    """The functions that reserve KV slots, with the distance to the allocator: 0 calls it, 1 calls one that does."""
    names = universe.vocabulary.names
    owners, methods = names("kv_alloc", "allocators"), names("kv_alloc", "allocate")
    found: dict[str, int] = {}
    for method in sorted(methods):
        for call in universe.calls.get(method, ()):
            if call.owner in owners:
                found[call.function] = 0
    level = sorted(found)
    for distance in (1, 2, 3):
        level = sorted({c for f in level for c in universe.callers.get(f, ()) if c not in found})
        found.update(dict.fromkeys(level, distance))
    return found


def reserving(universe: Universe, functions: list[Fn], what: str) -> list[Site]:
    """The places where functions reserve slots, and what they set."""
    slots = universe.fields("kv_alloc", "slots")
    writes = [a for fn in functions for a in universe.facts[fn.id].accesses if a.write and a.field in slots]
    return sites(writes, writes_of, 5) + [of(fn, what, 5) for fn in functions]


def allocates(universe: Universe, fn: Fn) -> bool:
    """Whether a function reserves slots, at whatever distance."""
    return fn.id in allocating(universe)


def before_the_worker(fn: Fn) -> bool:
    """Whether a function is speculation's own, and the scheduler runs it."""
    return fn.side == WORKER and not fn.in_worker and not fn.other


def reserves(universe: Universe, function: str) -> bool:
    """Whether a function works out what to reserve, or notes it: it, or one that it calls, touches the KV lengths."""
    lengths = universe.fields("kv_bookkeeping", "lengths")
    own = (function, *universe.callees.get(function, ()))
    return any(a.field in lengths for f in own for a in universe.facts[f].accesses)


def keeps_up(universe: Universe, function: str) -> bool:
    """Whether a function takes the greater of the KV lengths and what it works out from them."""
    lengths = universe.fields("kv_bookkeeping", "lengths")
    facts = universe.facts[function]
    if not any(a.field in lengths and not a.write for a in facts.accesses):
        return False
    return any(
        call.name in ("max", "maximum", "clamp", "clamp_", "clip")
        and any(comes_from(arg.value, lengths, facts.local) for arg in call.node.args)
        for call in facts.calls
    )


def formula(universe: Universe, found: list[Fn]) -> str:
    """The amount as the code has it: the local value that compares KV lengths; empty where there is none."""
    lengths = universe.fields("kv_bookkeeping", "lengths")
    for fn in found:
        for name, value in sorted(universe.facts[fn.id].local.items()):
            text = show(value)
            if sum(field in text for field in lengths) >= 2:
                return f"{name} = {text}"
    return ""
