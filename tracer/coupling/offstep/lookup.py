"""What attributes, calls and parameters are under a scenario: asked of the scenario first, then of who writes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from sgltrace.coupling.offstep.domain import MOST, OBJECT, PATH, Val, boolean, const, join, member
from sgltrace.coupling.offstep.interpret import Env, Interpreter
from sgltrace.coupling.offstep.scenario import Scenario
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access, FieldFlow
from sgltrace.index.program import Program
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.values import ClassRef, Instance

DEEP = 5
"""Through so many fields, parameters and small functions a value is followed."""
SMALL = 7
"""A function of more statements is not evaluated where it is called."""
SITES = 12
"""A field with more writes, or a parameter with more calls, is unknown."""

Args = list[tuple[str | None, Val | None]]


class Sites:
    """Who calls a function by an ordinary call; found once for a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.callers: dict[FunctionInfo, list[tuple[FunctionInfo, s.Call]]] = defaultdict(list)
        self.targets: dict[int, list[tuple[FunctionInfo, FunctionInfo, str]]] = defaultdict(list)
        """By the identity of an expression: the caller, the callee, and the kind of the edge."""
        self.out: dict[FunctionInfo, list[tuple[FunctionInfo, str, list[s.Expr | s.Stmt]]]] = defaultdict(list)
        for (caller, callee, kind), uses in program.engine.edges.items():
            if kind == "decorated":
                continue
            places = [e for use in uses for e in use.expressions]
            self.out[caller].append((callee, kind, places))
            for expression in places:
                self.targets[id(expression)].append((caller, callee, kind))
                if isinstance(expression, s.Call):
                    self.callers[callee].append((caller, expression))
        self._definitions: dict[FunctionInfo, dict[str, list[s.Expr | None]]] = {}
        self._members: dict[ClassInfo, frozenset[str]] = {}

    def called(self, expression: s.Expr, function: FunctionInfo) -> list[tuple[FunctionInfo, str]]:
        """The functions that an expression of a function calls, with the kinds of the edges."""
        return [(callee, kind) for caller, callee, kind in self.targets.get(id(expression), ()) if caller is function]

    def definitions(self, function: FunctionInfo) -> dict[str, list[s.Expr | None]]:
        """What a function assigns to each of its names; None for what has no expression of its own."""
        found = self._definitions.get(function)
        if found is None:
            found = self._definitions[function] = {}
            _define(function.body, found)
        return found

    def members(self, cls: ClassInfo) -> frozenset[str]:
        """The members of an enum; of a class that registers them while it runs, those that its methods ask for."""
        found = self._members.get(cls)
        if found is None:
            found = frozenset(
                target.id
                for statement in cls.node.body
                if isinstance(statement, s.Assign)
                for target in statement.targets
                if isinstance(target, s.Name) and not target.id.startswith("_")
            )
            if not cls.is_enum and not found:
                found = frozenset(_asked_for(cls))
            self._members[cls] = found
        return found


def _asked_for(cls: ClassInfo) -> Iterator[str]:
    for functions in cls.functions.values():
        for function in functions:
            for statement in function.body:
                value = statement.value if isinstance(statement, s.Return) else None
                for part in s.descend(value) if value is not None else ():
                    if isinstance(part, s.Attr) and isinstance(part.value, s.Name) and part.value.id == cls.name:
                        yield part.attr
                flag = _flag(statement)
                if flag is not None:
                    yield flag


def _flag(statement: s.Stmt) -> str | None:
    """``X`` of ``return self.has("X")``: a method that asks whether its object is the member of that name."""
    match statement:
        case s.Return(value=s.Call(func=s.Attr(value=s.Name(id="self")), args=[s.Arg(value=s.Const(value=str(flag)))])):
            return flag
    return None


