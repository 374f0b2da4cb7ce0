"""Where code depends on speculation: on the algorithm, a width, the mode of a stage, or whether there is a draft.

One walk of each function finds what depends, and how it is used. A width is followed through locals, parameters,
returns and the fields that it is written to, until nothing new is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sgltrace.coupling.offstep.domain import member
from sgltrace.coupling.offstep.lookup import Lookup, Sites, takes_self
from sgltrace.coupling.offstep.parts import Parts
from sgltrace.coupling.offstep.run import Run
from sgltrace.coupling.offstep.scenario import Scenario
from sgltrace.coupling.vocabulary import Vocabulary
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import expressions
from sgltrace.index.fields import FieldFlow
from sgltrace.index.program import Program
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.values import ClassRef, Instance

ALGORITHM, WIDTH, STAGE, DRAFT, CAPTURED = "algorithm", "width", "stage", "draft", "captured"
"""What is depended on: the process's algorithm, a width, the mode of a stage of speculation, whether there is a draft,
or a mode that was fixed when the process started."""
TEST, SIZE, VALUE = "test", "size", "value"
SHAPING = frozenset(
    [
        "view",
        "reshape",
        "expand",
        "repeat",
        "repeat_interleave",
        "unflatten",
        "as_strided",
        "split",
        "narrow",
        "zeros",
        "ones",
        "empty",
        "full",
        "arange",
        "new_empty",
        "new_zeros",
        "new_ones",
        "new_full",
        "range",
    ]
)
"""Methods and functions whose numbers are sizes."""
NUMBERS = frozenset({"max", "min", "int", "ceil"})
ROUNDS = 4
"""So often a function is walked again because something that it takes was found to be a width."""

Field = tuple[ClassInfo, str]
Origin = tuple["ClassInfo | None", str]
"""What a value depends on: a field of a class; of None, where the class is not known."""
Taint = frozenset[Origin]
_NOTHING: Taint = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class Mark:
    """One place that depends on speculation. ``whole`` is the condition, the call that it is a size of, or itself."""

    function: FunctionInfo
    line: int
    source: str
    use: str
    origins: Taint
    node: s.Expr
    whole: s.Expr
    statement: s.Stmt


@dataclass(frozen=True, eq=False, slots=True)
class Bind:
    """A field that is given a value which depends on speculation, or only where a condition on it holds."""

    function: FunctionInfo
    line: int
    source: str
    under: tuple[Mark, ...]
    """The conditions around that depend on speculation."""
    value: s.Expr
    statement: s.Stmt


@dataclass(eq=False)
class _Found:
    marks: list[Mark] = field(default_factory=list)
    loads: list[tuple[s.Attr, str, s.Expr, s.Stmt]] = field(default_factory=list)
    plain: list[Field] = field(default_factory=list)
    """Fields that are given what depends on nothing of speculation."""
    effects: list[s.Call] = field(default_factory=list)
    """Calls that stand alone: made for what they do, not for what they give."""


class Marks:
    """The places of one program."""

    def __init__(self, program: Program, flow: FieldFlow, sites: Sites, parts: Parts, words: Vocabulary) -> None:
        self.program, self.flow, self.sites, self.parts, self.words = program, flow, sites, parts, words
        spec = words.spec
        self.widths: dict[str, set[ClassInfo] | None] = dict.fromkeys(spec.widths)
        """Names of fields that hold a width, with the classes whose they are; None where the name says it."""
        self.drafts = spec.worker_fields | spec.draft_flags
        self.parts_fields = {name for cls, name in flow.fields if cls in parts.batches}
        self._steps = program.phases.of["any"]["every step"]
        self._starts = program.phases.of["any"]["process start"]
        self.stages, self.predicates = self._stages(), frozenset[str]()
        self.predicates = self._predicates()
        self.found: dict[FunctionInfo, _Found] = {}
        self.bound: dict[Field, list[Bind]] = defaultdict(list)
        self.source_of: dict[Origin, str] = {}
        """What fields are that hold something else than a width."""
        self.captured: set[str] = set()
        """Names of fields that are given the mode of a stage when the process starts."""
        self.params: dict[FunctionInfo, dict[str, dict[Origin, list[tuple[FunctionInfo, s.Call]]]]] = defaultdict(dict)
        self.rough: dict[FunctionInfo, set[str]] = defaultdict(set)
        """Parameters that are given what is made of a width, and is none itself."""
        self.returns: dict[FunctionInfo, Taint] = {}
        self.rough_returns: set[FunctionInfo] = set()
        """Functions that give back what is made of a width, and is none itself."""
        self._todo: list[FunctionInfo] = []
        self._times: dict[FunctionInfo, int] = defaultdict(int)
        self._by_load: dict[str, set[FunctionInfo]] = defaultdict(set)
        self._binds: dict[FunctionInfo, dict[Field, list[Bind]]] = {}
        functions = sorted(program.functions.values(), key=lambda f: f.id)
        for function in functions:
            self._walk(function)
        while self._todo:
            function = self._todo.pop()
            if self._times[function] < ROUNDS and not function.module.is_outline:
                self._walk(function)
        owners = {cls for binds in self._binds.values() for cls, _ in binds}
        for cls in sorted(owners, key=lambda c: c.id):
            for methods in cls.functions.values():  # what nobody was seen to call may still be called
                for function in methods:
                    if function not in self.found and not function.module.is_outline:
                        self._walk(function)
        functions = sorted(self.found, key=lambda f: f.id)
        for _, binds in sorted(self._binds.items(), key=lambda item: item[0].id):
            for key, found in binds.items():
                self.bound[key] += found
        self.plain = {key for found in self.found.values() for key in found.plain}
        """Fields that somebody gives a value which does not depend on speculation."""
        self.loads: dict[str, list[tuple[FunctionInfo, s.Attr, str, s.Expr, s.Stmt]]] = defaultdict(list)
        names = {name for _, name in self.bound}
        for function in functions:
            for load in self.found[function].loads if function in self.found else ():
                if load[0].attr in names:
                    self.loads[load[0].attr].append((function, *load))

    def at_start(self, function: FunctionInfo) -> bool:
        """Whether what a function sets is fixed when the process starts: a constructor's, though it may run again."""
        return function not in self._steps or (function.name == "__init__" and function in self._starts)

    def of(self, function: FunctionInfo) -> list[Mark]:
        """The marks of a function."""
        found = self.found.get(function)
        return found.marks if found is not None else []

    def loading(self, name: str) -> set[FunctionInfo]:
        """The functions that read an attribute of a name, whoever's it is."""
        return self._by_load.get(name, set())

    def effects(self, function: FunctionInfo) -> list[s.Call]:
        """The calls of a function that are made for what they do."""
        found = self.found.get(function)
        return found.effects if found is not None else []

    def givers(self, function: FunctionInfo, origins: Iterable[Origin]) -> list[tuple[FunctionInfo, int]]:
        """Who gives a function what depends on ``origins``."""
        wanted = set(origins)
        found = {
            (caller, call.line)
            for given in self.params.get(function, {}).values()
            for origin, places in given.items()
            if origin in wanted or not wanted
            for caller, call in places
        }
        return sorted(found, key=lambda place: (place[0].id, place[1]))

    def uses(self, key: Field) -> list[tuple[FunctionInfo, s.Attr, str, s.Expr, s.Stmt]]:
        """The reads of a field: function, expression, how it is used, in what, and the statement."""
        mro = self.program.engine.classes.mro
        family = {*mro(key[0]), *_below(key[0])}
        return [x for x in self.loads.get(key[1], ()) if family & set(self.owners(x[0], x[1].value))]

    def comes(self, run: Run, function: FunctionInfo, origin: Origin, depth: int = 4) -> bool:
        """Whether a function of a run has what depends on ``origin`` from a place that the run comes to."""
        reading = run.readings.get(function)
        if reading is None:
            return False
        for mark in self.of(function):
            if origin in mark.origins and not isinstance(mark.node, s.Name) and id(mark.node) in reading.seen:
                return True
        return depth > 0 and any(
            caller in run and id(call) in run.readings[caller].seen and self.comes(run, caller, origin, depth - 1)
            for given in self.params.get(function, {}).values()
            for caller, call in given.get(origin, ())
        )

    def alive(self, run: Run, mark: Mark) -> bool:
        """Whether a run comes to a place, and what it depends on does, too."""
        reading = run.readings.get(mark.function)
        if reading is None or id(mark.node) not in reading.seen:
            return False
        if mark.source not in (WIDTH, CAPTURED) or not isinstance(mark.node, s.Name):
            return True
        return any(self.comes(run, mark.function, origin) for origin in mark.origins)

    # --- what the words mean ---

    def _stages(self) -> frozenset[str]:
        """The modes that only a speculative worker's own code gives a batch."""
        mode = self.parts.mode
        if mode is None:
            return frozenset()
        members = self.sites.members(mode)
        own: set[str] = set()
        shared: set[str] = set()
        for (cls, _), uses in self.flow.fields.items():
            if cls not in self.parts.batches:
                continue
            for access in uses.writes:
                value = access.value
                if isinstance(value, s.Attr) and value.attr in members:
                    is_own = access.function in self.parts.own or access.function in self.parts.all_entries
                    (own if is_own else shared).add(value.attr)
        return frozenset((own - shared) | (self.words.spec.spec_modes & members)) - {self.words.decode}

    def _predicates(self) -> frozenset[str]:
        """The methods of the modes' enum that tell a stage of speculation from a decode and from a prefill."""
        mode = self.parts.mode
        if mode is None:
            return frozenset()
        lookup = Lookup(self.program, self.flow, self.sites, Scenario("modes"))
        plain = [m for m in self.sites.members(mode) if m not in self.stages]
        out = set()
        for name, functions in mode.functions.items():
            for function in functions:

                def holds(m: str, function: FunctionInfo = function) -> bool | None:
                    value = lookup.apply(function, member(mode, [m]), [], 0)
                    return None if value is None else value.truth

                if any(holds(m) for m in sorted(self.stages)) and not any(holds(m) for m in sorted(plain)):
                    out.add(name)
        return frozenset(out)

    def owners(self, function: FunctionInfo, node: s.Expr) -> list[ClassInfo]:
        """The classes that a receiver may be of."""
        found = [v.cls for v in self.program.types(node, function) if type(v) is Instance]
        if found or not isinstance(node, s.Name) or node.id != "self":
            return found
        outer: FunctionInfo | None = function
        while outer is not None and outer.owner is None:
            outer = outer.parent
        return [outer.owner] if outer is not None and outer.owner is not None else []

    def _source(self, node: s.Expr, function: FunctionInfo, locals_: dict[str, Taint]) -> tuple[str, Taint] | None:
        """What of speculation an expression is by itself."""
        kind = type(node)
        if kind is s.Attr:
            assert isinstance(node, s.Attr)
            name = node.attr
            if name in self.predicates or (name in self.stages and isinstance(node.value, s.Name)):
                return self._as(frozenset({(self.parts.mode, name)}))
            if name in self.drafts:
                return self._as(frozenset({(None, name)}))
            if self._is_algorithm(node, function):
                return self._as(frozenset({(self.parts.algorithm, name)}))
            if name in self.widths:
                known = self.widths[name]
                owners = self.owners(function, node.value)
                if known is None or known & set(owners):
                    mine = [c for c in owners if known is None or c in known]
                    return self._as(frozenset((c, name) for c in mine) or frozenset({(None, name)}))
        elif kind is s.Name:
            assert isinstance(node, s.Name)
            taint = locals_.get(node.id)
            if taint:
                return self._as(taint)
            if self._is_algorithm(node, function):
                return self._as(frozenset({(self.parts.algorithm, node.id)}))
        elif kind is s.Call and self.returns:
            for callee, _ in self.sites.called(node, function):
                taint = self.returns.get(callee)
                if taint:
                    return self._as(taint)
        return None

    def _as(self, taint: Taint) -> tuple[str, Taint]:
        """What kind of thing a value is that depends on some fields."""
        kinds = {self._kind(origin) for origin in taint}
        return next((k for k in (WIDTH, CAPTURED, STAGE, ALGORITHM, DRAFT) if k in kinds), WIDTH), taint

    def _kind(self, origin: Origin) -> str:
        cls, name = origin
        if cls is not None and cls is self.parts.algorithm:
            return ALGORITHM
        if cls is not None and cls is self.parts.mode:
            return STAGE
        if name in self.drafts:
            return DRAFT
        return CAPTURED if name in self.captured else self.source_of.get(origin, WIDTH)

    def _is_algorithm(self, node: s.Attr | s.Name, function: FunctionInfo) -> bool:
        found = function.nodes.get(id(node))
        algorithm = self.parts.algorithm
        if found is not None and algorithm is not None:
            for value in found.values:
                if type(value) is Instance and value.cls is algorithm:
                    return True
        return isinstance(node, s.Attr) and node.attr in self.words.spec.algorithm_fields

    # --- the walk ---

    def _walk(self, function: FunctionInfo) -> None:
        again = function in self.found
        self._times[function] += 1
        found = self.found[function] = _Found()
        self._binds[function] = defaultdict(list)
        if function.module.is_outline or (
            function.owner is not None and function.owner in (self.parts.mode, self.parts.algorithm)
        ):
            return
        given = {name: frozenset(origins) for name, origins in self.params.get(function, {}).items()}
        walk = _Walk(self, function, found, given)
        walk.block(function.body, ())
        if not again:
            for attr, _, _, _ in found.loads:
                self._by_load[attr.attr].add(function)
        if walk.given_back and walk.given_back != self.returns.get(function):
            self.returns[function] = walk.given_back | self.returns.get(function, _NOTHING)
            self._todo += [caller for caller, _ in self.sites.callers.get(function, ())]

    def bind(self, key: Field, bind: Bind, is_width: bool) -> None:
        """Take up that a field is given something that depends on speculation."""
        self._binds[bind.function][key].append(bind)
        cls, name = key
        if bind.source == STAGE and isinstance(bind.value, s.Attr) and bind.value.attr in self.stages:
            is_width = self.at_start(bind.function) and name not in self.parts_fields
            if is_width:
                self.captured.add(name)
        carried = (*self.parts.batches, *self.parts.state_classes, *self.parts.results)
        is_width = is_width and bind.source != DRAFT and cls not in carried
        if not is_width or name in self.words.spec.widths or not self.at_start(bind.function):
            return
        known = self.widths.setdefault(name, set())
        if known is not None and cls not in known:
            known |= {cls, *_below(cls)}
            for sub in known:
                self.source_of.setdefault((sub, name), CAPTURED if name in self.captured else bind.source)
            self._todo += sorted(self._by_load[name], key=lambda f: f.id)

    def hand(
        self, caller: FunctionInfo, callee: FunctionInfo, call: s.Call, given: dict[int, Taint], rough: set[int]
    ) -> None:
        """Take up that a call gives widths to parameters."""
        names = [p.name for p in callee.parameters if p.kind in ("", "/")][1 if takes_self(callee) else 0 :]
        at = 0
        for i, arg in enumerate(call.args):
            name = arg.name
            if name is None:
                name = names[at] if at < len(names) else None
                at += 1
            taint = given.get(i)
            if taint and name is not None and name not in ("*", "**"):
                known = self.params[callee].setdefault(name, {})
                if i in rough and name not in self.rough[callee]:
                    self.rough[callee].add(name)
                    self._todo.append(callee)
                if not taint <= known.keys():
                    self._todo.append(callee)
                for origin in taint:
                    places = known.setdefault(origin, [])
                    if (caller, call) not in places:
                        places.append((caller, call))


