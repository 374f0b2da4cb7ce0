"""From the resolved program to the universe that the rules ask."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from sgltrace.coupling import universe as u
from sgltrace.coupling.regime import SPEC, last_name
from sgltrace.coupling.scan import Scanner
from sgltrace.coupling.slices import Edge, Graph, graph
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index import Program
from sgltrace.index import syntax as s
from sgltrace.index.entities import FunctionInfo
from sgltrace.index.program import line_of
from sgltrace.index.values import Instance

STEP, START = "every step", "process start"


def universe_of(program: Program, vocabulary: Vocabulary) -> u.Universe:
    """Scan the program's functions and sort them into the engine's parts."""
    _load(program, vocabulary)
    infos = _all_functions(program)
    fns = {info.id: _fn(info) for info in infos.values()}
    classes = {c.name: c for m in program.engine.modules.loaded.values() for c in m.classes.values()}
    bases = {name: tuple(last_name(b) or "" for b in c.node.bases) for name, c in classes.items()}
    predicates = u.predicates_of(fns.values(), {n: c.node for n, c in classes.items()}, vocabulary)
    words = _words(vocabulary)
    relevant = {i for i, info in infos.items() if _speaks(info, words)}
    u.derive_predicates([fns[i] for i in sorted(relevant)], predicates)
    made = u.Universe(vocabulary, predicates, fns, bases, {}, {})
    for fn_id in sorted(relevant | {f.id for f in program.functions.values()}):
        info = infos[fn_id]
        facts = Scanner(fn_id, info.parameters, info.body, info.owner.name if info.owner else None, predicates, {},
                        _typer(info)).facts
        made.add(facts)
    made.generators = frozenset(i for i, info in infos.items() if info.is_generator)
    _join(made, program)
    return made


def _load(program: Program, vocabulary: Vocabulary) -> None:
    """Read the modules of the server's arguments and of the front process, which the scheduler's process may not reach."""
    modules = program.engine.modules
    wanted = sorted(vocabulary.names("config_gate", "modules"))
    for name in sorted(program.tree.modules):
        if any(name == f"{program.tree.package}.{w}" or name.startswith(f"{program.tree.package}.{w}.") for w in wanted):
            modules.load(name)


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
        info.id, info.name, owner.name if owner else None, info.module.name, info.module.path, info.line,
        info.parameters, lambda: info.body,
    )


def _words(vocabulary: Vocabulary) -> re.Pattern[bytes]:
    """A pattern that finds the encoded body of a function that speaks of anything the rules look for."""
    spec = vocabulary.spec
    names = spec.info_fields | spec.algorithm_fields | spec.worker_fields | spec.draft_flags | spec.mode_enums
    names |= spec.hidden_enums | spec.input_classes | spec.result_fields | spec.overlap_fields | spec.widths
    for table in vocabulary.coupling.values():
        for values in table.values():
            names |= {v for v in values if v.isidentifier() and len(v) > 3}
    return re.compile(b"speculative_|spec_|" + b"|".join(re.escape(n.encode()) for n in sorted(names)))


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
    loops = [f.id for f in made.fns.values() if made.is_a(f.cls, words.names("worker_dispatch", "schedulers")) and _loops(f)]
    entries = _entries(made)
    stop = frozenset(i for ids in entries.values() for i in ids)
    made.entries = frozenset(i for role in ("v1", "v2", "target") for i in entries[role])
    made.scheduler_classes = tuple(sorted({n for c in words.names("worker_dispatch", "schedulers") for n in made.lineage(c)}))
    made.paths = frozenset(p for p in ("v1", "v2") if entries[p])
    scheduler = {p: calls.reach(loops, SPEC, p, stop) for p in made.paths}
    plain = calls.reach(loops, "plain", None, stop)
    target = calls.reach(entries["target"], "plain")
    target_spec = calls.reach(entries["target"], SPEC)
    worker = {p: calls.reach(entries[p], SPEC, p) for p in made.paths}
    start = calls.reach([f.id for f in program.functions.values() if f.id not in set(loops)][:1], SPEC, None, frozenset(loops))
    args = words.names("config_gate", "args_classes")
    for fn in made.fns.values():
        paths = {p for p in made.paths if fn.id in scheduler[p] or fn.id in worker[p]}
        if fn.id in target or fn.id in target_spec:
            paths |= made.paths
        fn.paths = frozenset(paths)
        phases = set()
        if paths or fn.id in plain:
            phases.add(STEP)
        if fn.id in start or fn.name == "__init__" or made.is_a(fn.cls, args):
            phases.add(START)
        fn.phases = frozenset(phases)
        fn.side = _side(fn.id, plain, target, paths)
    for role, ids in entries.items():
        for entry in ids:
            made.fns[entry].side = u.TARGET if role == "target" else u.WORKER
            if role in ("v1", "v2"):
                made.fns[entry].paths = frozenset({role})


def _side(fn: str, plain: set[str], target: set[str], paths: set[str]) -> str:
    if fn in plain:
        return u.SCHEDULER
    if fn in target:
        return u.TARGET
    return u.WORKER if paths else u.OUTSIDE


def _loops(fn: u.Fn) -> bool:
    return any(isinstance(st, s.While) and isinstance(st.test, s.Const) and st.test.value is True for st in fn.body())


def _entries(made: u.Universe) -> dict[str, list[str]]:
    """The methods by which the scheduler has a batch run: of the target worker, and of each path's worker."""
    words = made.vocabulary
    owners = words.names("worker_dispatch", "workers")
    named: dict[str, int] = defaultdict(int)
    for calls in made.calls.values():
        for call in calls:
            if call.owner in owners and made.is_a(made.fns[call.function].cls, words.names("worker_dispatch", "schedulers")):
                named[call.name] += 1
    out: dict[str, list[str]] = {}
    for role in ("v1", "v2", "target", "others"):
        classes = words.names("worker_dispatch", role)
        out[role] = sorted(
            f.id for f in made.fns.values()
            if f.name in named and f.cls is not None and (f.cls in classes or (role == "others" and made.is_a(f.cls, classes)))
            and _returns_result(f)
        )
    return out


def _returns_result(fn: u.Fn) -> bool:
    """Whether a method takes a batch to run it: it has one besides ``self`` and returns something."""
    return len(fn.params) >= 2 and any(isinstance(st, s.Return) for st in _deep(fn.body()))


def _deep(body: list[s.Stmt]) -> Iterable[s.Stmt]:
    for statement in body:
        yield statement
        for block in s.blocks(statement):
            yield from _deep(block)
