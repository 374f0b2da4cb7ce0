"""Sorts functions into the engine's parts: the scheduler, the target's forward pass, a worker, or none of them."""

from __future__ import annotations

import re
from collections import defaultdict

from sgltrace.coupling import universe as u
from sgltrace.coupling.facts import annotation_class
from sgltrace.coupling.regime import PLAIN, SPEC
from sgltrace.coupling.scan import deep
from sgltrace.coupling.slices import Graph
from sgltrace.index.facts import syntax as s

STEP, START, ADMISSION = "every step", "process start", "request admission"
SPECULATIVE = frozenset(
    ["spec_worker", "draft_worker", "spec_input", "draft_input", "draft_extend_input", "verify_input", "verify_output"]
)
"""The roles of classes that have no objects in a plain server."""


def sort(made: u.Universe, calls: Graph, roots: list[str]) -> None:
    """Give each function its side, its phases and its paths. ``roots`` are what starts processes."""
    words = made.vocabulary
    entries = _entries(made)
    stop = frozenset(i for ids in entries.values() for i in ids)
    made.entries = frozenset(i for role in ("v1", "v2", "target") for i in entries[role])
    made.scheduler_classes = tuple(
        sorted({n for c in words.names("worker_dispatch", "schedulers") for n in made.lineage(c)})
    )
    made.paths = frozenset(p for p in ("v1", "v2") if entries[p])
    loops = _event_loops(made, calls)
    handlers = _handlers(made)
    models = frozenset(f.id for f in made.fns.values() if made.role(f.cls) == "model_runner")
    outside = stop | handlers | models
    lasting = _constructors(made)
    scheduler = {
        p: calls.reach([f for f, paths in loops.items() if p in paths], SPEC, p, outside, lasting) for p in made.paths
    }
    absent = lasting | frozenset(f.id for f in made.fns.values() if made.role(f.cls) in SPECULATIVE)
    plain = calls.reach(loops, PLAIN, None, outside, absent)
    above = lasting | frozenset(loops) | _run_batches(made, stop)
    target = calls.reach(entries["target"], PLAIN, None, handlers, absent | above)
    target_spec = calls.reach(entries["target"], SPEC, None, handlers, above)
    worker = {p: calls.reach(entries[p], SPEC, p, handlers, above) for p in made.paths}
    others = calls.reach(entries["others"], SPEC, None, handlers, above)
    start = calls.reach(roots, SPEC, None, frozenset(loops))
    start_only = start - calls.reach(roots, PLAIN, None, frozenset(loops))
    admission = calls.reach(handlers & set(made.facts), SPEC)
    args = words.spec.args_classes
    for fn in made.fns.values():
        paths = {p for p in made.paths if fn.id in scheduler[p] or fn.id in worker[p]}
        shared = fn.id in target or fn.id in target_spec
        fn.paths = frozenset(made.paths if shared else paths)
        phases = set()
        if paths or shared or fn.id in plain or fn.id in others:
            phases.add(STEP)
        if fn.id in start or fn.name == "__init__" or made.is_a(fn.cls, args):
            phases.add(START)
        if fn.id in admission:
            phases.add(ADMISSION)
        fn.phases = frozenset(phases)
        fn.side = _side(fn.id, plain, target, bool(paths) or fn.id in others or shared)
        fn.in_worker = any(fn.id in reached for reached in worker.values())
        if fn.side == u.SCHEDULER and not paths and fn.id not in loops:
            _mark(made, fn.id, PLAIN)
        elif fn.id in start_only and STEP not in phases:
            _mark(made, fn.id, SPEC)
        fn.other = fn.side == u.WORKER and not paths and not shared
    for role, ids in entries.items():
        for entry in ids:
            made.fns[entry].side = u.TARGET if role == "target" else u.WORKER
            made.fns[entry].other = role == "others"
            made.fns[entry].in_worker |= role in ("v1", "v2")
            if role in ("v1", "v2"):
                made.fns[entry].paths = frozenset({role})


