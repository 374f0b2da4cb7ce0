"""All functions of a source tree as the rules see them, with what was found in each, looked up by field and by name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sgltrace.coupling.facts import Access, Branch, Call, Facts, Item, Mention, Refusal, Stride, annotation_class
from sgltrace.coupling.predicates import Predicates
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index.facts import syntax as s
from sgltrace.index.program.vocabulary import roles

WORKER = "worker"
"""Runs only because a speculative worker runs: drafting, verifying, extending the draft."""
SCHEDULER = "scheduler"
"""Runs in the scheduler's loop, with speculation or without."""
TARGET = "target"
"""Runs in a forward pass of the target model, with speculation or without."""
OUTSIDE = "outside"
"""Runs in none of them: starting, another process, a tool."""


@dataclass(slots=True, eq=False)
class Fn:
    """One function of the tree."""

    id: str
    name: str
    cls: str | None
    """The name of the class it is a method of."""
    module: str
    file: str
    line: int
    params: list[s.Param]
    body: Callable[[], list[s.Stmt]]
    phases: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    side: str = OUTSIDE
    in_worker: bool = False
    """Whether a speculative worker's step reaches it (speculation's code in the scheduler is not)."""
    other: bool = False
    """Whether it only runs under an algorithm, or in a worker, that neither path has."""
    made: bool = False
    """Whether it stands for what Python makes itself (a dataclass's constructor), and has no lines of its own."""

    @property
    def per_step(self) -> bool:
        """Whether it runs in every step."""
        return "every step" in self.phases

    @property
    def at_start(self) -> bool:
        """Whether it runs when a process starts or captures graphs."""
        return "process start" in self.phases or "graph capture" in self.phases


class FactsByFunction(dict[str, Facts]):
    """What was found in each function; nothing for one that was not walked."""

    def __missing__(self, function: str) -> Facts:
        return Facts(function)


