"""What goes wrong in an off step: each question asked of the steps of a program, each answer with what proves it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from sgltrace.coupling.offstep.bodies import expressions_of
from sgltrace.coupling.offstep.domain import BATCH, PROCESS, UNSET, Fact
from sgltrace.coupling.offstep.interpret import Strike
from sgltrace.coupling.offstep.order import NEVER, Order
from sgltrace.coupling.offstep.steps import Step, Steps
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import Condition
from sgltrace.index.fields import Access, FieldUses
from sgltrace.index.fields.strides import StridedRead
from sgltrace.index.fields.tracked import roles
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo

STATES = frozenset({"spec_input", "draft_input"})
"""Roles of the draft's state. What of it does not outlive a step leaves nothing."""
OTHERS = frozenset({"scheduler_batch", "scheduler", "model_runner", "target_worker"})
"""Roles whose fields a prefill sets, too."""
APART = frozenset(
    {"worker_batch", "forward_batch", "logits_output", "verify_input", "verify_output", "draft_extend_input"}
    | {"kv_allocator", "request_pool", "server_args", ""}
)
"""Roles whose objects are made anew in each step, so that nothing is left on them, and those of the allocators and
pools: what is left there is what functions take and give back, which is asked of the functions."""


@dataclass(eq=False)
class Unset:
    """A field of the result that the target's step leaves unset, and what the scheduler strikes for it."""

    path: str
    cls: ClassInfo
    name: str
    value: object
    """What it is then."""
    strikes: list[Strike] = field(default_factory=list)
    strided: list[StridedRead] = field(default_factory=list)
    """Reads of the field by a width that an off step's result does not have."""
    late: bool = False
    """Whether that width is read from elsewhere than the result."""
    writes: list[Access] = field(default_factory=list)
    """Who sets it in a step with speculation."""


@dataclass(eq=False)
class Detached:
    """What is done with the draft's state of a batch without asking whether the batch has one."""

    path: str
    attr: str
    strikes: list[Strike]
    callees: list[FunctionInfo]
    """The methods of the draft's state that are called there."""


@dataclass(eq=False)
class Refusal:
    """A ``raise`` or an assertion that only an off step meets."""

    path: str
    strike: Strike
    detached: bool
    """Whether it is met where the batch has no draft state only."""
    attached: bool


@dataclass(eq=False)
class Skipped:
    """What a plain step does, and an off step does not, for one condition."""

    path: str
    function: FunctionInfo
    condition: Condition
    facts: frozenset[Fact]
    writes: list[Access]
    functions: list[FunctionInfo]
    """What runs only there."""
    attached_only: bool
    """Whether the condition lets an off step through once the batch has no draft state."""
    unwritten: list[Access] = field(default_factory=list)
    """Of the writes, those that nothing else in the off step stands in for."""


@dataclass(eq=False)
class Split:
    """A field that a plain step and a step with speculation each keep up by code of their own."""

    path: str
    uses: FieldUses
    plain: list[Access]
    on: list[Access]
    kept: list[Access]
    """Writes that the off step runs all the same."""
    reads: list[Access]


@dataclass(eq=False)
class Stale:
    """A field that only steps with speculation keep up, and that is read where an off step did not."""

    path: str
    uses: FieldUses
    writes: list[Access]
    reads: list[Access]
    asserted: list[Access]
    """Of the reads, those in a condition whose failure raises."""
    carried: bool
    """Whether it belongs to the draft's state."""
    alone: bool = True
    """Whether no other code of a step sets it, but to keep rows of what it was."""
    primed: bool = False
    """Whether a step with speculation goes on without that state."""


@dataclass(eq=False)
class Taken:
    """A condition of shared code that sends an off step another way than a plain step."""

    path: str
    function: FunctionInfo
    test: s.Expr
    line: int
    truth: bool
    facts: frozenset[Fact]
    attached_only: bool


