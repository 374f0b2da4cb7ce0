"""Which of two regimes a condition selects: a speculative step, or a plain one.

A condition is read as far as the vocabulary goes: the algorithm's predicates, the algorithm and the other
speculative configuration, the draft state on a batch, the forward modes that only speculation uses, the
draft role of a worker. Predicates are not listed: a method of the algorithm's enum is evaluated on its members,
and a function that only returns such a condition is one itself (``is_spec_v2``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sgltrace.coupling.vocabulary import SpecVocabulary
from sgltrace.index import syntax as s

SPEC = "spec"
PLAIN = "plain"

PROCESS = "process"
"""The condition is fixed for the life of the process (the algorithm, the configuration)."""
BATCH = "batch"
"""The condition may differ from batch to batch (the draft state, the forward mode)."""
DRAFT = "draft"
"""The condition tells a draft model's objects from the target's."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a condition says: the regime where it holds, the regime where it does not, and its scope."""

    when_true: str | None = None
    when_false: str | None = None
    scope: str = PROCESS
    atoms: tuple[str, ...] = ()
    path_true: str | None = None
    """The path that is taken where the condition holds (overlap scheduling is v2's, its absence v1's)."""
    path_false: str | None = None

    @property
    def known(self) -> bool:
        """Whether the condition says anything about speculation."""
        return self.when_true is not None or self.when_false is not None

    @property
    def empty(self) -> bool:
        """Whether it says nothing of the path, either."""
        return not self.known and self.path_true is None and self.path_false is None

    def negated(self) -> Reading:
        """The reading of ``not condition``."""
        return replace(
            self,
            when_true=self.when_false,
            when_false=self.when_true,
            path_true=self.path_false,
            path_false=self.path_true,
        )


NOTHING = Reading()


def _both(left: Reading, right: Reading) -> Reading:
    """``left and right``: it holds only where both hold; where it fails, nothing is known unless both say the same."""
    if left.empty and right.empty:
        return NOTHING
    same = left.when_false == right.when_false
    return Reading(
        left.when_true or right.when_true,
        left.when_false if same else None,
        left.scope if left.scope != PROCESS or not right.known else right.scope,
        left.atoms + right.atoms,
        left.path_true or right.path_true,
        left.path_false if left.path_false == right.path_false else None,
    )


def last_name(node: s.Expr) -> str | None:
    """The last name of ``a.b.c``, of ``f()`` and of ``a[i]``; None for other expressions."""
    match node:
        case s.Name(id=name):
            return name
        case s.Attr(attr=name):
            return name
        case s.Call(func=func):
            return last_name(func)
        case s.Sub(value=value):
            return last_name(value)
    return None


