"""One path as the groups see it: its answers, and what they ask about functions, fields and places."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sgltrace.coupling.groups.draft import Spot
from sgltrace.coupling.offstep.interpret import Strike
from sgltrace.coupling.offstep.marks import SIZE, Field, Mark, Marks
from sgltrace.coupling.offstep.questions import Answers, Questions
from sgltrace.coupling.offstep.run import Run
from sgltrace.coupling.offstep.steps import Step
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import expressions
from sgltrace.index.facts.text import text
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo

ALLOCATING = frozenset({"kv_allocator", "request_pool"})
"""Roles whose methods hand out and take back KV slots."""
KIND_OF_ROLE = {"model_runner": "mem_pool_sizing", "graph_runner": "cuda_graph", "graph_buffers": "cuda_graph"}
"""Kinds of what fields of some roles hold."""
NEAR = 2
"""A function takes KV slots where it calls who does through so many calls."""
SHORT = 72


def shown(node: s.Expr | None) -> str:
    """An expression as text, cut where it is long."""
    out = "" if node is None else text(node)
    return out if len(out) <= SHORT else out[: SHORT - 3] + "..."


def name(function: FunctionInfo) -> str:
    """A function as a reader says it."""
    return f"`{function.qualname.replace('<locals>.', '')}`"


def names(functions: Iterable[FunctionInfo], most: int = 3) -> str:
    """Some functions in one phrase, and how many more there are."""
    found = list(dict.fromkeys(name(f) for f in functions))
    rest = len(found) - most
    listed = found[:most]
    if rest > 0:
        return f"{', '.join(listed)} and {rest} more"
    return " and ".join([", ".join(listed[:-1]), listed[-1]]) if len(listed) > 1 else "".join(listed)


def said(functions: Iterable[FunctionInfo], verb: str, most: int = 3) -> str:
    """Some functions and what they do, the verb in the number that they ask for: ``a sets``, ``a and b set``."""
    found = list(functions)
    one = len({f.qualname for f in found}) == 1
    return f"{names(found, most)} {verb if one else _plural(verb)}"


def _plural(verb: str) -> str:
    words = verb.split(" ")
    irregular = {"does": "do", "goes": "go", "is": "are", "has": "have", "applies": "apply"}
    for at, word in enumerate(words):
        if at == 0 or words[at - 1] == "and":
            words[at] = irregular.get(word, word.removesuffix("s"))
    return " ".join(words)


def named_value(function: FunctionInfo, call: s.Call, method: bool) -> dict[str, object]:
    """The constants that a call gives, by parameter."""
    names_ = [p.name for p in function.parameters if p.kind in ("", "/")][1 if method else 0 :]
    out: dict[str, object] = {}
    for i, arg in enumerate(call.args):
        if isinstance(arg.value, s.Const):
            found = arg.name or (names_[i] if i < len(names_) else None)
            if found is not None:
                out[found] = arg.value.value
    return out


def negated(condition: str) -> str:
    """A condition that does not hold, without a second ``not``."""
    if condition.startswith("not ") and " and " not in condition and " or " not in condition:
        return condition.removeprefix("not ")
    return f"not ({condition})" if " " in condition else f"not {condition}"


def slug(*parts: str) -> str:
    """An id's part: words of letters and digits, joined by hyphens."""
    return "-".join(re.findall(r"[a-z0-9]+", "-".join(parts).lower()))


def _sees(run: Run, function: FunctionInfo, node: s.Expr) -> bool:
    reading = run.readings.get(function)
    return reading is not None and id(node) in reading.seen


VERBS = {"augment": "adds to", "in-place": "changes in place", "delete": "deletes", "kernel": "stores through"}


def write(access: Access) -> Spot:
    """A write as a place."""
    verb = VERBS.get(access.kind, "sets")
    value = "" if access.value is None or access.kind == "kernel" else f": {shown(access.value)}"
    return Spot(access.function, access.line, f"{verb} {access.field}{value}")


def read(access: Access) -> Spot:
    """A read as a place."""
    return Spot(access.function, access.line, f"reads {access.field}")


