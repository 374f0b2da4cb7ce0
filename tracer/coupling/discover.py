"""Finds what stands for a condition on speculation in one source tree.

Predicates are not listed: a method of the algorithm's enum is evaluated on its members, and a function that only
returns such a condition is one itself (``is_spec_v2``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sgltrace.coupling.predicates import Predicates
from sgltrace.coupling.regime import BATCH, NOTHING, PLAIN, PROCESS, SPEC, Reading, last_name
from sgltrace.coupling.universe import Fn
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index.facts import syntax as s


def predicates_of(functions: Iterable[Fn], classes: Mapping[str, s.Class], vocabulary: Vocabulary) -> Predicates:
    """Find what in this tree stands for a condition on speculation."""
    words = vocabulary.spec
    found = Predicates(words)
    by_class: dict[str, list[Fn]] = defaultdict(list)
    for fn in functions:
        if fn.cls is not None:
            by_class[fn.cls].append(fn)
    for cls in sorted(words.algorithm_enums):
        found.algorithm |= _of_enum(
            by_class.get(cls, []), classes.get(cls), words.plain_members, False, words.path_members
        )
    for cls in sorted(words.mode_enums):
        found.mode |= _of_enum(by_class.get(cls, []), classes.get(cls), words.spec_modes, True, None)
    found.algorithm_fields = set(words.algorithm_fields)
    return found


def _of_enum(
    methods: list[Fn], cls: s.Class | None, listed: frozenset[str], spec: bool, own: frozenset[str] | None
) -> dict[str, Reading]:
    """The predicates of an enum; ``listed`` are its members of speculation, or (where ``spec`` is false) the others."""
    if cls is None:
        return {}
    members = {
        target.id
        for statement in cls.body
        if isinstance(statement, s.Assign)
        for target in statement.targets
        if isinstance(target, s.Name) and target.id.isupper()
    }
    bodies = {fn.name: fn.body() for fn in methods}
    if not members:
        members = _registered(cls.name, bodies) | listed
    belongs = {m for m in members if (m in listed) == spec}
    return enum_predicates(sorted(members), bodies, belongs, own)


def _registered(cls: str, bodies: Mapping[str, list[s.Stmt]]) -> set[str]:
    """The members of a class that registers them at run time: those that its methods name, or ask a flag of."""
    found: set[str] = set()
    for body in bodies.values():
        for statement in body:
            if not isinstance(statement, s.Return) or statement.value is None:
                continue
            for part in s.descend(statement.value):
                match part:
                    case s.Attr(value=s.Name(id=owner), attr=name) if owner == cls and name.isupper():
                        found.add(name)
                    case s.Call(func=s.Attr(value=s.Name(id="self")), args=[s.Arg(value=s.Const(value=str(flag)))]):
                        found.add(flag)
    return found


def derive_predicates(functions: Iterable[Fn], known: Predicates) -> None:
    """Add the functions and properties that only return a condition, until no more are found."""
    small: list[tuple[str, list[s.Stmt]]] = []
    for fn in functions:
        body = fn.body()
        if len(body) <= 5 and any(isinstance(statement, s.Return) for statement in body):
            small.append((fn.name, body))
    for _ in range(3):
        before = len(known.derived)
        by_name: dict[str, list[Reading]] = defaultdict(list)
        for name, body in small:
            if name not in known.algorithm and name not in known.mode and not name.startswith("__"):
                by_name[name].append(derived_predicate(body, known))
        for name, readings in sorted(by_name.items()):
            if readings[0].known and all(reading == readings[0] for reading in readings):
                known.derived[name] = readings[0]
        if len(known.derived) == before:
            return


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
    members: list[str], bodies: Mapping[str, list[s.Stmt]], spec: set[str], own: frozenset[str] | None
) -> dict[str, Reading]:
    """The methods of an enum that tell the members in ``spec`` from the others.

    ``own`` are the members of the servers whose paths are followed: where a predicate holds for these, a server for
    which it does not hold is a plain one. Without it the enum tells batches apart, and a batch may be of any member.
    """
    scope = BATCH if own is None else PROCESS
    returns = {name: value for name, body in bodies.items() if (value := _returned(body)) is not None}
    plain = [m for m in members if m not in spec]
    found = {}
    for name, value in returns.items():
        holds = members_for(value, returns, members)
        if any(v is None for v in holds.values()):
            continue
        true = {m for m, v in holds.items() if v}
        if true and true <= spec:
            found[name] = Reading(SPEC, PLAIN if own is not None and own <= true else None, scope, (name,))
        elif true and true == set(plain) and own is not None:
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