@dataclass
class Predicates:
    """Names that stand for a condition on speculation, found in one source tree.

    ``algorithm`` holds the methods of the algorithm's enum, ``mode`` those of the forward mode's, ``derived`` the
    other functions and properties that only return such a condition. ``algorithm_fields`` are the names that hold
    an algorithm.
    """

    vocabulary: SpecVocabulary
    algorithm: dict[str, Reading] = field(default_factory=dict)
    mode: dict[str, Reading] = field(default_factory=dict)
    derived: dict[str, Reading] = field(default_factory=dict)
    algorithm_fields: set[str] = field(default_factory=set)

    def read(self, node: s.Expr, local: Mapping[str, s.Expr] | None = None) -> Reading:
        """What a condition says about speculation; ``local`` maps a local name to what it was bound to."""
        return self._read(node, local or {}, 0)

    def _read(self, node: s.Expr, local: Mapping[str, s.Expr], depth: int) -> Reading:
        if depth > 8:
            return NOTHING
        match node:
            case s.Unary(op="not", value=value):
                return self._read(value, local, depth + 1).negated()
            case s.Bool(op="and", left=left, right=right):
                return _both(self._read(left, local, depth + 1), self._read(right, local, depth + 1))
            case s.Bool(op="or", left=left, right=right):
                return _both(
                    self._read(left, local, depth + 1).negated(), self._read(right, local, depth + 1).negated()
                ).negated()
            case s.Cmp():
                return self._compare(node, local, depth)
            case s.Call():
                return self._call(node, local, depth)
            case s.Attr(attr=name):
                if name in self.derived:
                    return self.derived[name]
                return self._truth(name)
            case s.Name(id=name):
                if name in local:
                    return self._read(local[name], {k: v for k, v in local.items() if k != name}, depth + 1)
                return self._truth(name)
            case s.Walrus(value=value):
                return self._read(value, local, depth + 1)
        return NOTHING

    def _truth(self, name: str) -> Reading:
        """The truth of a bare value: a configuration value, the draft state, the draft role, the draft worker."""
        words = self.vocabulary
        if name in words.draft_flags:
            return Reading(SPEC, None, DRAFT, (name,))
        if name in words.overlap_fields:
            overlap = Reading(path_true="v2", path_false="v1")
            return overlap.negated() if name in words.no_overlap_fields else overlap
        if name in words.info_fields or name in words.result_fields:
            return Reading(SPEC, PLAIN, BATCH, (name,))
        if name in words.worker_fields or name in words.algorithm_fields or words.is_config(name):
            return Reading(SPEC, PLAIN, PROCESS, (name,))
        return NOTHING

    def _call(self, node: s.Call, local: Mapping[str, s.Expr], depth: int) -> Reading:
        match node.func:
            case s.Attr(value=owner, attr=name):
                if name in self.algorithm and self.holds_algorithm(owner, local):
                    return self.algorithm[name]
                if name in self.mode and name not in self.derived:
                    return self.mode[name]
                return self.derived.get(name, NOTHING)
            case s.Name(id="isinstance") if len(node.args) == 2:
                names = {last_name(item) for item in s.descend(node.args[1].value)}
                if names & self.vocabulary.input_classes:
                    return Reading(SPEC, None, BATCH, tuple(sorted(n for n in names if n)))
                return NOTHING
            case s.Name(id="bool") if node.args:
                return self._read(node.args[0].value, local, depth + 1)
            case s.Name(id="getattr") if len(node.args) >= 2 and isinstance(node.args[1].value, s.Const):
                return self._truth(str(node.args[1].value.value))
            case s.Name(id=name):
                return self.derived.get(name, NOTHING)
        return NOTHING

    def _compare(self, node: s.Cmp, local: Mapping[str, s.Expr], depth: int) -> Reading:
        if len(node.ops) != 1:
            return NOTHING
        op, right = node.ops[0], node.rights[0]
        left = node.left
        while isinstance(left, s.Name) and left.id in local and depth < 8:
            left, depth = local[left.id], depth + 1
        name = last_name(left)
        if isinstance(right, s.Const) and right.value is None and op in ("is", "is not", "==", "!="):
            reading = self._read(left, {}, depth + 1)
            if reading.empty:
                return NOTHING
            # `x is None` says the opposite of the truth of x; a predicate call is never None.
            return reading.negated() if op in ("is", "==") else reading
        member = self._member(right)
        if member is not None:
            kind, spec = member
            if kind == "mode":
                if not spec:
                    return NOTHING
                reading = Reading(SPEC, None, BATCH, (name or "mode",))
            else:
                reading = Reading(SPEC, None) if spec else Reading(PLAIN, SPEC)
                reading = replace(reading, atoms=(name or "algorithm",))
            return reading.negated() if op in ("!=", "is not") else reading
        if name is not None and (self.vocabulary.is_config(name) or name in self.algorithm_fields):
            # "in" a list with None in it says nothing where it holds, and that there is an algorithm where it does not.
            with_none = any(isinstance(p, s.Const) and p.value is None for p in s.descend(right))
            inside = Reading(None, SPEC, PROCESS, (name,)) if with_none else Reading(SPEC, None, PROCESS, (name,))
            if op in ("==", "in", ">", ">="):
                return inside
            if op in ("!=", "not in"):
                return inside.negated()
        return NOTHING

    def _member(self, node: s.Expr) -> tuple[str, bool] | None:
        """``(enum, whether the member belongs to speculation)`` of ``Enum.MEMBER``."""
        if not isinstance(node, s.Attr):
            return None
        owner = last_name(node.value)
        if owner in self.vocabulary.mode_enums:
            return "mode", node.attr in self.vocabulary.spec_modes
        if owner in self.vocabulary.algorithm_enums:
            return "algorithm", node.attr not in self.vocabulary.plain_members
        return None

    def holds_algorithm(self, node: s.Expr, local: Mapping[str, s.Expr]) -> bool:
        """Whether an expression holds the speculative algorithm."""
        name = last_name(node)
        if name is None:
            return False
        if name in self.algorithm_fields or name in self.vocabulary.algorithm_fields:
            return True
        if isinstance(node, s.Name) and name in local:
            return self.holds_algorithm(local[name], {k: v for k, v in local.items() if k != name})
        # An algorithm made on the spot: SpeculativeAlgorithm.from_string(...).
        return isinstance(node, s.Call) and any(
            last_name(part) in self.vocabulary.algorithm_enums for part in s.descend(node.func)
        )


