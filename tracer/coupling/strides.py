"""The stride by which a result's tokens are cut: whose it is, and who lays tokens out by it."""

from __future__ import annotations

from collections.abc import Iterable

from sgltrace.coupling.point import Site, sites
from sgltrace.coupling.query import start_writes
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.universe import WORKER, Universe
from sgltrace.coupling.wording import show, writes_of
from sgltrace.index.facts import syntax as s


def on_result(universe: Universe, node: s.Expr, local: dict[str, s.Expr]) -> bool:
    """Whether a stride is an attribute of the result itself."""
    counts = universe.fields("result", "counts")
    for part in s.descend(node):
        if isinstance(part, s.Attr) and part.attr in counts:
            owner = last_name(part.value)
            workers = universe.vocabulary.names("worker_dispatch", "workers")
            if owner not in workers:
                return True
        if isinstance(part, s.Call):
            for fn in universe.fns.values():
                if fn.name == last_name(part.func) and fn.id in universe.facts:
                    reads = universe.facts[fn.id].accesses
                    if any(a.field in counts and universe.role(a.cls) == "result" for a in reads):
                        return True
    return False


def wide_values(universe: Universe, writers: Iterable[str]) -> list[Site]:
    """Worker functions that make the flat tokens: they, or what the writers of results call, return several tensors."""
    out = []
    called = {universe.fns[c].id: universe.fns[c] for f in writers for c in universe.callees.get(f, ())}
    for fn in {**called, **{fn.id: fn for fn in universe.of_class("verify_inputs")}}.values():
        facts = universe.facts.get(fn.id)
        if facts is None or fn.side != WORKER or not fn.per_step:
            continue
        for line, value, _ in facts.returns:
            if isinstance(value, s.Seq) and len(value.items) >= 3:
                out.append(Site(fn.id, line, "returns the flat tokens with their accept lengths", 5))
    return out


def set_at_start(universe: Universe, source: s.Expr) -> list[Site]:
    """Where a worker's own stride is set, if it is one."""
    names = {p.attr for p in s.descend(source) if isinstance(p, s.Attr)} & universe.vocabulary.spec.widths
    roles = ("spec_worker", "draft_worker")
    return sites([a for a in start_writes(universe, names) if universe.role(a.cls) in roles], writes_of, 4)


def line_of_stride(universe: Universe, function: str, source: s.Expr) -> list[Site]:
    """Where a stride is taken."""
    line = getattr(source, "line", 0)
    return [Site(function, line, f"takes {show(source)} as the stride", 7)] if line else []
