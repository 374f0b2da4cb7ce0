"""Who plays which part: the process function, the scheduler, its event loops, the speculative workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import Chain, Condition
from sgltrace.index.facts.text import text
from sgltrace.index.program.program import Program
from sgltrace.index.program.unread import in_unread, unread_parts, why_missing
from sgltrace.index.program.vocabulary import Roles, matches
from sgltrace.index.resolution.engine import Engine
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, ModuleInfo
from sgltrace.index.resolution.modules import dotted, imports_at_a_glance
from sgltrace.index.resolution.uses import Site
from sgltrace.index.resolution.values import ClassRef, FunctionRef, Instance, Text
from sgltrace.model import PATHS, Worker

Place = tuple[FunctionInfo, Chain]


@dataclass
class Cast:
    """The parts found in a release."""

    processes: list[FunctionInfo]
    scheduler: ClassInfo
    event_loops: list[FunctionInfo] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    worker_classes: dict[str, ClassInfo] = field(default_factory=dict)
    """By the class's id."""
    entry_points: dict[str, str | None] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    """Why nobody knows whether there is a path, where it was not found."""
    notes: list[str] = field(default_factory=list)
    places: dict[ClassInfo, list[Place]] = field(default_factory=dict)
    """Where each worker class is chosen, with the conditions of the choice."""

    def worker_of(self, path: str) -> ClassInfo | None:
        """The worker class of a path."""
        return next((self.worker_classes[w.cls] for w in self.workers if w.path == path), None)


def find_processes(engine: Engine, roles: Roles) -> list[FunctionInfo]:
    """The functions in which a scheduler's process begins. Raises InputError where there is none."""
    found = []
    for module in modules_defining(engine, roles, "def", roles.process):
        found += [function for name, function in module.functions.items() if name in roles.process]
    if not found:
        what = f"no scheduler process found (no function named {', '.join(roles.process)})"
        raise why_missing(engine, roles, what, "; is this a release of SGLang that serves?")
    return found


def modules_defining(engine: Engine, roles: Roles, keyword: str, names: tuple[str, ...]) -> list[ModuleInfo]:
    """The modules that define one of ``names`` at their top: those of the vocabulary first, else any of the tree's."""
    modules = engine.tree.modules
    pattern = re.compile(rf"^{keyword} (?:{'|'.join(map(re.escape, names))})\b".encode(), re.MULTILINE)
    hinted = [name for name in (f"{engine.tree.package}.{hint}" for hint in roles.modules) if name in modules]
    for candidates in (hinted, [name for name in modules if name.startswith(f"{engine.tree.package}.srt.")]):
        found = []
        for name in candidates:
            source = engine.modules.source(name)
            if pattern.search(source):
                found.append(name)
                engine.modules.prefetch([name, *imports_at_a_glance(source)])
        loaded = [module for module in map(engine.modules.load, found) if module is not None]
        if loaded:
            return loaded
    return []


def find_cast(program: Program, roles: Roles, processes: list[FunctionInfo]) -> Cast:
    """Find all parts in a resolved program. Raises InputError where it has no speculative worker."""
    engine = program.engine
    scheduler = _scheduler(program, roles, processes)
    cast = Cast(processes, scheduler)
    cast.event_loops = [
        function
        for function in program.functions.values()
        if matches(function.name, roles.event_loops)
        and function.owner is not None
        and function.owner in engine.classes.mro(scheduler)
    ]
    cast.event_loops.sort(key=lambda f: f.id)
    _find_workers(program, roles, cast)
    if not cast.workers:
        what = f"no speculative worker found (nothing that the scheduler holds in {', '.join(roles.worker_fields)})"
        raise why_missing(engine, roles, what, "; name a release that has one, such as sglang==0.5.9")
    _find_paths(program, roles, cast)
    return cast


def _scheduler(program: Program, roles: Roles, processes: list[FunctionInfo]) -> ClassInfo:
    """The class that the process function makes and whose event loop it runs."""
    for process in processes:
        for cls, _ in program.engine.constructed.get(process, ()):
            if any(c.name in roles.scheduler for c in program.engine.classes.mro(cls)):
                return cls
    found = [cls for name in roles.scheduler for cls in program.find_classes(name)]
    if not found:
        what = f"no scheduler class found (none named {', '.join(roles.scheduler)})"
        raise why_missing(program.engine, roles, what, "; is this a release of SGLang that serves?")
    return found[0]