class Lookup:
    """The values of one scenario."""

    def __init__(self, program: Program, flow: FieldFlow, sites: Sites, scenario: Scenario) -> None:
        self.program = program
        self.flow = flow
        self.sites = sites
        self.scenario = scenario
        self.strict: frozenset[FunctionInfo] = frozenset()
        """The functions in which ``types`` hold although the scenario overrides them elsewhere."""
        self._fields: dict[tuple[ClassInfo, str], tuple[Val | None, int]] = {}
        self._params: dict[tuple[FunctionInfo, str], tuple[Val | None, int]] = {}
        self._applied: dict[_Applied, tuple[Val | None, int]] = {}
        self._mro = program.engine.classes.mro

    # --- what the interpreter asks ---

    def typed(self, node: s.Expr, function: FunctionInfo) -> Val | None:
        """What an expression of one of the scenario's classes is."""
        found = function.nodes.get(id(node))
        if found is None or not found.values:
            return None
        types = self.scenario.types
        for value in found.values:
            if type(value) is Instance and value.cls in types:
                if value.cls in self.scenario.worker_types and function not in self.strict:
                    return self.scenario.worker_types[value.cls]
                return types[value.cls]
        return None

    def attribute(self, node: s.Attr, function: FunctionInfo, base: Val | None, depth: int) -> Val | None:
        """``base.attr``."""
        found = function.nodes.get(id(node.value))
        if found is not None and found.values:
            for value in found.values:
                if type(value) is not ClassRef or not (value.cls.is_enum or value.cls in self.scenario.types):
                    continue
                if node.attr in self.sites.members(value.cls):
                    return member(value.cls, [node.attr])
        if node.attr in self.scenario.given:
            given = self._of(node.value, node.attr, function, depth)
            if given is not None:
                return given
        typed = self.typed(node, function)
        if typed is not None:
            return typed
        for callee, kind in self.sites.called(node, function):
            if kind == "property" or callee.is_property:
                return self.apply(callee, base, [], depth)
        return self._of(node.value, node.attr, function, depth)

    def named(self, base: s.Expr, name: str, function: FunctionInfo, how: str, depth: int) -> Val | None:
        """``getattr(base, name)``; of ``hasattr`` only that a field which is set is there."""
        value = self._of(base, name, function, depth)
        return value if how == "getattr" else None

    def called(self, node: s.Call, function: FunctionInfo, receiver: Val | None, args: Args, depth: int) -> Val | None:
        """What a call gives, of functions that only say what something is."""
        if depth >= DEEP:
            return None
        found = self.sites.called(node, function)
        for callee, _ in found:
            if callee.owner is None and callee.name in self.scenario.platform:
                return const(self.scenario.platform[callee.name])
        if any(kind == "constructor" for _, kind in found):
            return Val(frozenset({OBJECT}))
        if not found and len(args) == 1:
            return self._by_value(node, function, args[0][1])
        if not found or len(found) > 3:
            return None
        out: Val | None = None
        for i, (callee, _) in enumerate(found):
            value = self.apply(callee, receiver, args, depth)
            if value is None:
                return None
            out = value if i == 0 else join(out, value)
        return out

    def _by_value(self, node: s.Call, function: FunctionInfo, value: Val | None) -> Val | None:
        """``Enum(value)``: the member of that value."""
        if value is None or len(value.atoms) != 1:
            return None
        for called in self.program.types(node.func, function):
            if type(called) is ClassRef and called.cls.is_enum:
                for statement in called.cls.node.body:
                    if (
                        isinstance(statement, s.Assign)
                        and isinstance(statement.value, s.Const)
                        and ("c", statement.value.value) in value.atoms
                        and isinstance(statement.targets[0], s.Name)
                    ):
                        return member(called.cls, [statement.targets[0].id], value.why)
        return None

    def apply(self, function: FunctionInfo, receiver: Val | None, args: Args, depth: int) -> Val | None:
        """What a small function returns for a receiver and arguments."""
        if depth >= DEEP or not isinstance(function.node, s.Func) or function.is_generator:
            return None
        body = function.body
        if len(body) > SMALL or any(isinstance(st, (s.For, s.While, s.Try, s.With)) for st in body):
            return None
        key = (function, receiver, tuple(args))
        if not _known(self._applied, key, depth):
            self._applied[key] = None, 0  # a circle
            if receiver is not None and any(a[0] == "m" for a in receiver.atoms):
                out: Val | None = None
                for i, atom in enumerate(sorted(receiver.atoms, key=repr)):
                    value = self._run(function, Val(frozenset({atom}), receiver.why), args, depth)
                    out = value if i == 0 else join(out, value)
                    if out is None:
                        break
            else:
                out = self._run(function, receiver, args, depth)
            self._applied[key] = out, depth
        return self._applied[key][0]

    def _run(self, function: FunctionInfo, receiver: Val | None, args: Args, depth: int) -> Val | None:
        if receiver is not None and len(receiver.atoms) == 1 and function.body and not args:
            ((kind, value),) = receiver.atoms
            flag = _flag(function.body[-1])
            if kind == "m" and flag is not None:
                return boolean(value[1] == flag, receiver.why)
        params = bind(function, args, receiver, takes_self(function))
        return Interpreter(self, function, params, depth + 1).run().returned

    # --- fields and parameters ---

    def _of(self, base: s.Expr, name: str, function: FunctionInfo, depth: int) -> Val | None:
        classes = [v.cls for v in self.program.types(base, function) if type(v) is Instance]
        if not classes:
            return self.scenario.names.get(name)
        if len(classes) > MOST:
            return None
        out: Val | None = None
        for i, cls in enumerate(classes):
            value = self.field(cls, name, depth)
            if value is None:
                return None
            out = value if i == 0 else join(out, value)
        return out

    def field(self, cls: ClassInfo, name: str, depth: int = 0) -> Val | None:
        """What a field of an object of the class is: the scenario's word, else what its few writers put there."""
        order = self._mro(cls)
        for base in order:
            given = self.scenario.fields.get((base, name))
            if given is not None:
                return given
        if depth >= DEEP:
            return None
        key = (cls, name)
        if not _known(self._fields, key, depth):
            self._fields[key] = None, 0  # a circle
            self._fields[key] = self._written(order, name, depth), depth
        return self._fields[key][0]

    def _written(self, order: Iterable[ClassInfo], name: str, depth: int) -> Val | None:
        writes = [a for base in order if (uses := self.flow.fields.get((base, name))) for a in uses.writes]
        if not writes or len(writes) > SITES:
            return None
        values: list[Val] = []
        for access in writes:
            if self._is_itself(access, order):
                continue
            if access.kind not in ("assign", "constructor", "default", "copy") or access.value is None:
                return None
            value = Apart(self, access.function, depth + 1).ev(access.value)
            if value is None:
                return None
            values.append(value)
        # what follows from the path outweighs the exceptions (a mode that the path's server is not in)
        decided = [v for v in values if any(fact.scope == PATH for fact in v.why)]
        out: Val | None = None
        for i, value in enumerate(decided or values):
            out = value if i == 0 else join(out, value)
        return out if out is not None and len(out.atoms) <= MOST else None

    def _is_itself(self, access: Access, order: Iterable[ClassInfo]) -> bool:
        """Whether a write only hands a field on to another object of its class."""
        value = access.value
        if not isinstance(value, s.Attr) or value.attr != access.field:
            return False
        held = {v.cls for v in self.program.types(value.value, access.function) if type(v) is Instance}
        return bool(held) and all(set(self._mro(cls)) & set(order) for cls in held)

    def parameter(self, function: FunctionInfo, name: str, depth: int) -> Val | None:
        """What a function is given under a name, by all who call it."""
        key = (function, name)
        if depth >= DEEP:
            return None
        if _known(self._params, key, depth):
            return self._params[key][0]
        self._params[key] = None, 0  # a circle
        out = self._given(function, name, depth)
        self._params[key] = out, depth
        return out

    def _given(self, function: FunctionInfo, name: str, depth: int) -> Val | None:
        sites = self.sites.callers.get(function, [])
        if not sites or len(sites) > SITES:
            return None
        out: Val | None = None
        for i, (caller, call) in enumerate(sites):
            given = argument(function, call, name)
            value = None if given is None else Apart(self, caller, depth + 1).ev(given)
            if value is None:
                return None
            out = value if i == 0 else join(out, value)
        return out


