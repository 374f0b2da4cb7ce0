"""The steps of a program: with speculation, without, and off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sgltrace.coupling.offstep.bodies import expressions_in
from sgltrace.coupling.offstep.domain import (
    BATCH,
    MODE,
    NONE,
    OBJECT,
    PATH,
    PROCESS,
    UNSET,
    Atom,
    Fact,
    Val,
    const,
    member,
)
from sgltrace.coupling.offstep.lookup import Apart, Lookup, Sites
from sgltrace.coupling.offstep.marks import Marks
from sgltrace.coupling.offstep.parts import Parts
from sgltrace.coupling.offstep.run import Run
from sgltrace.coupling.offstep.scenario import Scenario
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access, FieldFlow
from sgltrace.index.program import Program
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.values import Instance


@dataclass(eq=False)
class Step:
    """One step: what the scheduler runs, and what the worker it calls runs."""

    name: str
    scheduler: Run
    worker: Run
    unset: dict[tuple[ClassInfo, str], Val]
    """Fields of the result that nothing sets, with what they are then."""

    @property
    def runs_(self) -> tuple[Run, Run]:
        """Both halves."""
        return self.scheduler, self.worker

    def runs(self, access: Access) -> bool:
        """Whether an access happens in the step."""
        return self.scheduler.runs(access) or self.worker.runs(access)

    def reaches(self, function: FunctionInfo) -> bool:
        """Whether the step reaches a function."""
        return function in self.scheduler or function in self.worker

    def completes(self, access: Access) -> bool:
        """Whether an access happens, and nothing strikes before it in its function."""
        return any(run.runs(access) and not run.fails_before(access) for run in self.runs_)


class Steps:
    """The steps of one program, each run when it is first asked for."""

    def __init__(self, program: Program, flow: FieldFlow, sites: Sites, parts: Parts, vocabulary: Vocabulary) -> None:
        self.program, self.flow, self.sites = program, flow, sites
        self.parts, self.words = parts, vocabulary
        self._expressions: dict[FunctionInfo, list[s.Expr]] = {}
        self._known: dict[tuple[str, str | None, bool], Step] = {}

    @cached_property
    def marks(self) -> Marks:
        """Where the program depends on speculation."""
        return Marks(self.program, self.flow, self.sites, self.parts, self.words)

    def expressions(self, function: FunctionInfo) -> list[s.Expr]:
        """Every expression of a function."""
        found = self._expressions.get(function)
        if found is None:
            found = self._expressions[function] = list(expressions_in(function.body))
        return found

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths of the program."""
        return tuple(self.parts.entries)

    def on(self, path: str) -> Step:
        """A step with speculation on a path."""
        return self._step("on", path, True)

    def plain(self, path: str) -> Step:
        """A step of a process without speculation, with the path's scheduling."""
        return self._step("plain", path, False)

    def on_without(self, path: str) -> Run:
        """The worker's half of a step with speculation whose batch carries no draft state."""
        key = ("on", path, False)
        if key not in self._known:
            worker = self._worker("on", path, False, [self.parts.entries[path]])
            self._known[key] = Step("on without", Run(worker.lookup, []), worker, {})
        return self._known[key].worker

    def off(self, path: str, attached: bool) -> Step:
        """An off step of design A or B: the target worker on the batch, from a speculative process's scheduler.

        ``attached``: whether the batch still carries the draft's state.
        """
        return self._step("off", path, attached)

    def _step(self, name: str, path: str, attached: bool) -> Step:
        key = (name, path, attached)
        if key not in self._known:
            self._known[key] = self._run(name, path, attached)
        return self._known[key]

    # --- building ---

    def _run(self, name: str, path: str, attached: bool) -> Step:
        parts = self.parts
        entry, target = parts.entries[path], parts.target
        inner = self._worker(name, path, attached, [entry] if name == "on" else [target] if target is not None else [])
        unset = {} if name == "on" else self._unset(inner)
        scheduler = self._scheduler(name, path, attached, unset)
        kept = {key: value for key, value in unset.items() if not self._sets(scheduler, key)}
        if kept != unset:
            scheduler = self._scheduler(name, path, attached, kept)
        return Step(name, scheduler, inner, kept)

    def _worker(self, name: str, path: str, attached: bool, roots: list[FunctionInfo]) -> Run:
        """A worker's half of a step. In a step with speculation its stages make batches of modes of their own."""
        scenario = self._scenario(name, path, attached)
        lookup = Lookup(self.program, self.flow, self.sites, scenario)
        if name == "on":
            scenario.worker_types = {self.parts.mode: None} if self.parts.mode is not None else {}
            lookup.strict = frozenset({self.parts.entries[path]})
        return Run(lookup, roots, loose=name == "on")

    def _scheduler(self, name: str, path: str, attached: bool, unset: dict[tuple[ClassInfo, str], Val]) -> Run:
        """The scheduler's half, with what the worker's result leaves unset."""
        scenario = self._scenario(name, path, attached)
        scenario.fields |= unset
        scenario.stops = self._handed_over
        lookup = Lookup(self.program, self.flow, self.sites, scenario)
        return Run(lookup, self._loops(lookup, path))

    @cached_property
    def _handed_over(self) -> dict[FunctionInfo, tuple[FunctionInfo, ...]]:
        """Where the scheduler's half ends: a worker's step, and whatever else the target worker is asked to run."""
        parts = self.parts
        order = () if parts.target is None or parts.target.owner is None else self._mro(parts.target.owner)
        own = {f for f in self.program.functions.values() if f.owner in order and not f.is_property}
        return dict.fromkeys(parts.all_entries | own, ())

    @cached_property
    def _telling(self) -> frozenset[FunctionInfo]:
        """Functions that touch what a step carries, refuse, or lead to one that does: the others tell nothing of it."""
        words = self.words.spec
        asked = words.widths | words.algorithm_fields
        found = set(self.parts.own) | set(self.parts.all_entries)
        for function, accesses in self.flow.by_function.items():
            if any(a.field in asked or self.flow.role(a.cls) != "server_args" for a in accesses):
                found.add(function)
        enums = {self.parts.algorithm, self.parts.mode}
        for function in self.program.functions.values():
            for test in _refusals(function.body):
                if any(enums & set(self.program.classes_of(part, function)) for part in s.descend(test)):
                    found.add(function)
        callers: dict[FunctionInfo, set[FunctionInfo]] = defaultdict(set)
        for caller, called in self.sites.out.items():
            for callee, _, _ in called:
                callers[callee].add(caller)
        todo = list(found)
        while todo:
            for caller in callers[todo.pop()] - found:
                found.add(caller)
                todo.append(caller)
        return frozenset(found)

    def _mro(self, cls: ClassInfo) -> tuple[ClassInfo, ...]:
        return tuple(self.program.engine.classes.mro(cls))

    def _scenario(self, name: str, path: str, attached: bool) -> Scenario:
        parts, words = self.parts, self.words.spec
        spec = name != "plain"
        made = Scenario(f"{name} {path}", platform=self.words.platform)
        steps = self.program.phases.of
        made.avoid = self._other_stages
        made.reachable = frozenset(steps[path if spec else "any"]["every step"])
        made.within = made.reachable & self._telling
        if parts.algorithm is not None:
            why = [Fact(PROCESS, parts.algorithm.name)]
            if spec:
                made.types[parts.algorithm] = member(parts.algorithm, parts.members.get(path, ()), why)
            elif parts.no_algorithm is not None:
                made.types[parts.algorithm] = member(parts.algorithm, [parts.no_algorithm], why)
        if parts.mode is not None:
            made.types[parts.mode] = member(parts.mode, [self.words.decode], [Fact(MODE, parts.mode.name)])
        self._captured(made, spec)
        state: Atom = OBJECT if attached and spec else NONE
        for cls in parts.batches:
            for field in parts.state_fields:
                scope = BATCH if spec else PROCESS
                made.fields[cls, field] = Val(frozenset({state}), frozenset({Fact(scope, f"{cls.name}.{field}")}))
        for field in sorted(words.algorithm_fields | words.widths):
            if field.startswith("speculative_"):
                why = [Fact(PROCESS, field)]
                made.names[field] = Val(frozenset({OBJECT if spec else NONE}), frozenset(why))
        for field in sorted(words.no_overlap_fields):
            made.names[field] = const(path == "v1", [Fact(PATH, field)])
        for cls in self._named(words.args_classes):
            for field in sorted(words.widths | words.algorithm_fields):
                if (cls, field) in self.flow.fields:
                    why = [Fact(PROCESS, f"{cls.name}.{field}")]
                    made.fields[cls, field] = Val(frozenset({OBJECT if spec else NONE}), frozenset(why))
            for field in sorted(words.no_overlap_fields):
                made.fields[cls, field] = const(path == "v1", [Fact(PATH, f"{cls.name}.{field}")])
        for field in sorted(words.worker_fields):
            why = [Fact(PROCESS, f"{parts.scheduler.name}.{field}")]
            made.fields[parts.scheduler, field] = Val(frozenset({OBJECT if spec else NONE}), frozenset(why))
        if name != "on":
            for cls, field in self.flow.fields:
                if field in words.draft_flags:
                    made.fields[cls, field] = const(False)
        for field, value in self.words.fixed.items():
            if (parts.scheduler, field) in self.flow.fields:
                made.fields[parts.scheduler, field] = const(value)
        return made

    def _captured(self, made: Scenario, spec: bool) -> None:
        """Fields that hold the mode that graphs were captured in: a stage's in a process that speculates."""
        mode = self.parts.mode
        for cls, field in self.marks.bound if mode is not None and spec else ():
            if field in self.marks.captured:
                stages = [b.value.attr for b in self.marks.bound[cls, field] if isinstance(b.value, s.Attr)]
                found = [m for m in stages if m in self.marks.stages]
                made.fields[cls, field] = member(mode, found[:1], [Fact(PROCESS, f"{cls.name}.{field}")])  # type: ignore[arg-type]
                made.given |= {field}

    def _named(self, names: frozenset[str]) -> list[ClassInfo]:
        return [cls for name in sorted(names) for cls in self.program.find_classes(name)]

    def _loops(self, lookup: Lookup, path: str) -> list[FunctionInfo]:
        """The event loop that the scenario's process chooses with the default arguments: those that it may, where that
        cannot be told."""
        steps = self.program.phases.of[path]["every step"]
        lookup = Lookup(self.program, self.flow, self.sites, self._usual(lookup.scenario))
        alive = []
        for loop in self.parts.loops:
            if loop not in steps:
                continue
            for caller, call in self.sites.callers.get(loop, []):
                apart = Apart(lookup, caller, 0)
                chain = self.program.guards(caller).at(call)
                if not any(
                    c.test is not None
                    and c.kind in ("if", "return")
                    and (value := apart.ev(c.test)) is not None
                    and value.truth is (not c.holds)
                    for c in chain
                ):
                    alive.append(loop)
                    break
        return alive or [loop for loop in self.parts.loops if loop in steps]

    def _usual(self, scenario: Scenario) -> Scenario:
        """A scenario with the server's arguments at their defaults, where it says nothing of them."""
        usual = Scenario(scenario.name, scenario.types, fields=dict(scenario.fields), platform=scenario.platform)
        for cls in self._named(self.words.spec.args_classes):
            for owner, field in self.flow.fields:
                default = self.default(cls, field) if owner is cls else None
                if default is not None and not default.is_none:
                    usual.fields.setdefault((cls, field), default)
        return usual

    @cached_property
    def _other_stages(self) -> frozenset[FunctionInfo]:
        """Functions that make a batch one of another mode: they prepare no decode."""
        mode = self.parts.mode
        if mode is None:
            return frozenset()
        found = set()
        for (cls, _), uses in self.flow.fields.items():
            if cls not in self.parts.batches:
                continue
            for access in uses.writes:
                value, function = access.value, access.function
                if access.kind != "assign" or not isinstance(value, s.Attr) or function in self.parts.own:
                    continue
                types = [v for v in self.program.types(value, function) if isinstance(v, Instance)]
                if not any(v.cls is mode for v in types) or value.attr not in self.sites.members(mode):
                    continue
                if value.attr != self.words.decode and not self.program.guards(function).at(access.statement or value):
                    found.add(function)
        return frozenset(found)

    # --- the result ---

    def _unset(self, run: Run) -> dict[tuple[ClassInfo, str], Val]:
        """The fields of the results that a worker's step leaves as their class makes them, and what that is."""
        out: dict[tuple[ClassInfo, str], Val] = {}
        for cls in self.parts.results:
            for (owner, name), uses in self.flow.fields.items():
                if owner is not cls:
                    continue
                if any(a.kind != "default" and run.runs(a) for a in uses.writes):
                    continue
                default = self.default(cls, name)
                if default is not None:
                    out[cls, name] = Val(default.atoms, frozenset({Fact(UNSET, f"{cls.name}.{name}")}))
        return out

    def default(self, cls: ClassInfo, name: str) -> Val | None:
        """What a field is where nothing sets it, as its class says."""
        for base in self.program.engine.classes.mro(cls):
            for statement in base.node.body:
                if isinstance(statement, s.AnnAssign) and isinstance(statement.target, s.Name):
                    if statement.target.id == name:
                        return const(statement.value.value) if isinstance(statement.value, s.Const) else None
                elif (
                    isinstance(statement, s.Assign)
                    and isinstance(statement.value, s.Const)
                    and any(isinstance(t, s.Name) and t.id == name for t in statement.targets)
                ):
                    return const(statement.value.value)
        return None

    def _sets(self, run: Run, key: tuple[ClassInfo, str]) -> bool:
        """Whether the scheduler itself gives a field of the result a value that is not made of the field."""
        uses = self.flow.fields[key]
        for access in uses.writes:
            if access.kind in ("default", "constructor") or not run.runs(access):
                continue
            made_of = {(a.cls, a.field) for a in (*access.sources, *access.derived)}
            own = access.value is not None and any(
                isinstance(part, s.Attr) and part.attr == key[1] for part in s.descend(access.value)
            )
            if key not in made_of and not own:
                return True
        return False


def _refusals(body: Sequence[s.Stmt]) -> Iterator[s.Expr]:
    """The conditions under which statements raise or fail."""
    for statement in s.nested(body):
        if isinstance(statement, s.Assert) or (
            isinstance(statement, s.If) and any(isinstance(x, s.Raise) for x in (*statement.body, *statement.orelse))
        ):
            yield statement.test