def _find_workers(program: Program, roles: Roles, cast: Cast) -> None:
    """What the scheduler's worker field may hold, besides what its target field holds."""
    read = program.engine.classes.read
    held = {
        value.cls: None
        for name in roles.worker_fields
        for value in read(cast.scheduler, name).values
        if isinstance(value, Instance) and not program.engine.classes.is_abstract(value.cls)
    }
    cast.places = _all_places(program, held)
    for cls in sorted(held, key=lambda c: c.id):
        places = cast.places[cls]
        algorithms = _algorithms(program, roles, places)
        cast.worker_classes[cls.id] = cls
        cast.workers.append(
            Worker(
                cls=cls.id,
                file=cls.module.path,
                line=cls.node.line,
                path=None,
                algorithms=algorithms,
                overlap=_overlap(roles, places),
            )
        )


def _all_places(program: Program, classes: Iterable[ClassInfo]) -> dict[ClassInfo, list[Place]]:
    """Where each class is chosen: constructed by its own name, or named in a return. Its own module does not count."""
    names = {cls.name.encode() for cls in classes}
    places: dict[ClassInfo, list[Place]] = {cls: [] for cls in classes}
    for function in program.functions.values():
        node = function.node
        if function.scope is None or not isinstance(node, s.Func):
            continue
        body = bytes(node.body)
        if not any(name in body for name in names):
            continue
        for expression in _chosen(function.body):
            found = function.nodes.get(id(expression))
            if found is None and isinstance(expression, s.Name):
                found = program.engine.name(expression.id, function.scope)
            if found is None or len(found.values) != 1:
                continue
            value = next(iter(found.values))
            if isinstance(value, ClassRef) and value.cls in places and value.cls.module is not function.module:
                places[value.cls].append((function, program.guards(function).at(expression)))
    return places


def _chosen(body: list[s.Stmt]) -> Iterator[s.Name | s.Attr]:
    for statement in s.nested(body):
        if isinstance(statement, (s.Return, s.Assign, s.AnnAssign)) and statement.value is not None:
            yield from _alternatives(statement.value)


def _alternatives(value: s.Expr) -> Iterator[s.Name | s.Attr]:
    """The names of which a value may be one, or be made by calling one."""
    if isinstance(value, (s.Name, s.Attr)):
        yield value
    elif isinstance(value, s.Call):
        yield from _alternatives(value.func)
    elif isinstance(value, s.Cond):
        yield from _alternatives(value.body)
        yield from _alternatives(value.orelse)
    elif isinstance(value, s.Bool):
        yield from _alternatives(value.left)
        yield from _alternatives(value.right)
    elif isinstance(value, (s.Sub, s.Walrus)):
        yield from _alternatives(value.value)
    elif isinstance(value, (s.Map, s.Seq)):
        for item in value.values if isinstance(value, s.Map) else value.items:
            yield from _alternatives(item)


def _holding(chain: Chain) -> Iterator[s.Expr]:
    """The tests that hold at a place, taken apart at ``and``."""
    for condition in chain:
        if condition.test is not None and condition.holds and condition.kind in ("if", "return"):
            yield from _conjuncts(condition.test)


def _conjuncts(test: s.Expr) -> Iterator[s.Expr]:
    if isinstance(test, s.Bool) and test.op == "and":
        yield from _conjuncts(test.left)
        yield from _conjuncts(test.right)
    else:
        yield test


def _algorithm(roles: Roles, test: s.Expr) -> str | None:
    """The algorithm that a test asks for, as ``self.is_eagle()`` does."""
    name = dotted(test.func) if isinstance(test, s.Call) and not test.args else None
    found = roles.algorithm_predicate.fullmatch(name.rpartition(".")[2]) if name is not None else None
    return found.group(1).upper() if found is not None else None


def _algorithms(program: Program, roles: Roles, places: list[Place]) -> list[str]:
    found: set[str] = set()
    for function, chain in places:
        named = {a for a in (_algorithm(roles, test) for test in _holding(chain)) if a is not None}
        found |= named or set(_registered(program.engine, function))
    return sorted(found)


def _registered(engine: Engine, factory: FunctionInfo) -> Iterator[str]:
    """The names under which a factory is registered: constants in the calls that it is an argument of."""
    for site in engine.sites:
        if any(factory.ref in node.values for _, node in site.args):
            yield from _texts(site)


def _texts(site: Site) -> Iterator[str]:
    for name, node in site.args:
        if name is None and node.fixed:
            yield from (v.text for v in node.values if isinstance(v, Text) and v.text.isupper())


