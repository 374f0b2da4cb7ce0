"""From the resolved program to the universe that the rules ask."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from sgltrace.coupling import universe as u
from sgltrace.coupling.discover import derive_predicates, predicates_of
from sgltrace.coupling.facts import annotation_class, class_defaults
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.scan import deep, scan
from sgltrace.coupling.sides import sort
from sgltrace.coupling.slices import Edge, graph
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.coupling.widths import find_width_fields, width_calls
from sgltrace.index import Program
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.syntax import line_of
from sgltrace.index.program.vocabulary import roles
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.index.resolution.values import Instance


def universe_of(program: Program, vocabulary: Vocabulary) -> u.Universe:
    """Scan the program's functions and sort them into the engine's parts."""
    infos = _all_functions(program)
    fns = {info.id: _fn(info) for info in infos.values()}
    classes = {c.name: c for m in program.engine.modules.loaded.values() for c in m.classes.values()}
    bases = {name: tuple(last_name(b) or "" for b in c.node.bases) for name, c in classes.items()}
    fields = _algorithm_fields(infos, vocabulary)
    predicates = predicates_of(fns.values(), {n: c.node for n, c in classes.items()}, vocabulary)
    predicates.algorithm_fields |= fields
    made = u.Universe(vocabulary, predicates, fns, bases, {}, {})
    made.defaults = {name: class_defaults(c.node) for name, c in sorted(classes.items()) if made.role(name) is not None}
    patterns = frozenset(p for table in vocabulary.coupling.values() for p in table.get("classes", ()))
    wanted = set(program.own)
    args = vocabulary.spec.args_classes
    wanted |= {
        i
        for i, info in infos.items()
        if _sets_up(info)
        or made.is_a(fns[i].cls, patterns)
        or (info.owner is None and any(annotation_class(p.annotation) in args for p in info.parameters))
    }
    derive_predicates([fns[i] for i in sorted(wanted)], predicates)
    for fn_id in sorted(wanted):
        info = infos[fn_id]
        owner = info.owner.name if info.owner else None
        made.add(scan(fn_id, info.parameters, info.body, owner, predicates, _typer(info)))
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
        for statement in deep(info.body):
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


def _edges(program: Program, known: Iterable[str], registering: frozenset[str]) -> list[Edge]:
    """The call edges between known functions; what ``registering`` ones hand on they do not run."""
    lines: dict[tuple[str, str], set[int]] = defaultdict(set)
    ids = set(known)
    for (caller, callee, kind), uses in program.engine.edges.items():
        # A decorator's wrapper calls whatever is decorated; the caller of a decorated function has an edge of its own.
        handed = kind == "callback" and caller.id in registering
        if kind != "decorated" and not handed and caller.id in ids and callee.id in ids:
            for use in uses:
                lines[caller.id, callee.id] |= {line_of(e) for e in use.expressions}
    return [Edge(a, b, tuple(sorted(found))) for (a, b), found in sorted(lines.items())]


def _join(made: u.Universe, program: Program) -> None:
    words = made.vocabulary.names("sides", "register")
    edges = _edges(program, made.fns, frozenset(c.function for name in words for c in made.calls.get(name, ())))
    callers: dict[str, list[str]] = defaultdict(list)
    callees: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        callers[edge.callee].append(edge.caller)
        callees[edge.caller].append(edge.callee)
    made.callers, made.callees = callers, callees
    called = set(callers)
    roots = [f.id for f in program.functions.values() if f.id not in called and f.name != "<module>"]
    sort(made, graph(edges, made.facts), roots)