_Applied = tuple[FunctionInfo, "Val | None", tuple[tuple["str | None", "Val | None"], ...]]
Key = TypeVar("Key")


def _known(kept: dict[Key, tuple[Val | None, int]], key: Key, depth: int) -> bool:
    """Whether an answer holds at a depth: one that is unknown may be known to who has further to go."""
    found = kept.get(key)
    return found is not None and (found[0] is not None or found[1] <= depth)


def takes_self(function: FunctionInfo) -> bool:
    """Whether the first parameter is not an argument of the call."""
    return function.owner is not None and function.kind not in ("function", "static_method", "staticmethod")


def bind(function: FunctionInfo, args: Args, receiver: Val | None, method: bool) -> Env:
    """The parameters of a call; the defaults of those that it does not give."""
    env: Env = {}
    params = function.parameters
    positional = [p for p in params if p.kind in ("", "/")]
    if method and positional:
        env[positional[0].name] = receiver
        positional = positional[1:]
    given: set[str] = set()
    at = 0
    loose = False
    for name, value in args:
        if name is None:
            if at < len(positional):
                env[positional[at].name] = value
                given.add(positional[at].name)
            at += 1
        elif name in ("*", "**"):
            loose = True
        else:
            env[name] = value
            given.add(name)
    if not loose:
        for p in params:
            if p.name not in given and p.name not in env and isinstance(p.default, s.Const):
                env[p.name] = const(p.default.value)
    return env