def strike(found: Strike) -> Spot:
    """A strike as a place."""
    return Spot(found.function, found.line, f"raises {found.exception}: {shown(found.expression)}")


@dataclass(eq=False)
class Scene:
    """The answers on one path."""

    questions: Questions
    answers: Answers
    own_off: bool
    """Whether the release has an off step of its own on the path."""

    @property
    def path(self) -> str:
        """The path."""
        return self.answers.path

    # --- where code depends on speculation ---

    @property
    def marks(self) -> Marks:
        """The places of the program."""
        return self.questions.steps.marks

    @property
    def off(self) -> tuple[Step, Step]:
        """The off step, with the draft's state left on the batch and without."""
        return self.questions.attached, self.questions.detached

    def in_off(self, mark: Mark) -> bool:
        """Whether an off step comes to a place."""
        return any(self.marks.alive(run, mark) for step in self.off for run in step.runs_)

    def runs_off(self, function: FunctionInfo, node: s.Expr) -> bool:
        """Whether an off step evaluates an expression."""
        return any(_sees(run, function, node) for step in self.off for run in step.runs_)

    def runs_on(self, function: FunctionInfo, node: s.Expr) -> bool:
        """Whether a step with speculation evaluates an expression."""
        return any(_sees(run, function, node) for run in self.questions.on.runs_)

    def differs(self, function: FunctionInfo, test: s.Expr) -> bool:
        """Whether an off step answers a condition otherwise than a plain step."""
        for step in self.off:
            for run, plain in zip(step.runs_, self.questions.plain.runs_, strict=True):
                mine, theirs = run.readings.get(function), plain.readings.get(function)
                if mine is None or theirs is None or id(test) not in mine.seen:
                    continue
                for part in s.descend(test):
                    a, b = mine.truths.get(id(part)), theirs.truths.get(id(part))
                    if a is not None and (b is None or a.truth is not b.truth) and a.why:
                        return True
        return False

    @cached_property
    def shared(self) -> list[FunctionInfo]:
        """The functions that an off step runs, and that are not speculation's own."""
        q = self.questions
        found = {f for step in self.off for run in step.runs_ for f in run.readings if f not in q.parts.own}
        return sorted(found, key=lambda f: f.id)

    @cached_property
    def own(self) -> list[FunctionInfo]:
        """Speculation's own functions that the worker runs in a step with speculation."""
        q = self.questions
        return sorted((f for f in q.on.worker.readings if f in q.parts.own), key=lambda f: f.id)

    def steers(self, function: FunctionInfo) -> bool:
        """Whether a function belongs to the scheduler's half of a step: it decides what is done with requests."""
        return any(function in step.scheduler for step in self.off) and self.subject(function) not in (
            "prefix_cache",
            "mem_pool_sizing",
            "comm",
        )

    @cached_property
    def _origins(self) -> dict[str, list[Mark]]:
        out: dict[str, list[Mark]] = {}
        for function in self.questions.program.functions.values():
            for mark in self.marks.of(function):
                for _, name_ in mark.origins:
                    out.setdefault(name_, []).append(mark)
        return out

    def by_origin(self, key: Field) -> list[Mark]:
        """The places that depend on a field, by function and line."""
        mro = self.questions.program.engine.classes.mro
        found = [
            m
            for m in self._origins.get(key[1], ())
            if any(c is not None and (key[0] in mro(c) or c in mro(key[0])) for c, n in m.origins if n == key[1])
        ]
        return sorted(found, key=lambda m: (m.function.id, m.line))

    @cached_property
    def speculative(self) -> frozenset[FunctionInfo]:
        """The functions of the speculative workers' modules."""
        q = self.questions
        modules = {c.module for c in q.program.cast.worker_classes.values()}
        return frozenset(f for f in q.program.functions.values() if f.module in modules)

    def in_step(self, function: FunctionInfo) -> bool:
        """Whether a step of some kind runs a function."""
        q = self.questions
        return any(step.reaches(function) for step in (q.on, q.plain, *self.off))

    @cached_property
    def of_the_draft(self) -> frozenset[ClassInfo]:
        """The classes of which only speculation makes objects: the draft's own graphs and backends."""
        q = self.questions
        makers: dict[ClassInfo, set[FunctionInfo]] = defaultdict(set)
        for function, made in q.program.engine.constructed.items():
            for cls, _ in made:
                for base in q.program.engine.classes.mro(cls):
                    makers[base].add(function)
        speculative = {"spec_worker", "draft_worker"}
        out: set[ClassInfo] = set()
        for _ in range(2):  # what the draft's own objects make is the draft's, too
            out = {
                cls
                for cls, functions in makers.items()
                if all(
                    f.owner is not None and (q.flow.role(f.owner) in speculative or f.owner in out) for f in functions
                )
            }
        return frozenset(out)

    def is_fixed(self, mark: Mark) -> bool:
        """Whether a place takes its width from a field of a graph or of a backend."""
        return mark.use == SIZE or self.subject(mark.function) in ("cuda_graph", "attn_metadata", "tbo")

    def is_arguments(self, cls: ClassInfo) -> bool:
        """Whether a class is the server's arguments."""
        return self.questions.flow.role(cls) == "server_args"

    @property
    def arguments(self) -> str:
        """The name of the class of the server's arguments."""
        q = self.questions
        return next((u.cls.name for u in q.flow.of_role("server_args")), "")

    @cached_property
    def held(self) -> dict[str, list[Access]]:
        """By the name of an argument: the fields of other objects that are given it."""
        q = self.questions
        out: dict[str, list[Access]] = defaultdict(list)
        for uses in q.flow:
            for access in uses.writes if uses.role not in ("server_args", "") else ():
                for part in s.descend(access.value) if access.value is not None else ():
                    if isinstance(part, s.Attr):
                        for name_ in {x.field for x in q.flow.at(part) if self.is_arguments(x.cls)}:
                            out[name_].append(access)
        return out

    def is_verify_root(self, function: FunctionInfo) -> bool:
        """Whether a function of the speculative worker runs the target model."""
        return function in self._verify_roots

    def is_other(self, cls: ClassInfo) -> bool:
        """Whether a class belongs to another worker than the path's."""
        q = self.questions
        own = q.program.engine.classes.mro(q.parts.workers[self.path])
        return cls in set(q.program.cast.worker_classes.values()) and cls not in own

    def subject(self, function: FunctionInfo, cls: ClassInfo | None = None) -> str:
        """The kind of coupling that a function, or a class, is a place of."""
        role = None if cls is None else self.questions.flow.role(cls)
        if role in KIND_OF_ROLE:
            return KIND_OF_ROLE[role]
        outer = function
        while outer.owner is None and outer.parent is not None:
            outer = outer.parent
        owner = cls or outer.owner
        module = cls.module if cls is not None else function.module
        return self.questions.steps.words.subject(module.name, None if owner is None else owner.name)

    @staticmethod
    def listed(fields: Iterable[str], most: int = 3) -> str:
        """Some names in one phrase."""
        found = list(dict.fromkeys(fields))
        rest = len(found) - most
        return ", ".join(found[:most]) + (f" and {rest} more" if rest > 0 else "")

    def above(self, functions: Iterable[FunctionInfo], depth: int = 2) -> list[tuple[FunctionInfo, int, str]]:
        """Who calls functions in an off step, the nearest first."""
        out: list[tuple[FunctionInfo, int, str]] = []
        level, seen = list(dict.fromkeys(functions)), set(functions)
        for _ in range(depth):
            following: list[FunctionInfo] = []
            for function in level:
                for caller, call in self.questions.steps.sites.callers.get(function, ()):
                    if self.runs_off(caller, call) and caller not in seen:
                        seen.add(caller)
                        following.append(caller)
                        out.append((caller, call.line, f"calls {function.name}"))
            level = following
        return out

    def expressions(self, function: FunctionInfo) -> list[s.Expr]:
        """Every expression of a function; kept, since many groups ask."""
        return self.questions.steps.expressions(function)

    def config_names(self, function: FunctionInfo) -> list[tuple[int, str]]:
        """The names of speculative arguments that a function has as texts, with their lines."""
        words = self.questions.steps.words.spec
        return [
            (statement.line, node.value)
            for statement in s.nested(function.body)
            if isinstance(statement, (s.Assign, s.ExprStmt, s.For, s.If, s.Return))
            for root in expressions(statement)
            for node in s.descend(root)
            if isinstance(node, s.Const) and isinstance(node.value, str) and words.is_config(node.value)
        ]

    def binders(self, kind: str) -> list[Spot]:
        """Who fixes fields of one kind when a process that speculates starts."""
        start = self.questions.program.phases.of[self.path]["process start"]
        return [
            Spot(b.function, b.line, f"sets {key[1]}: {shown(b.value)}")
            for key in sorted(self.marks.bound, key=lambda key: (key[0].id, key[1]))
            for b in self.marks.bound[key]
            if b.function in start and self.subject(b.function, key[0]) == kind
        ]

    def setters(self, marks: Iterable[Mark]) -> list[Spot]:
        """Who gives the fields that places depend on their value."""
        keys = {(c, n) for m in marks for c, n in m.origins if c is not None}
        return [
            Spot(b.function, b.line, f"sets {key[1]}: {shown(b.value)}")
            for key in sorted(keys, key=lambda key: (key[0].id, key[1]))
            for b in self.marks.bound.get(key, ())
        ]

    def verdicts(
        self, a: tuple[str, str], b: tuple[str, str], c: tuple[str, str]
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """The verdicts of the three designs."""
        return {(self.path, "A"): a, (self.path, "B"): b, (self.path, "C"): c}

    def allocates(self, functions: Iterable[FunctionInfo]) -> bool:
        """Whether functions, or what they call in the scheduler's half of a plain step or of one with speculation, take
        or give back KV slots."""
        return any(function in self._near_slots for function in functions)

    def handles_slots(self, function: FunctionInfo) -> bool:
        """Whether a function itself calls an allocator or a pool."""
        q = self.questions
        return any(
            callee.owner is not None and q.flow.role(callee.owner) in ALLOCATING and not callee.is_property
            for callee, _, _ in q.steps.sites.out.get(function, ())
        )

    @cached_property
    def _near_slots(self) -> frozenset[FunctionInfo]:
        """Functions that reach a method of an allocator or a pool through at most ``NEAR`` calls."""
        q = self.questions
        near = {f for f in q.program.functions.values() if f.owner is not None and q.flow.role(f.owner) in ALLOCATING}
        for _ in range(NEAR):
            near |= {
                f
                for f, called in q.steps.sites.out.items()
                if f not in near and any(callee in near and not callee.is_property for callee, _, _ in called)
            }
        return frozenset(near)

    def verifies(self, function: FunctionInfo) -> bool:
        """Whether a function belongs to the verify of a step: it runs the target model, or is called by what does."""
        return function in self._verify

    @cached_property
    def _verify_roots(self) -> frozenset[FunctionInfo]:
        q = self.questions
        target = q.parts.target
        order = [] if target is None or target.owner is None else q.program.engine.classes.mro(target.owner)
        direct = {
            f
            for f in q.on.worker.readings
            if f in q.parts.own or f is q.parts.entries[self.path]
            for callee, _, _ in q.steps.sites.out.get(f, ())
            if callee.owner in order and callee.name == (target.name if target else None)
        } - {q.parts.entries[self.path]}
        return frozenset(direct)

    @cached_property
    def _verify(self) -> frozenset[FunctionInfo]:
        q = self.questions
        direct = self._verify_roots
        found = set(direct)
        todo = list(direct)
        while todo:
            for callee, _, _ in q.steps.sites.out.get(todo.pop(), ()):
                if callee in q.parts.own and callee not in found:
                    found.add(callee)
                    todo.append(callee)
        return frozenset(found)