def _run_batches(made: u.Universe, entries: frozenset[str]) -> frozenset[str]:
    """The scheduler's functions that hand a batch to a worker: nothing below a worker calls them."""
    callers = {caller for entry in entries for caller in made.callers.get(entry, ())}
    return frozenset(c for c in callers if made.fns[c].cls in made.scheduler_classes)


def _mark(made: u.Universe, function: str, regime: str) -> None:
    """What runs in one regime only belongs to it, whatever its own conditions leave open."""
    facts = made.facts[function]
    for items in (facts.accesses, facts.calls, facts.mentions, facts.refusals):
        for item in items:
            item.regime = item.regime or regime


def _event_loops(made: u.Universe, calls: Graph) -> dict[str, frozenset[str]]:
    """The scheduler's endless loops, with the paths on which they are chosen."""
    classes = made.vocabulary.names("worker_dispatch", "schedulers")
    found = {f.id for f in made.fns.values() if made.is_a(f.cls, classes) or f.cls in made.scheduler_classes}
    loops = {f for f in found if f in made.facts and _loops(made.fns[f])}
    chosen: dict[str, set[str]] = {loop: set() for loop in loops}
    for edges in calls.out.values():
        for callee, _, paths in edges:
            if callee in loops:
                chosen[callee] |= set(made.paths) if None in paths else {p for p in paths if p is not None}
    return {loop: frozenset(paths or made.paths) for loop, paths in sorted(chosen.items())}


def _constructors(made: u.Universe) -> frozenset[str]:
    """The constructors of what lives as long as the process: no step makes one."""
    attention = made.vocabulary.names("attention", "classes")
    return frozenset(
        f.id
        for f in made.fns.values()
        if f.name == "__init__" and (made.role(f.cls) in made.vocabulary.lasting or made.is_a(f.cls, attention))
    )


def _handlers(made: u.Universe) -> frozenset[str]:
    """The scheduler's functions that take a request from outside: what they do is no part of a step."""
    patterns = sorted(made.vocabulary.names("control_surface", "messages"))
    return frozenset(
        f.id
        for f in made.fns.values()
        if f.cls in made.scheduler_classes and any(_message(annotation_class(p.annotation), patterns) for p in f.params)
    )


def _message(cls: str | None, patterns: list[str]) -> bool:
    return cls is not None and any(re.fullmatch(p, cls) for p in patterns)


def _side(fn: str, plain: set[str], target: set[str], reached: bool) -> str:
    if fn in plain:
        return u.SCHEDULER
    if fn in target:
        return u.TARGET
    return u.WORKER if reached else u.OUTSIDE


def _loops(fn: u.Fn) -> bool:
    return any(isinstance(st, s.While) and isinstance(st.test, s.Const) and st.test.value is True for st in fn.body())


def _entries(made: u.Universe) -> dict[str, list[str]]:
    """The methods by which the scheduler has a batch run: of the target worker, and of each path's worker."""
    words = made.vocabulary
    owners = words.names("worker_dispatch", "workers")
    named: dict[str, int] = defaultdict(int)
    for calls in made.calls.values():
        for call in calls:
            if call.owner in owners and made.is_a(
                made.fns[call.function].cls, words.names("worker_dispatch", "schedulers")
            ):
                named[call.name] += 1
    out: dict[str, list[str]] = {}
    for role in ("v1", "v2", "target", "others"):
        classes = words.names("worker_dispatch", role)
        lineage = {name for cls in classes for name in made.lineage(cls)} if role == "target" else classes
        taken = {i for ids in out.values() for i in ids}
        out[role] = sorted(
            f.id
            for f in made.fns.values()
            if f.name in named
            and f.id not in taken
            and (f.cls in lineage or (role == "others" and made.is_a(f.cls, classes)))
            and _runs_a_batch(made, f)
        )
    return out


def _runs_a_batch(made: u.Universe, fn: u.Fn) -> bool:
    """Whether a method takes a batch and returns something."""
    roles = {made.role(annotation_class(p.annotation)) for p in fn.params[1:]}
    return bool(roles & {"scheduler_batch", "worker_batch"}) and any(isinstance(st, s.Return) for st in deep(fn.body()))