@dataclass
class Universe:
    """The tree's functions and what was found in them."""

    vocabulary: Vocabulary
    predicates: Predicates
    fns: dict[str, Fn]
    bases: dict[str, tuple[str, ...]]
    """Class name to the names of its bases."""
    callers: Mapping[str, Iterable[str]]
    callees: Mapping[str, Iterable[str]]
    facts: FactsByFunction = field(default_factory=lambda: FactsByFunction())
    writes: dict[str, list[Access]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[str, list[Access]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    calls_on: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    """Calls of methods, by the last name of the expression that holds the object."""
    mentions: dict[str, list[Mention]] = field(default_factory=lambda: defaultdict(list))
    branches: list[Branch] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    strides: list[Stride] = field(default_factory=list)
    paths: frozenset[str] = frozenset({"v1", "v2"})
    """The paths that the tree has."""
    entries: frozenset[str] = frozenset()
    """The methods by which a worker is handed a batch to run."""
    generators: frozenset[str] = frozenset()
    """Generator functions: what ``contextlib.contextmanager`` wraps."""
    scheduler_classes: tuple[str, ...] = ()
    """The scheduler's class and those it is mixed from."""
    defaults: dict[str, dict[str, s.Expr]] = field(default_factory=dict)
    """What the fields of tracked classes are where nothing sets them: class to fields."""
    width_calls: frozenset[str] = frozenset()
    """The names of functions that return a speculative width."""
    width_fields: dict[str, frozenset[str]] = field(default_factory=dict)
    """Fields that hold a speculative width besides those that the vocabulary names: class to fields."""
    _lineage: dict[str, frozenset[str]] = field(default_factory=dict)
    _kinds: dict[tuple[str, frozenset[str]], bool] = field(default_factory=dict)
    _patterns: dict[frozenset[str], re.Pattern[str]] = field(default_factory=dict)
    _args: dict[str, bool] = field(default_factory=dict)
    _elsewhere: dict[str, bool] = field(default_factory=dict)
    _roles: dict[str, str] = field(default_factory=dict)
    _role_of: dict[str, str | None] = field(default_factory=dict)
    _by_role: dict[str, list[Access]] = field(default_factory=lambda: defaultdict(list))
    _matches: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for role, classes in self.vocabulary.roles.items():
            self._roles.update(dict.fromkeys(classes, role))

    def add(self, found: Facts) -> None:
        """File what was found in a function."""
        self.facts[found.function] = found
        for access in found.accesses:
            (self.writes if access.write else self.reads)[access.field].append(access)
        for call in found.calls:
            self.calls[call.name].append(call)
            if call.owner:
                self.calls_on[call.owner].append(call)
        for mention in found.mentions:
            self.mentions[mention.name].append(mention)
        self.branches += found.branches
        self.refusals += found.refusals
        self.strides += found.strides

    def refusals_of(self, function: str) -> list[Refusal]:
        """The refusals of one function."""
        return self.facts[function].refusals

    def lineage(self, cls: str | None) -> frozenset[str]:
        """A class and the classes it comes from, by name."""
        if cls is None:
            return frozenset()
        known = self._lineage.get(cls)
        if known is None:
            self._lineage[cls] = frozenset({cls})  # stops a circle
            found = {cls}
            for base in self.bases.get(cls, ()):
                found |= self.lineage(base)
            known = self._lineage[cls] = frozenset(found)
        return known

    def is_a(self, cls: str | None, patterns: Iterable[str]) -> bool:
        """Whether a class or one of its bases has a name that one of the patterns fully matches."""
        if cls is None:
            return False
        key = (cls, frozenset(patterns))
        known = self._kinds.get(key)
        if known is None:
            pattern = self._patterns.get(key[1])
            if pattern is None:
                pattern = self._patterns[key[1]] = re.compile("|".join(f"(?:{p})" for p in sorted(key[1])) or r"\b\B")
            known = self._kinds[key] = any(map(pattern.fullmatch, self.lineage(cls)))
        return known

    def role(self, cls: str | None) -> str | None:
        """The role of a class: that of the table that names it, or of the nearest of its bases that one names."""
        if cls is None:
            return None
        if cls not in self._role_of:
            self._role_of[cls] = self._find_role(cls)
        return self._role_of[cls]

    def _find_role(self, cls: str) -> str | None:
        level, seen = [cls], {cls}
        while level:
            for name in level:
                if name in self._roles:
                    return self._roles[name]
            level = [b for name in level for b in self.bases.get(name, ()) if b and b not in seen]
            seen |= set(level)
        return None

    def default(self, role: str, name: str) -> s.Expr | None:
        """What a field of a role's objects is where nothing sets it, as their class says."""
        for cls in sorted(self.defaults):
            if self.role(cls) == role and name in self.defaults[cls]:
                return self.defaults[cls][name]
        return None

    def held_by(self, role: str) -> list[Access]:
        """The accesses of fields of a role's classes, in code that runs every step."""
        if not self._by_role:
            for facts in self.facts.values():
                if self.fns[facts.function].per_step:
                    for access in facts.accesses:
                        found = self.role(access.cls)
                        if found is not None:
                            self._by_role[found].append(access)
        return self._by_role.get(role, [])

    def of_class(self, kind: str, key: str = "classes") -> list[Fn]:
        """The methods of the classes that a kind's table names (patterns), subclasses included."""
        ids = self._matches.get(("class", kind, key))
        if ids is None:
            patterns = self.vocabulary.names(kind, key)
            ids = frozenset(fn.id for fn in self.fns.values() if fn.cls and self.is_a(fn.cls, patterns))
            self._matches[("class", kind, key)] = ids
        return [self.fns[i] for i in sorted(ids)]

    def fn(self, item: Item) -> Fn:
        """The function in which something was found."""
        return self.fns[item.function]

    def fields(self, kind: str, key: str = "fields") -> frozenset[str]:
        """The field names that a kind's table lists; patterns are matched against the fields that occur."""
        known = self._matches.get(("field", kind, key))
        if known is None:
            patterns = self.vocabulary.names(kind, key)
            plain = {p for p in patterns if p.isidentifier()}
            found = set(plain)
            for pattern in sorted(patterns - plain):
                compiled = re.compile(pattern)
                found |= {name for name in (*self.writes, *self.reads) if compiled.fullmatch(name)}
            known = self._matches[("field", kind, key)] = frozenset(found)
        return known

    def written(self, names: Iterable[str]) -> Iterator[Access]:
        """All writes of the fields."""
        for name in sorted(names):
            yield from self.writes.get(name, ())

    def read(self, names: Iterable[str]) -> Iterator[Access]:
        """All reads of the fields."""
        for name in sorted(names):
            yield from self.reads.get(name, ())

    def paths_of(self, function: str) -> frozenset[str]:
        """The paths on which a function runs; all where it is not known to run on one."""
        fn = self.fns[function]
        return frozenset() if fn.other else fn.paths or self.paths

    def importance(self, fn: Fn) -> int:
        """How much a function tells as the side of a point: more where it runs in steps, and speaks of speculation."""
        facts = self.facts.get(fn.id)
        signals = 0
        if facts is not None:
            signals = len(facts.branches) + len(facts.mentions)
        score = (6 if fn.per_step else 0) + min(signals, 8)
        if fn.side == OUTSIDE and not fn.at_start:
            score -= 10
        if fn.other or self.elsewhere(fn):
            score -= 25
        usual = self.vocabulary.names("attention", "usual") | self.vocabulary.names("prefix_cache", "usual")
        if fn.cls is not None and self.is_a(fn.cls, usual):
            score += 3
        return score

    def field_name(self, access: Access) -> str:
        """``Class.field`` of an access; the name of what holds the field where its class is not known."""
        own = self.fns[access.function].cls if access.owner == "self" else None
        return f"{access.cls or own or access.owner}.{access.field}"

    def is_args(self, fn: Fn) -> bool:
        """Whether a function works on the server's arguments when it starts: a method, or a helper that takes them."""
        known = self._args.get(fn.id)
        if known is None:
            classes = self.vocabulary.spec.args_classes
            known = self.is_a(fn.cls, classes) or (
                fn.cls is None and not fn.per_step and any(annotation_class(p.annotation) in classes for p in fn.params)
            )
            self._args[fn.id] = known
        return known

    def elsewhere(self, fn: Fn) -> bool:
        """Whether a function belongs to another platform than CUDA, or to another algorithm than the two paths'."""
        known = self._elsewhere.get(fn.module)
        if known is None:
            parts = set(re.split(r"[._]", fn.module))
            known = self._elsewhere[fn.module] = bool(parts & self.vocabulary.names("elsewhere", "words"))
        return known

    def component(self, fn: Fn) -> str:
        """The part of the engine that a function belongs to, as the report names it."""
        return roles().component(fn.module, fn.cls)

    def leaves(self, fn: Fn, line: int) -> str | None:
        """The regime whose side leaves the function at a line, where a condition there does so."""
        return next((b.leaves for b in self.facts[fn.id].branches if b.line == line), None)
