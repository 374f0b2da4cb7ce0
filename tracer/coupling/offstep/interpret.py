"""Runs one function of a step over the few values that a scenario decides.

Statements are read in order; a condition that the scenario decides leaves one branch. What is left over is what the
step runs, each expression with what it may be, and what it strikes: None dereferenced, an assertion that fails, a
``raise`` that is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from sgltrace.coupling.offstep.domain import OBJECT, Fact, Val, boolean, const, join
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo

if TYPE_CHECKING:
    from sgltrace.coupling.offstep.lookup import Lookup

Env = dict[str, "Val | None"]
_NOTHING: frozenset[Fact] = frozenset()
LENGTHS = frozenset(
    {"len", "zip", "enumerate", "iter", "int", "float", "sum", "range", "list", "tuple", "sorted", "max", "min", "set"}
)
"""Builtins that fail on None."""


@dataclass(frozen=True)
class Strike:
    """Where a step fails. ``certain`` says whether the function always comes here; ``conditions`` are those that the
    scenario leaves open."""

    function: FunctionInfo
    line: int
    exception: str
    expression: s.Expr | None
    facts: frozenset[Fact]
    certain: bool
    node: s.Stmt
    under: frozenset[Fact] = frozenset()
    """Those of the decided conditions around."""


@dataclass(eq=False)
class Reading:
    """A function as a step runs it."""

    function: FunctionInfo
    alive: dict[int, tuple[bool, bool]] = field(default_factory=dict)
    """Statements that run, by identity: whether they stand behind a strike, and whether they run whenever the function
    does."""
    seen: set[int] = field(default_factory=set)
    """Expressions that are evaluated."""
    behind: set[int] = field(default_factory=set)
    """Calls that stand behind a strike."""
    truths: dict[int, Val] = field(default_factory=dict)
    """Tests that the scenario decides."""
    calls: list[tuple[s.Call, list[tuple[str | None, Val | None]]]] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    values: dict[int, Val] = field(default_factory=dict)
    """What expressions are, where that follows from facts."""
    returned: Val | None = None


class Interpreter:
    """One function under one scenario."""

    expressions: ClassVar[dict[type, Callable[[Any, Any], Val | None]]] = {}

    def __init__(self, lookup: Lookup, function: FunctionInfo, params: Env, depth: int = 0) -> None:
        self.lookup = lookup
        self.function = function
        self.reading = Reading(function)
        self.env: Env = dict(params)
        self.depth = depth
        self.certain = True
        self.behind = False
        self.facts: frozenset[Fact] = _NOTHING
        """Those of the decided conditions around."""
        self._returns: list[Val | None] = []
        self._statement: s.Stmt | None = None
        self._tested = 0

    def run(self) -> Reading:
        """Read the whole body."""
        through = self.block(self.function.body)
        if through:
            self._returns.append(const(None))
        out: Val | None = self._returns[0] if self._returns else None
        for value in self._returns[1:]:
            out = join(out, value)
        self.reading.returned = out
        return self.reading

    # --- statements ---

    def block(self, body: Sequence[s.Stmt]) -> bool:
        """Read statements in order; whether control comes out at the end."""
        for statement in body:
            self._statement = statement
            self.reading.alive[id(statement)] = (self.behind, self.certain)
            handler = _STATEMENTS.get(type(statement))
            if handler is not None and not handler(self, statement):
                return False
        return True

    def _expr_stmt(self, node: s.ExprStmt) -> bool:
        self.ev(node.value)
        return True

    def _assign(self, node: s.Assign) -> bool:
        value = self.ev(node.value)
        for target in node.targets:
            self._bind(target, value, node.value)
        return True

    def _ann(self, node: s.AnnAssign) -> bool:
        if node.value is not None:
            self._bind(node.target, self.ev(node.value), node.value)
        return True

    def _aug(self, node: s.AugAssign) -> bool:
        value = self.ev(node.value)
        self._must(node.value, value, "TypeError")
        if isinstance(node.target, s.Name):
            self._set(node.target.id, None)
        else:
            self.ev(node.target)
        return True

    def _return(self, node: s.Return) -> bool:
        self._returns.append(const(None) if node.value is None else self.ev(node.value))
        return False

    def _raise(self, node: s.Raise) -> bool:
        if node.value is not None:
            self.ev(node.value)
        raised = node.value.func if isinstance(node.value, s.Call) else node.value
        name = raised.id if isinstance(raised, s.Name) else "an exception"
        if self.facts:
            self.reading.strikes.append(
                Strike(self.function, node.line, name, node.value, self.facts, self.certain, node)
            )
        return False

    def _assert(self, node: s.Assert) -> bool:
        value = self.ev(node.test)
        if value is not None and value.truth is False and value.why:
            self._strike(node.test, node.line, "AssertionError", value.why | self.facts)
        return True

    def _if(self, node: s.If) -> bool:
        truth = self.test(node.test)
        decided = None if truth is None else truth.truth
        if decided is not None:
            assert truth is not None
            outer = self.facts
            self.facts = outer | truth.why
            taken, left = (node.body, node.orelse) if decided else (node.orelse, node.body)
            through = self.block(taken)
            if not _leaves(left):  # what follows runs either way
                self.facts = outer
            return through
        certain, behind, before = self.certain, self.behind, self.env
        self.certain = False
        self.env = dict(before)
        through_body = self.block(node.body)
        after_body, behind_body = self.env, self.behind
        self.env, self.behind = dict(before), behind
        through_else = self.block(node.orelse)
        after_else, behind_else = self.env, self.behind
        if through_body and through_else:
            self.env = self._merge(after_body, after_else)
            self.behind = behind_body and behind_else
            self.certain = certain
        elif through_body:
            self.env, self.behind, self.certain = after_body, behind_body, False
        else:
            self.env, self.behind, self.certain = after_else, behind_else, False
        return through_body or through_else

    def _for(self, node: s.For) -> bool:
        value = self.ev(node.iter)
        self._must(node.iter, value, "TypeError")
        self._forget(node.body)
        self._bind(node.target, None, None)
        before = self.env
        self.env = dict(before)
        self.block(node.body)
        self.env = self._merge(before, self.env)
        return self.block(node.orelse) if node.orelse else True

    def _while(self, node: s.While) -> bool:
        self._forget(node.body)
        truth = self.test(node.test)
        decided = None if truth is None else truth.truth
        if decided is False:
            return True
        before = self.env
        self.env = dict(before)
        self.block(node.body)
        self.env = self._merge(before, self.env)
        endless = decided is True and not (truth and truth.why) and not _breaks(node.body)
        return not endless

    def _with(self, node: s.With) -> bool:
        for item in node.items:
            value = self.ev(item.value)
            if item.target is not None:
                self._bind(item.target, value, None)
        return self.block(node.body)

    def _try(self, node: s.Try) -> bool:
        before = dict(self.env)
        through = self.block(node.body)
        after = self.env
        for handler in node.handlers:
            certain, behind, self.certain = self.certain, self.behind, False
            self.env = dict(before)
            self._forget(node.body)
            if self.block(handler.body):
                after = self._merge(after, self.env) if through else self.env
                through = True
            self.certain, self.behind = certain, behind
        self.env = after
        if through and node.orelse:
            through = self.block(node.orelse)
        return self.block(node.final) and through if node.final else through

    def _match(self, node: s.Match) -> bool:
        self.ev(node.subject)
        before, certain, behind = self.env, self.certain, self.behind
        merged, through = dict(before), True
        for case in node.cases:
            self.env, self.certain, self.behind = dict(before), False, behind
            for name in case.names:
                self._set(name, None)
            if self.block(case.body):
                merged = self._merge(merged, self.env)
        self.env, self.certain, self.behind = merged, certain, behind
        return through

    def _delete(self, node: s.Delete) -> bool:
        for target in node.targets:
            if isinstance(target, s.Name):
                self._set(target.id, None)
            else:
                self.ev(target)
        return True

    def _func(self, node: s.Func) -> bool:
        self._set(node.name, None)
        return True

    def _jump(self, node: s.Jump) -> bool:
        return False

    # --- names ---

    def _set(self, name: str, value: Val | None) -> None:
        if self.env.get(name, self) is not value:
            self.env = {**self.env, name: value}

    def _bind(self, target: s.Expr, value: Val | None, source: s.Expr | None) -> None:
        if isinstance(target, s.Name):
            self._set(target.id, value)
        elif isinstance(target, s.Seq):
            if source is not None:
                self._must(source, value, "TypeError")
            items = source.items if isinstance(source, s.Seq) and len(source.items) == len(target.items) else None
            for i, item in enumerate(target.items):
                self._bind(item, self.reading.values.get(id(items[i])) if items else None, None)
        elif isinstance(target, s.Star):
            self._bind(target.value, None, None)
        elif isinstance(target, s.Attr):
            self._must(target.value, self.ev(target.value), "AttributeError")
            path = _path(target)
            if path is not None:
                self._set(path, value)
        else:
            self.ev(target)

    def _forget(self, body: Sequence[s.Stmt]) -> None:
        """Names that a loop assigns may be what a later turn made them."""
        for name in _assigned(body):
            self._set(name, None)

    @staticmethod
    def _merge(left: Env, right: Env) -> Env:
        if left is right:
            return left
        out: Env = {}
        for name, value in left.items():
            out[name] = join(value, right.get(name)) if name in right else None
        for name in right:
            out.setdefault(name, None)
        return out

    # --- strikes ---

    def _strike(self, node: s.Expr, line: int, exception: str, facts: frozenset[Fact]) -> None:
        assert self._statement is not None
        self.reading.strikes.append(
            Strike(self.function, line, exception, node, facts, self.certain, self._statement, self.facts)
        )
        self.behind = True

    def _must(self, node: s.Expr, value: Val | None, exception: str) -> None:
        """The value is used as what None is not."""
        if value is not None and value.is_none and value.why:
            line = s.line_of(node) or s.line_of(self._statement) if self._statement is not None else 0
            self._strike(node, line, exception, value.why)

    # --- expressions ---

    def test(self, node: s.Expr) -> Val | None:
        """A condition: remembered where the scenario decides it."""
        value = self.ev(node)
        if value is not None and value.truth is not None:
            self.reading.truths[id(node)] = value
        return value

    def ev(self, node: s.Expr) -> Val | None:
        """What an expression is."""
        handler = self.expressions.get(type(node))
        value = handler(self, node) if handler is not None else None
        self.reading.seen.add(id(node))
        if value is not None:
            self.reading.values[id(node)] = value
        return value

    def _const(self, node: s.Const) -> Val | None:
        return const(node.value) if isinstance(node.value, (str, int, float, bool, type(None))) else None

    def _name(self, node: s.Name) -> Val | None:
        value = self.env.get(node.id)
        return value if value is not None else self.lookup.typed(node, self.function)

    def _attr(self, node: s.Attr) -> Val | None:
        base = self.ev(node.value)
        self._must(node.value, base, "AttributeError")
        path = _path(node)
        if path is not None and path in self.env:
            return self.env[path]
        return self.lookup.attribute(node, self.function, base, self.depth)

    def _call(self, node: s.Call) -> Val | None:
        func = node.func
        receiver: Val | None = None
        if isinstance(func, s.Attr):
            receiver = self.ev(func.value)
            self._must(func.value, receiver, "AttributeError")
        else:
            called = self.ev(func)
            self._must(func, called, "TypeError")
        args = [(arg.name, self.ev(arg.value)) for arg in node.args]
        name = func.id if isinstance(func, s.Name) else None
        if name is not None and name in LENGTHS:
            for arg, (_, value) in zip(node.args, args, strict=True):
                self._must(arg.value, value, "TypeError")
        if name is not None and args:
            first = args[0][1]
            if name == "bool":
                return None if first is None or first.truth is None else boolean(first.truth, first.why)
            if name == "isinstance":
                return boolean(False, first.why) if first is not None and first.is_none else None
            if name in ("getattr", "hasattr") and len(node.args) >= 2:
                asked = node.args[1].value
                if isinstance(asked, s.Const) and isinstance(asked.value, str):
                    return self.lookup.named(node.args[0].value, asked.value, self.function, name, self.depth)
                return None
        self.reading.calls.append((node, args))
        if self.behind:
            self.reading.behind.add(id(node))
        return self.lookup.called(node, self.function, receiver, args, self.depth)

    def _sub(self, node: s.Sub) -> Val | None:
        base = self.ev(node.value)
        self._must(node.value, base, "TypeError")
        self.ev(node.index)
        return None

    def _bool(self, node: s.Bool) -> Val | None:
        left = self.test(node.left)
        truth = None if left is None else left.truth
        if truth is not None:
            assert left is not None
            if truth is (node.op == "or"):
                return left
            outer = self.facts
            self.facts = outer | left.why
            right = self.ev(node.right)
            self.facts = outer
            return right if right is None or not left.why else Val(right.atoms, right.why | left.why)
        certain, behind, self.certain = self.certain, self.behind, False
        right = self.test(node.right)
        self.certain, self.behind = certain, behind
        decided = None if right is None else right.truth
        if decided is not None and decided is (node.op == "or"):
            assert right is not None
            return boolean(decided, right.why)
        return None

    def _unary(self, node: s.Unary) -> Val | None:
        value = self.ev(node.value)
        if node.op == "not":
            return None if value is None or value.truth is None else boolean(not value.truth, value.why)
        self._must(node.value, value, "TypeError")
        return None

    def _cond(self, node: s.Cond) -> Val | None:
        test = self.test(node.test)
        truth = None if test is None else test.truth
        if truth is None:
            certain, behind, self.certain = self.certain, self.behind, False
            out = join(self.ev(node.body), self.ev(node.orelse))
            self.certain, self.behind = certain, behind
            return out
        assert test is not None
        value = self.ev(node.body if truth else node.orelse)
        return value if value is None or not test.why else Val(value.atoms, value.why | test.why)

    def _cmp(self, node: s.Cmp) -> Val | None:
        left = self.ev(node.left)
        rights = [self.ev(right) for right in node.rights]
        if len(node.ops) != 1:
            return None
        op, right = node.ops[0], rights[0]
        if op in ("<", ">", "<=", ">="):
            self._must(node.left, left, "TypeError")
            self._must(node.rights[0], right, "TypeError")
        if op in ("in", "not in"):
            items = node.rights[0]
            if left is None or not isinstance(items, s.Seq):
                return None
            values = [self.reading.values.get(id(item)) for item in items.items]
            if any(v is None for v in values):
                return None
            inside: set[Any] = set().union(*(v.atoms for v in values if v is not None))
            return _among(left, inside, op == "in")
        if left is None or right is None:
            return None
        return _compare(op, left, right)

    def _bin(self, node: s.Bin) -> Val | None:
        left, right = self.ev(node.left), self.ev(node.right)
        if node.op != "%" or not (isinstance(node.left, s.Const) and isinstance(node.left.value, str)):
            self._must(node.left, left, "TypeError")
            self._must(node.right, right, "TypeError")
        return _arithmetic(node.op, left, right)

    def _walrus(self, node: s.Walrus) -> Val | None:
        value = self.ev(node.value)
        self._set(node.target, value)
        return value

    def _comp(self, node: s.Comp) -> Val | None:
        before = self.env
        certain, self.certain = self.certain, self.certain and len(node.gens) == 1
        for gen in node.gens:
            value = self.ev(gen.iter)
            self._must(gen.iter, value, "TypeError")
            self._bind(gen.target, None, None)
            for test in gen.tests:
                self.test(test)
                self.certain = False
        if node.key is not None:
            self.ev(node.key)
        self.ev(node.element)
        self.env, self.certain = before, certain
        return None

    def _parts(self, node: s.Expr) -> Val | None:
        for part in s.children(node):
            self.ev(part)
        return Val(frozenset({OBJECT})) if isinstance(node, (s.Seq, s.Map)) and s.children(node) else None

    def _lambda(self, node: s.Lambda) -> Val | None:
        return None


def _path(node: s.Attr) -> str | None:
    """``a.b.c`` as text, under which the environment keeps what was assigned to it; None for other expressions."""
    parts = [node.attr]
    value = node.value
    while isinstance(value, s.Attr):
        parts.append(value.attr)
        value = value.value
    return ".".join((value.id, *reversed(parts))) if isinstance(value, s.Name) else None


def _among(left: Val, inside: set[Any], positive: bool) -> Val | None:
    found = {atom in inside for atom in left.atoms}
    if ("o", None) in left.atoms or ("o", None) in inside or len(found) != 1:
        return None
    return boolean(found.pop() is positive, left.why)


def _compare(op: str, left: Val, right: Val) -> Val | None:
    why = left.why | right.why
    if op in ("is", "is not", "==", "!="):
        if OBJECT in left.atoms or OBJECT in right.atoms:
            known = left if OBJECT not in left.atoms else right
            other = right if known is left else left
            if not known.is_none or other.atoms != {OBJECT}:
                return None
            return boolean(op in ("is not", "!="), why)
        shared = left.atoms & right.atoms
        if not shared:
            return boolean(op in ("is not", "!="), why)
        if len(left.atoms) == 1 == len(right.atoms):
            return boolean(op in ("is", "=="), why)
        return None
    try:
        found = {_ORDER[op](a[1], b[1]) for a in left.atoms for b in right.atoms if a[0] == b[0] == "c"}
    except (TypeError, KeyError):
        return None
    exact = all(a[0] == "c" for a in (*left.atoms, *right.atoms))
    return boolean(found.pop(), why) if exact and len(found) == 1 else None


_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b, ">": lambda a, b: a > b, "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
}  # fmt: skip


def _arithmetic(op: str, left: Val | None, right: Val | None) -> Val | None:
    if left is None or right is None or op not in _ARITHMETIC or len(left.atoms) != 1 or len(right.atoms) != 1:
        return None
    (a,), (b,) = left.atoms, right.atoms
    if a[0] != "c" or b[0] != "c" or type(a[1]) is not int or type(b[1]) is not int:
        return None
    return const(_ARITHMETIC[op](a[1], b[1]), left.why | right.why)


def _assigned(body: Sequence[s.Stmt]) -> set[str]:
    """The names that statements bind."""
    out: set[str] = set()
    for statement in body:
        targets: list[s.Expr] = []
        if isinstance(statement, s.Assign):
            targets = list(statement.targets)
        elif isinstance(statement, (s.AnnAssign, s.AugAssign, s.For)):
            targets = [statement.target]
        elif isinstance(statement, s.With):
            targets = [item.target for item in statement.items if item.target is not None]
        for target in targets:
            out |= {part.id for part in s.descend(target) if isinstance(part, s.Name)}
            out |= {path for part in s.descend(target) if isinstance(part, s.Attr) and (path := _path(part))}
        for inner in s.blocks(statement):
            out |= _assigned(inner)
    return out


def _leaves(body: Sequence[s.Stmt]) -> bool:
    """Whether a block ends by leaving the function or the turn of a loop."""
    return bool(body) and isinstance(body[-1], (s.Return, s.Raise, s.Jump))


def _breaks(body: Sequence[s.Stmt]) -> bool:
    return any(
        (isinstance(statement, s.Jump) and statement.kind == "break")
        or (not isinstance(statement, (s.For, s.While)) and any(_breaks(inner) for inner in s.blocks(statement)))
        for statement in body
    )


_STATEMENTS: dict[type, Callable[[Interpreter, Any], bool]] = {
    s.ExprStmt: Interpreter._expr_stmt, s.Assign: Interpreter._assign, s.AnnAssign: Interpreter._ann,
    s.AugAssign: Interpreter._aug, s.Return: Interpreter._return, s.Raise: Interpreter._raise,
    s.Assert: Interpreter._assert, s.If: Interpreter._if, s.For: Interpreter._for, s.While: Interpreter._while,
    s.With: Interpreter._with, s.Try: Interpreter._try, s.Match: Interpreter._match, s.Delete: Interpreter._delete,
    s.Func: Interpreter._func, s.Jump: Interpreter._jump,
}  # fmt: skip

Interpreter.expressions = {
    s.Const: Interpreter._const, s.Name: Interpreter._name, s.Attr: Interpreter._attr, s.Call: Interpreter._call,
    s.Sub: Interpreter._sub, s.Bool: Interpreter._bool, s.Unary: Interpreter._unary, s.Cond: Interpreter._cond,
    s.Cmp: Interpreter._cmp, s.Bin: Interpreter._bin, s.Walrus: Interpreter._walrus, s.Comp: Interpreter._comp,
    s.Lambda: Interpreter._lambda, s.Slice: Interpreter._parts, s.Seq: Interpreter._parts, s.Map: Interpreter._parts,
    s.Star: Interpreter._parts, s.Format: Interpreter._parts, s.Await: Interpreter._parts,
}  # fmt: skip
