"""From a source tree to the index: one place that wires the parts together."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from sgltrace import __version__
from sgltrace.files import user_cache_dir
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.store import Facts
from sgltrace.index.facts.syntax import line_of
from sgltrace.index.facts.text import text
from sgltrace.index.program.chosen import chosen
from sgltrace.index.program.conditions import decode_conditions
from sgltrace.index.program.phases import Phases
from sgltrace.index.program.program import Program
from sgltrace.index.program.roles import find_cast, find_processes
from sgltrace.index.program.unread import unread_parts
from sgltrace.index.program.vocabulary import roles
from sgltrace.index.resolution.engine import Engine
from sgltrace.index.resolution.entities import FunctionInfo, ModuleInfo
from sgltrace.index.resolution.settle import assume_made
from sgltrace.index.resolution.uses import Site
from sgltrace.interpreter import deep_recursion, no_collection
from sgltrace.model import CallEdge, CallSite, Function, Index, SkippedFile, Unresolved
from sgltrace.progress import Progress
from sgltrace.sources import SourceTree


@dataclass(frozen=True)
class IndexOptions:
    """How much to read, and where facts are kept.

    ``whole``: prefixes of modules to read besides what is needed. ``followed``: classes whose modules are followed
    where a package is searched for modules at run time; None for all of them.
    """

    whole: tuple[str, ...] = ()
    followed: tuple[str, ...] | None = field(default_factory=lambda: roles().followed)
    cache_dir: Path | None = field(default_factory=user_cache_dir)
    jobs: int | None = None


def analyse(tree: SourceTree, options: IndexOptions, progress: Progress) -> Program:
    """Resolve the program from its entry points. Raises InputError where the tree has no speculative worker."""

    def outlined(module: str) -> bool:
        return roles().is_outlined(module) and not _below(module, options.whole)

    progress.stage("Reading modules and resolving calls")
    with Facts(tree, options.cache_dir, options.jobs, outlined, progress) as facts, no_collection(), deep_recursion():
        engine = Engine(tree, facts)
        engine.modules.followed = None if options.whole else options.followed
        facts.prefetch(_also(tree))
        processes = find_processes(engine, roles())
        for function in processes:
            engine.entry(function)
        engine.run()
        _assume_arguments(engine, list(filter(None, map(engine.modules.load, _also(tree)))))
        own = frozenset(function.id for function in engine.reached)
        if options.whole:
            _reach_all(engine, [name for name in tree.modules if _below(name, options.whole)])
        program = Program(engine)
        program.own = own
        program.cast = find_cast(program, roles(), processes)
        program.phases = Phases(program, roles(), program.cast)
        program.cast.notes += _notes(program)
    return program


def _notes(program: Program) -> list[str]:
    """What was left out of this index, for the reader."""
    engine, notes = program.engine, []
    outlined = sum(module.is_outline for module in engine.modules.loaded.values())
    if outlined:
        notes.append(
            f"{outlined} modules (other platforms, weights, storage, front end) are known by their classes and "
            f"signatures only; --whole follows them"
        )
    left = len(engine.modules.not_followed)
    if left:
        notes.append(f"{left} models that are found by searching a package are not followed; --whole follows them")
    notes += [f"{function.id} is nested too deeply to be read" for function in engine.unread]
    if engine.solver.lost:
        notes.append(f"{engine.solver.lost} values lead in circles, and were not followed to the end")
    notes += [
        f"{file} cannot be read: what stands in it is unknown, and not absent" for file in unread_parts(engine, roles())
    ]
    return notes


def _below(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{prefix}.") for prefix in prefixes)


def _assume_arguments(engine: Engine, modules: list[ModuleInfo]) -> None:
    """The objects of these modules' classes that a process is given were made before it started."""
    for module in modules:
        for cls in module.classes.values():
            if cls in engine.declared and not cls.instantiated:
                assume_made(engine, cls)
    engine.run()


def _reach_all(engine: Engine, names: list[str]) -> None:
    """Have every function of the modules read, whoever calls it."""
    engine.modules.prefetch(names)
    for module in filter(None, map(engine.modules.load, names)):
        for function in module.functions.values():
            engine.entry(function)
    engine.run()