@dataclass
class Answers:
    """Everything that was found on one path."""

    path: str
    unset: list[Unset]
    detached: list[Detached]
    refusals: list[Refusal]
    skipped: list[Skipped]
    split: list[Split]
    stale: list[Stale]
    taken: list[Taken]
    captured: list[Strike]
    """What is struck where a graph was captured for a stage of speculation."""


class Questions:
    """The questions of one path."""

    def __init__(self, steps: Steps, path: str) -> None:
        self.steps, self.path = steps, path
        self.parts, self.flow, self.program = steps.parts, steps.flow, steps.program
        self.on, self.plain = steps.on(path), steps.plain(path)
        self.attached, self.detached = steps.off(path, True), steps.off(path, False)
        self.known = {(x.function, x.line) for step in (self.plain, self.on) for run in step.runs_ for x in run.strikes}
        self.order = Order(steps.sites, self.on)

    def answers(self) -> Answers:
        """All answers."""
        strikes = {id(step): self._strikes(step) for step in (self.attached, self.detached)}
        split, stale = self._kept_up()
        return Answers(
            self.path,
            self._unset(strikes[id(self.attached)], strikes[id(self.detached)]),
            self._detached(strikes[id(self.detached)]),
            list(self._refusals(strikes[id(self.attached)], strikes[id(self.detached)])),
            self._skipped(),
            split,
            stale,
            list(self._taken()),
            [x for found in strikes.values() for x in found if self._is_captured(x)],
        )

    def _is_captured(self, strike: Strike) -> bool:
        """Whether a step comes to a strike by the mode that was captured when the process started."""
        names = {f"{cls.name}.{name}" for cls, name in self.steps.marks.bound if name in self.steps.marks.captured}
        return any(f.name in names for f in strike.facts | strike.under)

    def _strikes(self, step: Step) -> list[Strike]:
        return [x for run in step.runs_ for x in run.strikes if (x.function, x.line) not in self.known or self._owed(x)]

    def _owed(self, strike: Strike) -> bool:
        """Whether a strike is for a field that a step with speculation sets: a plain step that strikes there, too, is
        one that the code does not let come so far."""
        return any(
            f.scope == UNSET and any(self.on.runs(a) for a in self.flow.fields[key].writes if a.kind != "default")
            for f in strike.facts
            for key in self.detached.unset
            if f.name == f"{key[0].name}.{key[1]}"
        )

    # --- results ---

    def _unset(self, *strikes: list[Strike]) -> list[Unset]:
        found: dict[tuple[ClassInfo, str], Unset] = {}
        keys = {f"{cls.name}.{name}": (cls, name) for cls, name in self.detached.unset}
        seen: set[tuple[str, int, str, str]] = set()
        for strike in (x for group in strikes for x in group):
            for fact in sorted(strike.facts, key=lambda f: f.name):
                if fact.scope != UNSET or fact.name not in keys:
                    continue
                mark = (strike.function.id, strike.line, strike.exception, fact.name)
                if mark not in seen:
                    seen.add(mark)
                    self._of(found, keys[fact.name]).strikes.append(strike)
        for read in self.flow.strided:
            for access in read.read:
                if access.cls in self.parts.results and self._is_wide(read, access):
                    entry = self._of(found, (access.cls, access.field))
                    entry.strided.append(read)
                    entry.late |= read.carried is False
        for entry in found.values():
            entry.strikes.sort(key=lambda x: (x.function.id, x.line))
        return [found[key] for key in sorted(found, key=lambda key: key[1])]

    def _of(self, found: dict[tuple[ClassInfo, str], Unset], key: tuple[ClassInfo, str]) -> Unset:
        if key not in found:
            value = self.detached.unset.get(key)
            entry = Unset(self.path, *key, next(iter(value.atoms))[1] if value is not None else ...)
            entry.writes = [
                a for a in self.flow.fields[key].writes if a.kind != "default" and self.on.worker.runs(a)
            ] or [a for a in self.flow.fields[key].writes if a.kind != "default" and self.on.runs(a)]
            found[key] = entry
        return found[key]

    def _is_wide(self, read: StridedRead, access: Access) -> bool:
        """Whether rows are cut by more than the one that an off step's result has for each request."""
        reading = self.attached.scheduler.readings.get(read.function)
        if reading is None or id(read.node) not in reading.seen:
            return False
        value = reading.values.get(id(read.stride))
        return not (value is not None and value.atoms == {("c", 1)})

    # --- the draft's state ---

    def _detached(self, strikes: list[Strike]) -> list[Detached]:
        lookup = self.program.engine.classes.lookup
        carried = self._carried()

        def is_asked(attr: str) -> bool:
            """Whether an attribute is one of what outlives a step."""
            return any((c, attr) in self.flow.fields or lookup(c, attr) is not None for c in carried) or not carried

        by_attr: dict[str, list[Strike]] = defaultdict(list)
        for strike in strikes:
            if self._is_captured(strike):
                continue
            if any(f.scope == BATCH for f in strike.facts) and strike.exception == "AttributeError":
                for attr in filter(is_asked, self._asked(strike)):
                    by_attr[attr].append(strike)
        out = []
        for attr, found in sorted(by_attr.items()):
            callees = {
                callee
                for strike in found
                for node in expressions_of(strike.node)
                if isinstance(node, s.Call) and isinstance(node.func, s.Attr) and node.func.attr == attr
                for callee, _ in self.steps.sites.called(node, strike.function)
                if callee in self.on.scheduler or callee in self.on.worker
            }
            out.append(Detached(self.path, attr, found, sorted(callees, key=lambda f: f.id)))
        return out

    @staticmethod
    def _asked(strike: Strike) -> list[str]:
        """What is asked of the state: the attributes behind the expression that is None."""
        return sorted(
            {
                node.attr
                for node in expressions_of(strike.node)
                if isinstance(node, s.Attr) and node.value is strike.expression
            }
        )

    def _refusals(self, attached: list[Strike], detached: list[Strike]) -> Iterator[Refusal]:
        def raised(strikes: list[Strike]) -> dict[tuple[str, int], Strike]:
            return {
                (x.function.id, x.line): x
                for x in strikes
                if isinstance(x.node, s.Raise)
                or (x.exception == "AssertionError" and not any(f.scope == UNSET for f in x.facts))
            }

        with_state, without = raised(attached), raised(detached)
        for key in sorted(with_state.keys() | without.keys()):
            strike = without.get(key) or with_state[key]
            if any(f.scope == UNSET for f in strike.facts) or self._is_captured(strike):
                continue
            yield Refusal(self.path, strike, key in without, key in with_state)

    # --- what is not done ---

    def _skipped(self) -> list[Skipped]:
        groups: dict[tuple[FunctionInfo, int], Skipped] = {}
        decide = _Deciding(self.steps, self.plain)
        for uses in self.flow:
            if uses.role in ("server_args", "") or uses.cls in self.parts.results:
                continue
            for access in uses.writes:
                if access.kind == "default" or not self.plain.scheduler.runs(access):
                    continue
                here = self.attached.scheduler.runs(access)
                without = self.detached.scheduler.runs(access)
                if here:
                    continue
                found = decide.why_not(access, self.attached)
                if found is None or not any(f.scope in (PROCESS, BATCH) for f in found[2]):
                    continue
                function, condition, facts = found
                key = (function, id(condition.test))
                if key not in groups:
                    groups[key] = Skipped(self.path, function, condition, facts, [], [], True)
                groups[key].writes.append(access)
                groups[key].attached_only &= without
        for group in groups.values():
            group.functions = decide.runs_only_there(group.function, group.condition, self.attached)
            group.unwritten = [a for a in group.writes if not self._stands_in(a)]
        return sorted(groups.values(), key=lambda g: (g.function.id, g.condition.line))

    def _stands_in(self, access: Access) -> bool:
        uses = self.flow.fields[access.cls, access.field]
        return any(
            other is not access
            and other.kind != "default"
            and not is_reset(other)
            and not is_kept(other)
            and self.attached.completes(other)
            and self._step_starts(other)
            for other in uses.writes
        )

    # --- what is kept up ---

    def _kept_up(self) -> tuple[list[Split], list[Stale]]:
        split: list[Split] = []
        stale: list[Stale] = []
        states = set(self._carried())
        for uses in self.flow:
            if uses.role in APART or uses.cls in self.parts.results:
                continue
            if uses.field in self.parts.state_fields or self._inside(uses):
                continue
            is_state = uses.cls in self.parts.state_classes
            if uses.cls not in states and (is_state or roles()[uses.role].carries == "step" or uses.role in STATES):
                continue
            writes = [
                a
                for a in uses.writes
                if a.kind not in ("default", "delete") and not is_reset(a) and not is_handed_on(a)
            ]
            on = [a for a in writes if self.on.runs(a)]
            off = [a for a in writes if self.attached.completes(a) or self.detached.completes(a)]
            plain = [a for a in writes if self.plain.runs(a) and a not in off]
            only_on = [a for a in on if a not in off]
            if not is_state and uses.role in OTHERS and not any(a.function in self.parts.own for a in only_on):
                only_on = []  # code of a prefill, which a step with speculation seems to come to
            if only_on and plain and not is_state:
                reads = [a for a in _values(uses) if self.attached.runs(a) or self.detached.runs(a)]
                if reads:
                    split.append(Split(self.path, uses, plain, only_on, [a for a in off if a in on], reads))
            elif only_on and not plain and not self._refreshed(off):
                reads = self._exposed(uses, only_on)
                if not is_state and uses.role in OTHERS:
                    reads = [a for a in reads if self.attached.runs(a) or a.function in self.parts.own]
                if reads:
                    asserted = [a for a in reads if _in_assert(a)]
                    alone = all(a in only_on or is_kept(a) for a in on)
                    stale.append(
                        Stale(self.path, uses, only_on, reads, asserted, is_state, alone, is_state and self._primes)
                    )
        return split, stale

    @cached_property
    def _primes(self) -> bool:
        """Whether speculation may go on from a batch without a draft state: neither the scheduler nor the next draft
        strikes for it."""
        for step in (self.attached, self.detached):
            for strike in self._strikes(step):
                for fact in strike.facts:
                    states = set(self.parts.state_classes)
                    relays = any(
                        states & set(self.program.classes_of(w.value, w.function))
                        for key in step.unset
                        if fact.name == f"{key[0].name}.{key[1]}"
                        for w in self.flow.fields[key].writes
                        if w.value is not None
                    )
                    if fact.scope == BATCH or relays:
                        return False
        made = [
            self.order.of(a)
            for (cls, name), uses in self.flow.fields.items()
            if cls in self.parts.batches and name in self.parts.state_fields
            for a in uses.writes
            if a.function in self.parts.own and self.on.worker.runs(a)
        ]
        first = min(made, default=NEVER)  # from there on the step has a state of its own making
        return not any(
            fact.scope == BATCH
            for strike in self.steps.on_without(self.path).strikes
            if (strike.function, strike.line) not in self.known and self.order.at(strike.function, strike.line) <= first
            for fact in strike.facts
        )

    def _refreshed(self, off: list[Access]) -> bool:
        """Whether a step of either kind sets a field anew before anybody reads it."""
        return any(
            self.plain.runs(a)
            and not is_kept(a)
            and a.kind in ("assign", "constructor", "copy")
            and self._step_starts(a)
            for a in off
        )

    def _step_starts(self, access: Access) -> bool:
        """Whether every step does it: nothing is left open around it in its function."""
        return any(run.runs(access) and run.always(access) for run in self.attached.runs_)

    def _inside(self, uses: FieldUses) -> bool:
        """Whether a field is a component's own business, or another class's field seen again."""
        mro = self.program.engine.classes.mro
        if any(self._again(uses, base) for base in mro(uses.cls)[1:]):
            return True
        if uses.cls in self.parts.state_classes:
            return False
        if any(uses.cls in mro(c) for c in self.parts.state_classes):
            return True
        others = [c for c in self.program.cast.worker_classes.values() if c is not self.parts.workers[self.path]]
        if any(uses.cls in mro(c) for c in others) and uses.cls not in mro(self.parts.workers[self.path]):
            return True
        if roles()[uses.role].carries != "process":
            return False
        order = {*mro(uses.cls), *uses.cls.subclasses}
        return all(_owner(a.function) in order for a in uses.writes if a.kind != "default")

    def _again(self, uses: FieldUses, base: ClassInfo) -> bool:
        """Whether all writes of a field are seen on a base of its class, too."""
        known = self.flow.fields.get((base, uses.field))
        return known is not None and {(a.function, a.line) for a in uses.writes} <= {
            (a.function, a.line) for a in known.writes
        }

    def _carried(self) -> list[ClassInfo]:
        """The classes of the draft's state that outlive a step: the scheduler calls their methods."""
        mro = self.program.engine.classes.mro
        called = {
            f.owner
            for f in (*self.on.scheduler.readings, *self.attached.scheduler.readings)
            if f.owner is not None and not f.is_abstract and f.name != "__init__"
        }
        held = {
            v
            for key in ((c, n) for c, n in self.flow.fields if c in self.parts.results or n in self.parts.state_fields)
            for a in self.flow.fields[key].writes
            if a.value is not None and self.on.runs(a)
            if key[0] in self.parts.results or _owner(a.function) in mro(self.parts.scheduler)
            for v in self.program.classes_of(a.value, a.function)
        }
        made = {
            cls
            for f in (*self.on.worker.readings, *self.on.scheduler.readings)
            for cls, use in self.program.engine.constructed.get(f, ())
        }
        found = [
            c for c in self.parts.state_classes if c in made and (c in held or any(base in called for base in mro(c)))
        ]
        return [c for c in found if not any(base in found for base in mro(c)[1:])]

    def _exposed(self, uses: FieldUses, writes: list[Access]) -> list[Access]:
        """The reads that may see what an earlier step left."""
        writers = {a.function for a in writes}
        first = min((self.order.of(a) for a in writes if self.on.worker.runs(a)), default=None)
        out = []
        for access in _values(uses):
            in_scheduler = self.on.scheduler.runs(access) or self.attached.scheduler.runs(access)
            before = first is not None and self.order.of(access) < first
            if uses.cls in self.parts.state_classes and access.function not in self.parts.own:
                before = False  # shared code takes whatever state the step at hand has made
            if (in_scheduler and access.function not in writers) or (self.on.worker.runs(access) and before):
                out.append(access)
        return out

    # --- other ways ---

    def _taken(self) -> Iterator[Taken]:
        seen: set[int] = set()
        for step in (self.detached, self.attached):
            for run, plain in zip(step.runs_, self.plain.runs_, strict=True):
                for function in sorted(run.readings, key=lambda f: f.id):
                    other = plain.readings.get(function)
                    if other is None:
                        continue
                    for statement in s.nested(function.body):
                        for node in _tests(statement):
                            mine, theirs = run.readings[function].truths.get(id(node)), other.truths.get(id(node))
                            if mine is None or theirs is None or mine.truth is theirs.truth or id(node) in seen:
                                continue
                            if isinstance(node, s.Bool):
                                continue  # its parts say it
                            seen.add(id(node))
                            line = s.line_of(node) or s.line_of(statement)
                            yield Taken(
                                self.path, function, node, line, bool(mine.truth), mine.why, step is self.attached
                            )