# --- finding the predicates -------------------------------------------------------------------------------


def _returned(body: list[s.Stmt]) -> s.Expr | None:
    """The expression that a small function returns: assignments and asserts may come before it."""
    bound: dict[str, s.Expr] = {}
    for statement in body:
        match statement:
            case s.Assign(targets=[s.Name(id=name)], value=value):
                bound[name] = value
            case s.Assert() | s.ImportFrom() | s.Import():
                continue
            case s.Return(value=s.Name(id=name)) if name in bound:
                return bound[name]
            case s.Return(value=value):
                return value
            case _:
                return None
    return None


def members_for(node: s.Expr | None, methods: Mapping[str, s.Expr], members: Iterable[str]) -> dict[str, bool | None]:
    """For which members of its enum a method's returned condition holds; None where it cannot be told."""
    return {member: _holds(node, member, methods, 0) if node is not None else None for member in members}


def _holds(node: s.Expr, member: str, methods: Mapping[str, s.Expr], depth: int) -> bool | None:
    if depth > 6:
        return None
    match node:
        case s.Const(value=bool() as value):
            return value
        case s.Unary(op="not", value=value):
            inner = _holds(value, member, methods, depth + 1)
            return None if inner is None else not inner
        case s.Bool(op=op, left=left, right=right):
            a, b = _holds(left, member, methods, depth + 1), _holds(right, member, methods, depth + 1)
            if op == "and":
                return False if a is False or b is False else (None if a is None or b is None else True)
            return True if a is True or b is True else (None if a is None or b is None else False)
        case s.Cmp(left=s.Name(id="self"), ops=[op], rights=[right]):
            names = {part.attr for part in s.descend(right) if isinstance(part, s.Attr)}
            inside = member in names
            return inside if op in ("==", "in", "is") else not inside
        case s.Call(func=s.Attr(value=s.Name(id="self")), args=[s.Arg(value=s.Const(value=str(flag)))]):
            return member == flag  # a registry's flag, named as the member is
        case s.Call(func=s.Attr(value=s.Name(id="self"), attr=name)) if name in methods:
            return _holds(methods[name], member, methods, depth + 1)
        case s.Name():
            return False  # an option of the method, such as include_v2, at its default
    return None


def enum_predicates(
    members: list[str], bodies: Mapping[str, list[s.Stmt]], spec: set[str], scope: str
) -> dict[str, Reading]:
    """The methods of an enum that tell the members in ``spec`` from the others."""
    returns = {name: value for name, body in bodies.items() if (value := _returned(body)) is not None}
    plain = [m for m in members if m not in spec]
    found = {}
    for name, value in returns.items():
        holds = members_for(value, returns, members)
        if any(v is None for v in holds.values()):
            continue
        true = {m for m, v in holds.items() if v}
        if true and true <= spec:
            found[name] = Reading(SPEC, PLAIN if true == spec and scope == PROCESS else None, scope, (name,))
        elif true and true == set(plain) and scope == PROCESS:
            found[name] = Reading(PLAIN, SPEC, scope, (name,))
    return found


def derived_predicate(body: list[s.Stmt], known: Predicates) -> Reading:
    """The reading of a function that only returns a condition on speculation."""
    value = _returned(body)
    if value is None or isinstance(value, (s.Attr, s.Name, s.Const)):
        return NOTHING
    reading = known.read(value)
    if not reading.known:
        return NOTHING
    return reading if isinstance(value, (s.Bool, s.Unary, s.Cmp)) or _calls_predicate(value, known) else NOTHING


def _calls_predicate(value: s.Expr, known: Predicates) -> bool:
    return isinstance(value, s.Call) and last_name(value.func) in (known.algorithm | known.mode)
