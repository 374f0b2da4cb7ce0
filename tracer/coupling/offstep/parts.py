"""The parts that a step is made of: found by what they do, with the vocabulary as a hint."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sgltrace.coupling.offstep.lookup import Sites
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access, FieldFlow
from sgltrace.index.program import Program
from sgltrace.index.program.vocabulary import Roles
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.values import FunctionRef, Instance
from sgltrace.model import PATHS


@dataclass(eq=False)
class Parts:
    """Who plays which part in one program. ``notes`` names the parts that were not found."""

    scheduler: ClassInfo
    loops: list[FunctionInfo]
    workers: dict[str, ClassInfo] = field(default_factory=dict)
    entries: dict[str, FunctionInfo] = field(default_factory=dict)
    """By path: the worker's method that the scheduler calls each step."""
    all_entries: frozenset[FunctionInfo] = frozenset()
    """The same of every speculative worker."""
    target: FunctionInfo | None = None
    """The target worker's."""
    launchers: tuple[FunctionInfo, ...] = ()
    """The scheduler's functions that call them."""
    algorithm: ClassInfo | None = None
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By path: the algorithms under which its worker is chosen."""
    no_algorithm: str | None = None
    mode: ClassInfo | None = None
    scheduler_batch: ClassInfo | None = None
    batches: tuple[ClassInfo, ...] = ()
    """The batch in every form: the scheduler's, the worker's, the model runner's."""
    results: tuple[ClassInfo, ...] = ()
    state_fields: tuple[str, ...] = ()
    """The fields of a batch that carry the draft's state."""
    state_classes: tuple[ClassInfo, ...] = ()
    own: frozenset[FunctionInfo] = frozenset()
    """The functions that only a speculative worker's step reaches."""
    notes: list[str] = field(default_factory=list)


def find_parts(program: Program, flow: FieldFlow, sites: Sites, roles: Roles, vocabulary: Vocabulary) -> Parts:
    """Find the parts of a program."""
    cast = program.cast
    parts = Parts(cast.scheduler, cast.event_loops)
    finder = _Finder(program, flow, sites, roles, vocabulary, parts)
    finder.find()
    return parts