def argument(function: FunctionInfo, call: s.Call, name: str) -> s.Expr | None:
    """The expression that a call gives to a parameter, or the parameter's default; None where it cannot be told."""
    params = function.parameters
    positional = [p.name for p in params if p.kind in ("", "/")][1 if takes_self(function) else 0 :]
    at = 0
    for arg in call.args:
        if arg.name == name:
            return arg.value
        if arg.name in ("*", "**"):
            return None
        if arg.name is None:
            if at < len(positional) and positional[at] == name:
                return arg.value
            at += 1
    return next((p.default for p in params if p.name == name), None)


class Apart(Interpreter):
    """An expression by itself: a name is what its one assignment gives it, or what callers pass."""

    def __init__(self, lookup: Lookup, function: FunctionInfo, depth: int) -> None:
        super().__init__(lookup, function, {}, depth)
        self.lookup: Lookup = lookup

    def _name(self, node: s.Name) -> Val | None:
        typed = self.lookup.typed(node, self.function)
        if typed is not None or self.depth >= DEEP:
            return typed
        name = node.id
        if name in self.env:
            return self.env[name]
        self.env = {**self.env, name: None}  # a circle
        value: Val | None
        if any(p.name == name for p in self.function.parameters):
            value = self.lookup.parameter(self.function, name, self.depth)
        else:
            found = self.lookup.sites.definitions(self.function).get(name, [])
            value = self.ev(found[0]) if len(found) == 1 and found[0] is not None else None
        self.env = {**self.env, name: value}
        return value

    def _must(self, node: s.Expr, value: Val | None, exception: str) -> None:
        """Nothing runs here."""

    def _strike(self, node: s.Expr, line: int, exception: str, facts: frozenset) -> None:  # type: ignore[type-arg]
        """Nothing runs here."""


def _define(body: list[s.Stmt], out: dict[str, list[s.Expr | None]]) -> None:
    for st in body:
        if isinstance(st, s.Assign):
            for target in st.targets:
                if isinstance(target, s.Name):
                    out.setdefault(target.id, []).append(st.value)
                else:
                    for part in s.descend(target):
                        if isinstance(part, s.Name):
                            out.setdefault(part.id, []).append(None)
        elif isinstance(st, (s.AnnAssign, s.AugAssign, s.For)) and isinstance(st.target, s.Name):
            value = st.value if isinstance(st, s.AnnAssign) else None
            out.setdefault(st.target.id, []).append(value)
        for inner in s.blocks(st):
            _define(inner, out)


Apart.expressions = {**Interpreter.expressions, s.Name: Apart._name}