class _Walk:
    """One function."""

    def __init__(self, marks: Marks, function: FunctionInfo, found: _Found, locals_: dict[str, Taint]) -> None:
        self.marks, self.function, self.found, self.locals = marks, function, found, locals_
        self.rough = set(marks.rough.get(function, ()))
        """Names that hold a product of a width and something else."""
        self.taken = set(locals_)
        """Names whose width the caller gave: what is made of them is the caller's."""
        self.given_back: Taint = _NOTHING

    def block(self, body: Iterable[s.Stmt], under: tuple[Mark, ...]) -> None:
        for statement in body:
            inside = under
            if isinstance(statement, (s.If, s.While)):
                inside = (*under, *self._expression(statement.test, statement, TEST, statement.test))
            elif isinstance(statement, s.For):
                marks = self._expression(statement.iter, statement, VALUE, statement.iter)
                inside = (*under, *marks)
            elif isinstance(statement, s.With):
                for item in statement.items:
                    self._expression(item.value, statement, VALUE, item.value)
            elif isinstance(statement, s.Match):
                self._expression(statement.subject, statement, TEST, statement.subject)
            elif isinstance(statement, (s.Assign, s.AnnAssign, s.AugAssign)):
                self._assign(statement, under)
            else:
                use = TEST if isinstance(statement, s.Assert) else VALUE
                if isinstance(statement, s.ExprStmt) and isinstance(statement.value, s.Call):
                    self.found.effects.append(statement.value)
                for root in expressions(statement):
                    self._expression(root, statement, use, root)
                if isinstance(statement, s.Return) and statement.value is not None:
                    self._give_back(statement.value)
            for inner in s.blocks(statement):
                self.block(inner, inside)
            if isinstance(statement, s.If) and _leaves(statement.body):
                under = inside  # what follows runs only where the condition does not hold

    def _give_back(self, value: s.Expr) -> None:
        """Take up what is returned, unless the caller gave it."""
        if any(isinstance(p, s.Name) and p.id in self.taken for p in s.descend(value)):
            return
        self.given_back |= self._number(value)
        if not self._is_plain(value):
            self.marks.rough_returns.add(self.function)

    def _assign(self, statement: s.Assign | s.AnnAssign | s.AugAssign, under: tuple[Mark, ...]) -> None:
        value = statement.value
        targets = statement.targets if isinstance(statement, s.Assign) else [statement.target]
        marks = [] if value is None else self._expression(value, statement, VALUE, value)
        taint = _NOTHING if value is None else self._number(value)
        for target in targets:
            if isinstance(target, s.Name):
                if taint and value is not None:
                    self.locals[target.id] = taint | self.locals.get(target.id, _NOTHING)
                    if not self._is_plain(value):
                        self.rough.add(target.id)
                    if any(isinstance(p, s.Name) and p.id in self.taken for p in s.descend(value)):
                        self.taken.add(target.id)
            elif isinstance(target, s.Attr) and value is not None:
                self._expression(target.value, statement, VALUE, target.value)
                around = tuple(m for m in under if m.source != STAGE)
                sources = [m.source for m in marks]
                if not sources and not around:
                    self.found.plain += [(owner, target.attr) for owner in self._owners(target.value)]
                else:
                    source = self.marks._as(taint)[0] if taint else sources[0] if sources else around[-1].source
                    source = STAGE if STAGE in sources else source
                    bind = Bind(self.function, statement.line, source, around, value, statement)
                    for owner in self._owners(target.value):
                        self.marks.bind((owner, target.attr), bind, bool(taint) and self._is_plain(value))
            else:
                self._expression(target, statement, VALUE, target)

    def _owners(self, node: s.Expr) -> list[ClassInfo]:
        """The classes whose field a write is: of ``self`` the function's own, whatever inherits it."""
        own = self.function.owner
        if own is not None and isinstance(node, s.Name) and node.id == "self":
            return [own]
        return self.marks.owners(self.function, node)

    def _is_plain(self, node: s.Expr) -> bool:
        """Whether a number is a width itself, or one more or less: not a product of it and something else."""
        if isinstance(node, s.Bin):
            sides = (node.left, node.right)
            return node.op in "+-" and any(isinstance(x, s.Const) for x in sides) and all(map(self._is_plain, sides))
        if isinstance(node, (s.Cond, s.Bool)):
            if isinstance(node, s.Cond) and self._number(node.test):
                return False
            parts = (node.body, node.orelse) if isinstance(node, s.Cond) else (node.left, node.right)
            return all(map(self._is_plain, parts))
        if isinstance(node, s.Call) and node.args and isinstance(node.func, s.Name) and node.func.id in NUMBERS:
            return all(self._is_plain(arg.value) for arg in node.args)
        if isinstance(node, s.Call):
            return not any(c in self.marks.rough_returns for c, _ in self.marks.sites.called(node, self.function))
        return not (isinstance(node, s.Name) and node.id in self.rough)

    def _number(self, node: s.Expr) -> Taint:
        """The widths that a number is made of; nothing where the expression is no number."""
        if isinstance(node, s.Bin):
            if isinstance(node.left, (s.Seq, s.Const)) and isinstance(getattr(node.left, "value", None), str):
                return _NOTHING
            return self._number(node.left) | self._number(node.right)
        if isinstance(node, s.Cond):
            asked = frozenset(o for o in self._number(node.test) if self.marks._kind(o) != WIDTH)
            return self._number(node.body) | self._number(node.orelse) | asked
        if isinstance(node, s.Bool):
            return self._number(node.left) | self._number(node.right)
        if isinstance(node, s.Call) and isinstance(node.func, s.Name) and node.func.id in NUMBERS:
            return frozenset(o for arg in node.args for o in self._number(arg.value))
        if isinstance(node, s.Unary):
            return self._number(node.value)
        if isinstance(node, s.Cmp):  # an answer about speculation, which is no width
            parts = [self._number(part) for part in s.children(node)]
            return frozenset(o for part in parts for o in part if self.marks._kind(o) != WIDTH)
        if isinstance(node, (s.Attr, s.Name, s.Call)):
            found = self.marks._source(node, self.function, self.locals)
            if found is not None:
                return found[1]
            if isinstance(node, s.Call) and isinstance(node.func, s.Attr) and not node.args:
                inner = self.marks._source(node.func.value, self.function, self.locals)  # a question to the algorithm
                outer = self.marks._source(node.func, self.function, self.locals)
                return next((f[1] for f in (outer, inner) if f is not None and f[0] in (ALGORITHM, STAGE)), _NOTHING)
        return _NOTHING

    def _expression(self, root: s.Expr, statement: s.Stmt, use: str, whole: s.Expr) -> list[Mark]:
        """The marks of an expression and its parts."""
        out: list[Mark] = []
        stack: list[tuple[s.Expr, str, s.Expr]] = [(root, use, whole)]
        while stack:
            node, use, whole = stack.pop()
            kind = type(node)
            if kind is s.Const:
                continue
            if kind is s.Attr or kind is s.Name or kind is s.Call:
                found = self.marks._source(node, self.function, self.locals)
                if found is not None:
                    line = s.line_of(node) or s.line_of(whole) or s.line_of(statement)
                    out.append(Mark(self.function, line, *self._used(found, use), node, whole, statement))
                if kind is s.Attr:
                    assert isinstance(node, s.Attr)
                    self.found.loads.append((node, use, whole, statement))
                    stack.append((node.value, use, whole))
                    continue
            if kind is s.Call:
                assert isinstance(node, s.Call)
                self._call(node, use, whole, stack)
            elif kind is s.Sub:
                assert isinstance(node, s.Sub)
                stack += [(node.value, use, whole), (node.index, SIZE, node)]
            elif kind is s.Cond:
                assert isinstance(node, s.Cond)
                stack += [(node.test, TEST, node.test), (node.body, use, whole), (node.orelse, use, whole)]
            elif kind is s.Cmp:
                stack += [(part, TEST, whole) for part in s.children(node)]
            else:
                stack += [(part, use, whole) for part in s.children(node)]
        self.found.marks += out
        return out

    def _construct(self, node: s.Call, given: dict[int, Taint]) -> None:
        """A dataclass keeps what its constructor is given by keyword."""
        for value in self.marks.program.types(node.func, self.function):
            cls = getattr(value, "cls", None)
            if type(value) is ClassRef and cls is not None and (cls.is_dataclass or cls.is_record):
                for i, taint in given.items():
                    name = node.args[i].name
                    if name is not None and name not in ("*", "**"):
                        statement = s.ExprStmt(node, node.line)
                        source = self.marks._as(taint)[0]
                        bind = Bind(self.function, node.line, source, (), node.args[i].value, statement)
                        self.marks.bind((cls, name), bind, self._is_plain(node.args[i].value))

    @staticmethod
    def _used(found: tuple[str, Taint], use: str) -> tuple[str, str, Taint]:
        return found[0], use if found[0] in (WIDTH, CAPTURED) or use == TEST else VALUE, found[1]

    def _call(self, node: s.Call, use: str, whole: s.Expr, stack: list[tuple[s.Expr, str, s.Expr]]) -> None:
        stack.append((node.func, use, whole))
        name = node.func.attr if isinstance(node.func, s.Attr) else getattr(node.func, "id", "")
        sizes = name in SHAPING
        stack += [(arg.value, SIZE, node) if sizes else (arg.value, use, whole) for arg in node.args]
        given = {i: taint for i, arg in enumerate(node.args) if (taint := self._number(arg.value))}
        if given:
            self._construct(node, given)
            rough = {i for i in given if not self._is_plain(node.args[i].value)}
            for callee, _ in self.marks.sites.called(node, self.function):
                self.marks.hand(self.function, callee, node, given, rough)


def _leaves(body: list[s.Stmt]) -> bool:
    return bool(body) and isinstance(body[-1], (s.Return, s.Raise, s.Jump))


def _below(cls: ClassInfo) -> set[ClassInfo]:
    """The subclasses of a class, all of them."""
    out: set[ClassInfo] = set()
    todo = list(cls.subclasses)
    while todo:
        sub = todo.pop()
        if sub not in out:
            out.add(sub)
            todo += sub.subclasses
    return out
