"""From the resolved program to the universe that the rules ask."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from sgltrace.coupling import universe as u
from sgltrace.coupling.query import find_width_fields, width_calls
from sgltrace.coupling.regime import PLAIN, SPEC, last_name
from sgltrace.coupling.scan import Scanner, annotation_class
from sgltrace.coupling.slices import Edge, Graph, graph
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index import Program
from sgltrace.index import syntax as s
from sgltrace.index.entities import FunctionInfo
from sgltrace.index.program import line_of
from sgltrace.index.values import Instance
from sgltrace.index.vocabulary import roles

STEP, START, ADMISSION = "every step", "process start", "request admission"


def universe_of(program: Program, vocabulary: Vocabulary) -> u.Universe:
    """Scan the program's functions and sort them into the engine's parts."""
    infos = _all_functions(program)
    fns = {info.id: _fn(info) for info in infos.values()}
    classes = {c.name: c for m in program.engine.modules.loaded.values() for c in m.classes.values()}
    bases = {name: tuple(last_name(b) or "" for b in c.node.bases) for name, c in classes.items()}
    fields = _algorithm_fields(infos, vocabulary)
    predicates = u.predicates_of(fns.values(), {n: c.node for n, c in classes.items()}, vocabulary)
    predicates.algorithm_fields |= fields
    made = u.Universe(vocabulary, predicates, fns, bases, {}, {})
    patterns = frozenset(p for table in vocabulary.coupling.values() for p in table.get("classes", ()))
    wanted = {f.id for f in program.functions.values()}
    args = vocabulary.names("config_gate", "args_classes")
    wanted |= {
        i
        for i, info in infos.items()
        if _sets_up(info)
        or made.is_a(fns[i].cls, patterns)
        or (info.owner is None and any(annotation_class(p.annotation) in args for p in info.parameters))
    }
    u.derive_predicates([fns[i] for i in sorted(wanted)], predicates)
    for fn_id in sorted(wanted):
        info = infos[fn_id]
        owner = info.owner.name if info.owner else None
        made.add(Scanner(fn_id, info.parameters, info.body, owner, predicates, {}, _typer(info)).facts)
    made.generators = frozenset(i for i, info in infos.items() if info.is_generator)
    _join(made, program)
    find_width_fields(made)
    width_calls(made)
    return made


def _all_functions(program: Program) -> dict[str, FunctionInfo]:
    found = {f.id: f for f in program.functions.values()}
    for module in program.engine.modules.loaded.values():
        for function in module.functions.values():
            found.setdefault(function.id, function)
        for cls in module.classes.values():
            for functions in cls.functions.values():
                for function in functions:
                    found.setdefault(function.id, function)
    return found


def _fn(info: FunctionInfo) -> u.Fn:
    owner, outer = info.owner, info.parent
    while owner is None and outer is not None:
        owner, outer = outer.owner, outer.parent
    return u.Fn(
        info.id,
        info.name,
        owner.name if owner else None,
        info.module.name,
        info.module.path,
        info.line,
        info.parameters,
        lambda: info.body,
        made=info.synthetic_lines is not None,
    )


def _algorithm_fields(infos: dict[str, FunctionInfo], vocabulary: Vocabulary) -> set[str]:
    """Fields that are given an algorithm: by a call on its class, or from a parameter of its type."""
    enums = vocabulary.spec.algorithm_enums
    pattern = re.compile(b"|".join(re.escape(e.encode()) for e in sorted(enums)))
    found: set[str] = set()
    for _, info in sorted(infos.items()):
        if not _speaks(info, pattern):
            continue
        typed = {p.name for p in info.parameters if annotation_class(p.annotation) in enums}
        for statement in _deep(info.body):
            if not isinstance(statement, s.Assign) or not isinstance(statement.targets[0], s.Attr):
                continue
            value = statement.value
            called = isinstance(value, s.Call) and any(last_name(p) in enums for p in s.descend(value.func))
            if called or (isinstance(value, s.Name) and value.id in typed):
                found.add(statement.targets[0].attr)
    return found


def _sets_up(info: FunctionInfo) -> bool:
    """Whether a function that no process reaches belongs to the modules that set up a server."""
    module = info.module.name.partition(".")[2]
    return any(module == name or module.startswith(f"{name}.") for name in roles().also)


def _speaks(info: FunctionInfo, words: re.Pattern[bytes]) -> bool:
    node = info.node
    return isinstance(node, s.Func) and words.search(bytes(node.body)) is not None


def _typer(info: FunctionInfo) -> Callable[[s.Expr], str | None]:
    nodes = info.nodes

    def class_name(expression: s.Expr) -> str | None:
        node = nodes.get(id(expression))
        if node is None:
            return None
        names = sorted({v.cls.name for v in node.values if isinstance(v, Instance)})
        return names[0] if names else None

    return class_name


def _edges(program: Program, known: Iterable[str]) -> list[Edge]:
    lines: dict[tuple[str, str], set[int]] = defaultdict(set)
    ids = set(known)
    for (caller, callee, _), uses in program.engine.edges.items():
        if caller.id in ids and callee.id in ids:
            for use in uses:
                lines[caller.id, callee.id] |= {line_of(e) for e in use.expressions}
    return [Edge(a, b, tuple(sorted(found))) for (a, b), found in sorted(lines.items())]


def _join(made: u.Universe, program: Program) -> None:
    edges = _edges(program, made.fns)
    callers: dict[str, list[str]] = defaultdict(list)
    callees: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        callers[edge.callee].append(edge.caller)
        callees[edge.caller].append(edge.callee)
    made.callers, made.callees = callers, callees
    sort(made, graph(edges, made.facts), program)


def sort(made: u.Universe, calls: Graph, program: Program) -> None:
    """Give each function its part of the engine, its phases and its paths."""
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
    plain = calls.reach(loops, PLAIN, None, outside, lasting)
    target = calls.reach(entries["target"], PLAIN, None, handlers, lasting)
    target_spec = calls.reach(entries["target"], SPEC, None, handlers, lasting)
    worker = {p: calls.reach(entries[p], SPEC, p, handlers, lasting) for p in made.paths}
    others = calls.reach(entries["others"], SPEC, None, handlers, lasting)
    called = set(made.callers)
    roots = [f.id for f in program.functions.values() if f.id not in called and f.name != "<module>"]
    start = calls.reach(roots, SPEC, None, frozenset(loops))
    admission = calls.reach(handlers & set(made.facts), SPEC)
    args = words.names("config_gate", "args_classes")
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
        fn.other = fn.side == u.WORKER and not paths and not shared
    for role, ids in entries.items():
        for entry in ids:
            made.fns[entry].side = u.TARGET if role == "target" else u.WORKER
            made.fns[entry].other = role == "others"
            made.fns[entry].in_worker |= role in ("v1", "v2")
            if role in ("v1", "v2"):
                made.fns[entry].paths = frozenset({role})


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
    return bool(roles & {"scheduler_batch", "worker_batch"}) and any(
        isinstance(st, s.Return) for st in _deep(fn.body())
    )


def _deep(body: list[s.Stmt]) -> Iterable[s.Stmt]:
    for statement in body:
        yield statement
        for block in s.blocks(statement):
            yield from _deep(block)