class _Deciding:
    """Finds the condition for which something that a plain step does is not done in another."""

    def __init__(self, steps: Steps, plain: Step) -> None:
        self.steps, self.plain = steps, plain

    def why_not(self, access: Access, step: Step) -> tuple[FunctionInfo, Condition, frozenset[Fact]] | None:
        """The condition that keeps a step from an access."""
        guards = self.steps.program.guards(access.function)
        chain = guards.at(access.node) or (guards.at(access.statement) if access.statement is not None else ())
        return self._at(access.function, chain, step, set())

    def _at(
        self, function: FunctionInfo, chain: tuple[Condition, ...], step: Step, seen: set[FunctionInfo]
    ) -> tuple[FunctionInfo, Condition, frozenset[Fact]] | None:
        for run in step.runs_:
            reading = run.readings.get(function)
            if reading is None:
                continue
            for condition in chain:
                if condition.test is None:
                    continue
                for part, holds in _parts(condition.test, condition.holds):
                    value = reading.truths.get(id(part)) or reading.values.get(id(part))
                    if value is not None and value.truth is (not holds) and value.why:
                        return function, condition, value.why
        if function in seen or step.reaches(function):
            return None
        seen.add(function)
        for caller, call in self.steps.sites.callers.get(function, []):
            reading = self.plain.scheduler.readings.get(caller)
            if reading is None or id(call) not in reading.seen:
                continue
            found = self._at(caller, self.steps.program.guards(caller).at(call), step, seen)
            if found is not None:
                return found
        return None

    def runs_only_there(self, function: FunctionInfo, condition: Condition, step: Step) -> list[FunctionInfo]:
        """The functions that a plain step calls under the condition, and the step does not call from there."""
        reading, other = self.plain.scheduler.readings.get(function), step.scheduler.readings.get(function)
        if reading is None:
            return []
        out: dict[FunctionInfo, None] = {}
        for call, _ in reading.calls:
            if other is not None and id(call) in other.seen:
                continue
            for callee, _ in self.steps.sites.called(call, function):
                if callee in self.plain.scheduler:
                    out[callee] = None
        return sorted(out, key=lambda f: f.id)