def _also(tree: SourceTree) -> list[str]:
    """The modules that later parts look into whether a scheduler's process reaches them or not."""
    wanted = [f"{tree.package}.{name}" for name in roles().also]
    return [name for name in tree.modules if any(name == w or name.startswith(f"{w}.") for w in wanted)]


def build(tree: SourceTree, options: IndexOptions, progress: Progress) -> Index:
    """The index of a tree: entry points, functions with phases and paths, calls, and what was not resolved."""
    return to_index(analyse(tree, options, progress))


def to_index(program: Program) -> Index:
    """The index of a resolved program."""
    with deep_recursion():
        return _to_index(program)


def _to_index(program: Program) -> Index:
    engine, cast = program.engine, program.cast
    return Index(
        tool=f"sgltrace {__version__}",
        source=engine.tree.source,
        entry_points=cast.entry_points,
        unknown_paths=cast.unknown,
        event_loops=[function.id for function in cast.event_loops],
        processes=[function.id for function in cast.processes],
        workers=cast.workers,
        notes=cast.notes,
        functions=[_function(program, f) for _, f in sorted(program.functions.items())],
        calls=_calls(program),
        unresolved=_unresolved(program),
        skipped=[
            SkippedFile(path, why) for path, why in sorted({**engine.tree.unread, **engine.modules.skipped}.items())
        ],
    )


def _function(program: Program, function: FunctionInfo) -> Function:
    outer = function
    while outer.owner is None and outer.parent is not None:
        outer = outer.parent
    cls = None if outer.owner is None else outer.owner.name
    return Function(
        id=function.id,
        file=function.module.path,
        line=function.line,
        end_line=function.end_line,
        phase=program.phases.phases(function),
        paths=program.phases.paths(function),
        component=roles().component(function.module.name, cls),
    )


_CONFIDENCE = {"callback": 0.6, "attr_method": 0.9, "property": 0.9, "special_method": 0.8}


def _calls(program: Program) -> list[CallEdge]:
    merged: dict[tuple[str, str, str], dict[int, CallSite]] = defaultdict(dict)
    fixed: dict[tuple[str, str, str], bool] = defaultdict(bool)
    decode: dict[tuple[str, str, str], bool] = defaultdict(bool)
    conditions = decode_conditions(program, roles())
    for (caller, callee, kind), uses in program.engine.edges.items():
        key = (caller.id, callee.id, kind)
        guards = program.guards(caller)
        decode[key] |= conditions.may_take(caller, uses)
        for use in uses:
            fixed[key] |= not use.is_virtual(callee)
            for expression in use.expressions:
                line = line_of(expression)
                if line not in merged[key]:
                    around = [c.guard for c in guards.at(expression)]
                    merged[key][line] = CallSite(line, [*around, *chosen(program, caller, callee, kind, expression)])
    out = []
    for key, sites in sorted(merged.items()):
        caller_id, callee_id, kind = key
        virtual = not fixed[key]
        confidence = 0.5 if virtual else _CONFIDENCE.get(kind, 1.0)
        out.append(
            CallEdge(
                caller=caller_id,
                callee=callee_id,
                kind=kind,
                confidence=confidence,
                virtual=virtual,
                decode=decode[key],
                sites=[site for _, site in sorted(sites.items())],
            )
        )
    return out


def _unresolved(program: Program) -> list[Unresolved]:
    out = set()
    for site in program.engine.sites:
        expression = site.expressions[0]
        if site.callee.values or site.callee.fixed or not isinstance(expression, s.Call):
            continue
        out.add((site.function.id, expression.line, text(expression.func), _why(site)))
    return [Unresolved(caller=c, line=n, expression=e, why=w) for c, n, e, w in sorted(out)]


def _why(site: Site) -> str:
    expression = site.expressions[0]
    if isinstance(expression, s.Call) and isinstance(expression.func, s.Attr):
        base = expression.func.value
        node = site.function.nodes.get(id(base))
        if node is not None and node.values:
            return f"no attribute {expression.func.attr} on what {text(base)} is known to be"
        return f"nothing is known of {text(base)}"
    return "nothing is known of the callee"