def _overlap(roles: Roles, places: list[Place]) -> bool | None:
    """Whether a class is chosen under overlap scheduling, without it, or (None) either way."""
    answers: set[bool | None] = set()
    for _, chain in places:
        answer: bool | None = None
        for condition in chain:
            asked = _asks_overlap(roles, condition)
            if asked is not None:
                answer = asked
        answers.add(answer)
    return answers.pop() if len(answers) == 1 else None


def _asks_overlap(roles: Roles, condition: Condition) -> bool | None:
    test, holds = condition.test, condition.holds
    while isinstance(test, s.Unary) and test.op == "not":
        test, holds = test.value, not holds
    name = dotted(test) if test is not None else None
    if name is None or roles.overlap_word not in name:
        return None
    return holds != ("disable" in name)


def _find_paths(program: Program, roles: Roles, cast: Cast) -> None:
    """Which worker is v1 and which v2: of the main algorithm's, without further features, by overlap scheduling.

    Where one worker does both, it is v1 if it is itself a target worker (it inherits from the class that the target
    field holds), as the first design was; else it is v2.
    """
    engine = program.engine
    main = roles.main_algorithm
    eligible: list[tuple[int, int]] = []
    for i, worker in enumerate(cast.workers):
        cls = cast.worker_classes[worker.cls]
        if not any(main == a.lower() for a in worker.algorithms):
            continue
        further = min(
            (
                sum(1 for t in _holding(chain) if _algorithm(roles, t) is None and roles.overlap_word not in text(t))
                for _, chain in cast.places[cls]
            ),
            default=0,
        )
        eligible.append((further, i))
    if not eligible:
        eligible = [(0, i) for i, w in enumerate(cast.workers) if main in w.cls.rpartition(":")[2].lower()]
    if not eligible:  # chosen under no condition: for whatever algorithm there is
        eligible = [(0, i) for i, w in enumerate(cast.workers) if not w.algorithms]
    fewest = min((further for further, _ in eligible), default=0)
    target = {
        base
        for name in roles.target_fields
        for value in engine.classes.read(cast.scheduler, name).values
        if isinstance(value, Instance)
        for base in (value.cls,)
    }
    for further, i in eligible:
        if further != fewest:
            continue
        worker = cast.workers[i]
        overlap = worker.overlap
        if overlap is None:
            overlap = not target.intersection(engine.classes.mro(cast.worker_classes[worker.cls]))
        path = "v2" if overlap else "v1"
        if all(other.path != path for other in cast.workers):
            cast.workers[i] = _with_path(worker, path)
    for path in PATHS:
        chosen = cast.worker_of(path)
        cast.entry_points[path] = None if chosen is None else _entry_point(program, roles, cast, chosen)
        if cast.entry_points[path] is not None:
            continue
        what = f"{main.upper()} worker {'under' if path == 'v2' else 'without'} overlap scheduling"
        unread = unread_parts(engine, roles)
        if unread:
            cast.unknown[path] = f"no {what} was found, {in_unread(unread)}"
            cast.notes.append(f"path {path} is unknown: {cast.unknown[path]}")
        elif chosen is not None:
            steps = ", ".join(roles.step_methods)
            cast.unknown[path] = f"its worker is {chosen.id}, of which the scheduler calls no step method ({steps})"
            cast.notes.append(f"path {path} is unknown: {cast.unknown[path]}")
        else:
            cast.notes.append(f"path {path} is absent: this release has no {what}")


def _with_path(worker: Worker, path: str) -> Worker:
    return Worker(
        cls=worker.cls,
        file=worker.file,
        line=worker.line,
        path=path,
        algorithms=worker.algorithms,
        overlap=worker.overlap,
    )


def _entry_point(program: Program, roles: Roles, cast: Cast, cls: ClassInfo) -> str | None:
    """The worker's method that the scheduler calls each step."""
    classes = program.engine.classes
    mro = classes.mro(cast.scheduler)
    called = {
        callee
        for (caller, callee, _) in program.engine.edges
        if caller.owner in mro and callee.name in roles.step_methods
    }
    candidates = [
        (order.index(value.function.owner), i, value.function.id)
        for order in (classes.mro(cls),)
        for i, name in enumerate(roles.step_methods)
        for found in (classes.lookup(cls, name),)
        for value in (found[1].values if found is not None else ())
        if isinstance(value, FunctionRef) and value.function in called and value.function.owner in order
    ]
    return min(candidates)[2] if candidates else None  # its own method before an inherited one


__all__ = ["Cast", "ClassRef", "find_cast", "find_processes"]