def _parts(test: s.Expr, holds: bool) -> Iterator[tuple[s.Expr, bool]]:
    """A condition and what it is joined from: each part must hold, or must not, for the whole to."""
    yield test, holds
    if isinstance(test, s.Unary) and test.op == "not":
        yield from _parts(test.value, not holds)
    elif isinstance(test, s.Bool) and (test.op == "and") is holds:
        yield from _parts(test.left, holds)
        yield from _parts(test.right, holds)


def is_reset(access: Access) -> bool:
    """Whether a write only clears the field."""
    value = access.value
    return isinstance(value, s.Const) and value.value in (None, False, 0, "") and access.kind != "augment"


def _values(uses: FieldUses) -> list[Access]:
    """The reads that use a field's value: not those that only name it to write into it."""
    written = {(a.function, a.line) for a in uses.writes if a.kind in ("in-place", "kernel")}
    return [a for a in uses.reads if (a.function, a.line) not in written]


def is_handed_on(access: Access) -> bool:
    """Whether a write only takes the field over from another object: a copy, or a part of what it was."""
    value = access.value
    return isinstance(value, s.Attr) and value.attr == access.field


def is_kept(access: Access) -> bool:
    """Whether a write makes the field of itself: rows that stay, a merge with another's."""
    return access.value is not None and any(
        isinstance(part, s.Attr) and part.attr == access.field for part in s.descend(access.value)
    )


def _owner(function: FunctionInfo) -> ClassInfo | None:
    while function.owner is None and function.parent is not None:
        function = function.parent
    return function.owner


def _in_assert(access: Access) -> bool:
    return isinstance(access.statement, s.Assert)


def _tests(statement: s.Stmt) -> Iterator[s.Expr]:
    """The conditions that stand in a statement, and their parts."""
    for node in expressions_of(statement):
        if isinstance(node, s.Cond):
            yield from _operands(node.test)
    if isinstance(statement, (s.If, s.While)):
        yield from _operands(statement.test)


def _operands(test: s.Expr) -> Iterator[s.Expr]:
    yield test
    if isinstance(test, s.Bool):
        yield from _operands(test.left)
        yield from _operands(test.right)