class _Finder:
    def __init__(
        self, program: Program, flow: FieldFlow, sites: Sites, roles: Roles, vocabulary: Vocabulary, parts: Parts
    ) -> None:
        self.program, self.flow, self.sites = program, flow, sites
        self.roles, self.words, self.parts = roles, vocabulary, parts
        self.classes = program.engine.classes

    def find(self) -> None:
        cast, parts = self.program.cast, self.parts
        for path in PATHS:
            worker, entry = cast.worker_of(path), cast.entry_points.get(path)
            if worker is not None and entry is not None:
                parts.workers[path] = worker
                parts.entries[path] = self.program.functions[entry]
        steps = self.roles.step_methods
        parts.all_entries = frozenset(
            f for cls in cast.worker_classes.values() for name in steps for f in self._methods(cls, name)
        ) | frozenset(parts.entries.values())
        self._target()
        parts.all_entries -= {parts.target}
        self._launchers()
        self._algorithm()
        self._batches()
        self._mode()
        self._state()

    def _methods(self, cls: ClassInfo, name: str) -> list[FunctionInfo]:
        found = self.classes.lookup(cls, name)
        return [] if found is None else [v.function for v in found[1].values if isinstance(v, FunctionRef)]

    def _instances(self, cls: ClassInfo, name: str) -> list[ClassInfo]:
        return [v.cls for v in self.classes.read(cls, name).values if isinstance(v, Instance)]

    def _target(self) -> None:
        """The worker that is none of the speculative ones: what the scheduler hands to them when it makes them."""
        parts = self.parts
        candidates = [c for name in self.roles.target_fields for c in self._instances(parts.scheduler, name)]
        if not candidates:
            workers = set(self.program.cast.worker_classes.values())
            candidates = [
                v.cls
                for (function, _, _) in self.program.engine.edges
                if function.owner in workers
                for node in function.params.values()
                for v in node.values
                if isinstance(v, Instance) and v.cls not in workers and self._steps(v.cls)
            ]
        found = [c for c in dict.fromkeys(candidates) if not self.classes.is_abstract(c) and self._steps(c)]
        # a platform's variant inherits from the usual one, or is made beside it under a condition
        found.sort(key=lambda c: (c.module.is_outline, len(self.classes.mro(c)), c.id))
        for cls in found:
            functions = self._steps(cls)
            if functions:
                parts.target = functions[0]
                return
        parts.notes.append("the target worker was not found: what an off step runs is unknown")

    def _steps(self, cls: ClassInfo) -> list[FunctionInfo]:
        return [f for name in self.roles.step_methods for f in self._methods(cls, name) if not f.is_abstract]

    def _launchers(self) -> None:
        order = self.classes.mro(self.parts.scheduler)
        wanted = self.parts.all_entries | {self.parts.target}
        found = {
            caller for (caller, callee, _) in self.program.engine.edges if callee in wanted and caller.owner in order
        }
        self.parts.launchers = tuple(sorted(found, key=lambda f: f.id))

    # --- the algorithm and the mode ---

    def _enums(self) -> Iterable[tuple[ClassInfo, frozenset[str]]]:
        for module in self.program.engine.modules.loaded.values():
            for cls in module.classes.values():
                if cls.is_enum or cls.name in self.words.spec.algorithm_enums:
                    yield cls, self.sites.members(cls)

    def _algorithm(self) -> None:
        """The enum that has the algorithms under which workers are chosen among its members."""
        cast, parts = self.program.cast, self.parts
        named = {a for w in cast.workers for a in w.algorithms}
        hinted = self.words.spec.algorithm_enums
        best = max(
            (
                (len(named & members), cls.name in hinted, cls.id, cls)
                for cls, members in self._enums()
                if named & members or cls.name in hinted
            ),
            default=None,
            key=lambda entry: entry[:3],
        )
        if best is None:
            parts.notes.append("no enum of speculative algorithms was found: conditions on the algorithm are unknown")
            return
        parts.algorithm = best[3]
        members = self.sites.members(best[3])
        for worker in cast.workers:
            if worker.path is not None:
                main = [a for a in worker.algorithms if a in members] or sorted(
                    m for m in members if m.lower().startswith(self.roles.main_algorithm)
                )
                parts.members[worker.path] = tuple(main)
        plain = sorted(members & self.words.spec.plain_members)
        parts.no_algorithm = plain[0] if plain else None
        if not plain:
            parts.notes.append(f"{best[3].name} has no member for no algorithm: a plain process is unknown")

    def _mode(self) -> None:
        """The enum of a batch's modes: one that has a decode among its members."""
        wanted = self.words.spec.mode_enums
        held = {
            v.cls
            for cls in self.parts.batches
            for (owner, _), uses in self.flow.fields.items()
            if owner is cls
            for access in uses.writes
            if access.value is not None
            for v in self.program.types(access.value, access.function)
            if isinstance(v, Instance) and v.cls.is_enum and self.words.decode in self.sites.members(v.cls)
        }
        found = sorted(held, key=lambda c: (c.name not in wanted, -len(self.sites.members(c)), c.id))
        if found:
            self.parts.mode = found[0]
        else:
            self.parts.notes.append("no enum of forward modes was found: conditions on the mode are unknown")

    # --- what is handed on ---

    def _param_classes(self, function: FunctionInfo, at: int = 1) -> list[ClassInfo]:
        params = function.parameters
        if len(params) <= at:
            return []
        node = function.params.get(params[at].name)
        return [] if node is None else [v.cls for v in node.values if isinstance(v, Instance)]

    def _batches(self) -> None:
        parts = self.parts
        found: dict[ClassInfo, None] = {}
        for launcher in parts.launchers:
            for cls in self._param_classes(launcher):
                if self.flow.role(cls) in (None, "scheduler_batch", "worker_batch"):
                    parts.scheduler_batch = parts.scheduler_batch or cls
                    found[cls] = None
        for function in (*parts.entries.values(), *((parts.target,) if parts.target else ())):
            for cls in self._param_classes(function):
                found[cls] = None
        if parts.target is not None:
            for callee, _, places in self.sites.out.get(parts.target, ()):
                if callee.owner is None or callee.owner is parts.target.owner:
                    continue
                for call in places:
                    if isinstance(call, s.Call):
                        for arg in call.args:
                            for v in self.program.types(arg.value, parts.target):
                                if isinstance(v, Instance) and self._has_mode(v.cls):
                                    found[v.cls] = None
        role = self.flow.role
        for cls, _ in self.flow.fields:
            if role(cls) in ("scheduler_batch", "worker_batch", "forward_batch"):
                found[cls] = None
        parts.batches = tuple(found)
        if parts.scheduler_batch is None:
            parts.notes.append("the scheduler's batch was not found: what it carries is unknown")
        if parts.target is not None:
            parts.results = tuple(v.cls for v in parts.target.result.values if isinstance(v, Instance))
        if not parts.results:
            parts.notes.append("the result of a step was not found: what the scheduler asks of it is unknown")

    def _has_mode(self, cls: ClassInfo) -> bool:
        return any("mode" in name for (owner, name) in self.flow.fields if owner is cls)

    def _state(self) -> None:
        """The draft's state: what only speculation makes and puts on a batch."""
        parts, program = self.parts, self.program
        reach = self._reach(parts.all_entries)
        shared = self._reach({*parts.loops, *((parts.target,) if parts.target else ())}, parts.all_entries)
        parts.own = frozenset(reach - shared)
        made = {cls for f in parts.own for cls, _ in program.engine.constructed.get(f, ())} - set(parts.batches)
        found: dict[str, set[ClassInfo]] = {}
        anywhere: dict[str, set[ClassInfo]] = {}
        for (cls, name), uses in self.flow.fields.items():
            if cls not in parts.batches:
                continue
            for access in uses.writes:
                if access.value is None:
                    continue
                held = self._held(access) & made
                if held:
                    anywhere.setdefault(name, set()).update(held)
                    if access.function in parts.own or access.function in parts.all_entries:
                        found.setdefault(name, set()).update(held)
        hinted = set(found) & self.words.spec.info_fields
        names = hinted or {
            name for name in found if sum(name == n for (c, n) in self.flow.fields if c in parts.batches) > 1
        }
        parts.state_fields = tuple(sorted(names))
        parts.state_classes = tuple(sorted({c for n in names for c in anywhere[n]}, key=lambda c: c.id))
        if not names:
            parts.notes.append("no field of a batch was found that carries the draft's state: it is unknown")

    def _held(self, access: Access) -> set[ClassInfo]:
        """What a write puts there: of a copied field, what is written to that."""
        writes = [access]
        for source in self.flow.origins(access):
            uses = self.flow.fields.get((source.cls, source.field))
            writes += uses.writes if uses is not None else []
        return {
            v.cls
            for a in writes
            if a.value is not None
            for v in self.program.types(a.value, a.function)
            if isinstance(v, Instance)
        }

    def _reach(self, roots: Iterable[FunctionInfo], stop: frozenset[FunctionInfo] = frozenset()) -> set[FunctionInfo]:
        steps = self.program.phases.of["any"]["every step"]
        seen: set[FunctionInfo] = set()
        todo = list(roots)
        while todo:
            function = todo.pop()
            if function in seen or function in stop:
                continue
            seen.add(function)
            todo += [callee for callee, _, _ in self.sites.out.get(function, ()) if callee in steps]
        return seen
