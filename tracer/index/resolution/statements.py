"""Reads statements in source order.

Locals are followed as they are assigned: branches and loops join what a name may hold. Where a function has nested
functions, a name is one node for all its assignments, because a nested function may see any of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.attributes import store
from sgltrace.index.resolution.binding import classes_only, makes_wrappers
from sgltrace.index.resolution.calls import call
from sgltrace.index.resolution.elements import enter, on_object, store_item, unpack
from sgltrace.index.resolution.engine import Engine
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, Scope
from sgltrace.index.resolution.expressions import ExpressionReader
from sgltrace.index.resolution.externals import passes_on
from sgltrace.index.resolution.modules import bound_in, describe, import_bindings, is_overload
from sgltrace.index.resolution.narrow import narrowed
from sgltrace.index.resolution.overwritten import key_of, overwritten
from sgltrace.index.resolution.uses import Site, Use
from sgltrace.index.resolution.values import EXTERNAL, Bound, Container, Decorated, FunctionRef, Node, Value, constant

Names = dict[str, Node]


class Reader(ExpressionReader):
    """One function's, class's or module's body. Each method for a statement says whether control goes on behind it."""

    def __init__(self, engine: Engine, function: FunctionInfo, scope: Scope) -> None:
        super().__init__(engine, function, scope)
        self.loops: list[Names] = []

    def block(self, body: list[s.Stmt]) -> bool:
        """Read statements; False where control does not come out at their end."""
        straight = self.scope is self.function.module.scope and body is self.function.body
        straight = straight and not _rebinds_globals(self.function)
        for i, statement in enumerate(body):
            if straight:
                self._follow_names(statement)
            if isinstance(statement, s.Assign) and isinstance(statement.value, s.Map):
                self._look_ahead(statement, statement.value, body[i + 1 :])
            if not self._read(statement):
                return False
        return True

    def _follow_names(self, statement: s.Stmt) -> None:
        """At the top of a module, before a statement: forget what it may bind on some way only."""
        self.is_plain = isinstance(statement, (s.Assign, s.ExprStmt))
        if isinstance(statement, s.ImportFrom) and not self.is_plain:
            self.latest.clear()
        if not isinstance(statement, s.Assign):
            for name in bound_in(statement):
                self.latest.pop(name, None)

    def _look_ahead(self, statement: s.Assign, display: s.Map, following: list[s.Stmt]) -> None:
        match statement.targets:
            case [s.Name(id=name)]:
                self.overwritten.update(overwritten(display, name, following))

    def _read(self, statement: s.Stmt) -> bool:
        around, self.statement = self.statement, statement
        goes_on: bool = _STATEMENTS[type(statement)](self, statement)
        self.statement = around
        return goes_on

    # --- assignments ---

    def _assign(self, statement: s.Assign) -> bool:
        value = self.expression(statement.value)
        for target in statement.targets:
            self.bind(target, value, statement)
        return True

    def _annotated(self, statement: s.AnnAssign) -> bool:
        value = None if statement.value is None else self.expression(statement.value)
        target = statement.target
        if self.scope.is_class and isinstance(target, s.Name):
            if value is not None:
                self.solver.link(value, self.scope.names[target.id])
            return True
        declared = Node()
        self.engine.declare(declared, statement.annotation, self.scope)
        if value is not None:
            self.engine.pass_on(value, declared)
        self.bind(target, declared, statement)
        return True

    def _augmented(self, statement: s.AugAssign) -> bool:
        value = self.expression(statement.value)
        current = self.expression(statement.target)
        self.bind(statement.target, self.operate(statement, statement.op, current, value), statement)
        return True

    def bind(self, target: s.Expr, value: Node, statement: s.Stmt) -> None:
        """Assign to a target."""
        if isinstance(target, s.Name):
            self.set(target.id, value)
            self.function.nodes[id(target)] = value
        elif isinstance(target, s.Attr):
            base = self.expression(target.value)
            self.function.nodes[id(target)] = value
            if base is not EXTERNAL:
                store(self.engine, base, target.attr, value, Use(self.function, target))
        elif isinstance(target, s.Sub):
            base, index = self.expression(target.value), self.expression(target.index)
            if base is not EXTERNAL:
                store_item(self.engine, base, key_of(target.index), index, value, self.use(statement))
        elif isinstance(target, s.Seq):
            self._unpack(target, value, statement)
        elif isinstance(target, s.Star):
            self.bind(target.value, value, statement)

    def _unpack(self, target: s.Seq, value: Node, statement: s.Stmt) -> None:
        if value is EXTERNAL:
            for item in target.items:
                self.bind(item, EXTERNAL, statement)
            return
        starred = next((i for i, item in enumerate(target.items) if isinstance(item, s.Star)), len(target.items))
        nodes = [Node() for _ in target.items]
        targets = [(i if i < starred else None, node) for i, node in enumerate(nodes)]
        unpack(self.engine, value, targets, self.use(statement))
        for item, node in zip(target.items, nodes, strict=True):
            if isinstance(item, s.Star):
                container = Container("list")
                self.solver.link(node, container.element)
                node = constant(container)
            self.bind(item, node, statement)

    def set(self, name: str, node: Node) -> None:
        """Assign to a name."""
        scope = self.scope
        if name in scope.globals:
            self._assign_weakly(scope.module.scope, name, node)
        elif name in scope.declared:
            outer = scope.parent
            while outer is not None and name not in outer.names:
                outer = outer.parent
            if outer is not None:
                self._assign_weakly(outer, name, node)
        elif scope.weak:
            self._assign_weakly(scope, name, node)
            if self.is_plain and scope.parent is None:
                self.latest[name] = node
        else:
            scope.names[name] = node

    def _assign_weakly(self, scope: Scope, name: str, node: Node) -> None:
        if scope.parent is None:
            self.engine.modules.lookup(scope.module, name)  # what it is imported as stays in it
        target = scope.names.get(name)
        if target is None or target.fixed:
            old, target = target, Node()
            scope.names[name] = target
            if old is not None:
                self.solver.link(old, target)
        self.solver.link(node, target)

    def _declare_scope(self, statement: s.Scope) -> bool:
        names = self.scope.globals if statement.kind == "global" else self.scope.declared
        names.update(statement.names)
        return True

    def _import(self, statement: s.Import | s.ImportFrom) -> bool:
        if self.scope.function is None:
            return True  # the module's and the classes' own imports are bound already
        bindings, _ = import_bindings(self.engine.modules, self.function.module, statement)
        for name, target, attribute in bindings:
            self.set(name, self.engine.modules.imported(target, attribute) or Node())
        return True

    # --- simple statements ---

    def _expression_statement(self, statement: s.ExprStmt) -> bool:
        self.expression(statement.value)
        return True

    def _return(self, statement: s.Return) -> bool:
        if statement.value is not None:
            self.solver.link(self.expression(statement.value), self.function.result)
        return False

    def _raise(self, statement: s.Raise) -> bool:
        if statement.value is not None:
            raised = self.expression(statement.value)
            if not isinstance(statement.value, s.Call):  # `raise Error`: Python makes one
                classes = Node(transform=classes_only)
                self.solver.link(raised, classes)
                call(self.engine, Site(self.function, statement.value, classes, [], Node()))
        return False

    def _jump(self, statement: s.Jump) -> bool:
        if self.loops:
            self._turn(self.loops[-1])
        return False

    def _assert(self, statement: s.Assert) -> bool:
        self.condition(statement.test)
        self.narrow(statement.test, True)
        return True

    def _delete(self, statement: s.Delete) -> bool:
        for target in statement.targets:
            if isinstance(target, s.Sub):
                base, index = self.expression(target.value), self.expression(target.index)
                if not base.fixed:
                    on_object(self.engine, base, "__delitem__", [(None, index)], self.use(statement))
            elif isinstance(target, s.Attr):
                self.expression(target.value)
        return True

    # --- branches and loops ---

    def narrow(self, test: s.Expr, holds: bool) -> None:
        """Let names that an ``isinstance`` test speaks of hold only what passed it."""
        if self.scope.weak:
            return  # a name is one node in the whole function
        for name, transform in narrowed(self.engine, self.scope, test, holds):
            node = self.scope.names.get(name)
            if node is not None and not node.fixed:
                fitting = Node(transform=transform)
                self.solver.link(node, fitting)
                self.scope.names[name] = fitting

    def _if(self, statement: s.If) -> bool:
        self.condition(statement.test)
        ends: list[Names] = []
        before = self.scope.names
        for body, holds in ((statement.body, True), (statement.orelse, False)):
            self._begin_branch(before)
            self.narrow(statement.test, holds)
            if self.block(body):
                ends.append(self.scope.names)
        self._join(ends)
        return bool(ends)

    def _begin_branch(self, before: Names) -> None:
        if not self.scope.weak:
            self.scope.names = dict(before)

    def _join(self, ends: list[Names]) -> None:
        """Go on with what names hold at the ends of branches."""
        if self.scope.weak or not ends:
            return
        joined = ends[0]
        for end in ends[1:]:
            joined = self._merge(joined, end)
        self.scope.names = joined

    def _merge(self, one: Names, other: Names) -> Names:
        out = dict(one)
        for name, node in other.items():
            mine = out.get(name)
            out[name] = node if mine is None else self.either(mine, node)
        return out

    def _for(self, statement: s.For) -> bool:
        iterated = self.expression(statement.iter)
        heads = self._open_loop(statement.body, [statement.target])
        self.bind(statement.target, self.element(iterated, statement), statement)
        self.block(statement.body)
        self._close_loop(heads)
        self.block(statement.orelse)
        return True

    def _while(self, statement: s.While) -> bool:
        heads = self._open_loop(statement.body, [])
        self.condition(statement.test)
        self.narrow(statement.test, True)
        self.block(statement.body)
        self._close_loop(heads)
        self.block(statement.orelse)
        return True

    def _open_loop(self, body: list[s.Stmt], targets: list[s.Expr]) -> Names:
        """Before a loop: each name that its body assigns gets one node for all turns."""
        heads: Names = {}
        if not self.scope.weak:
            names: set[str] = set()
            _assigned(body, names)
            for target in targets:
                _target_names(target, names)
            for name in sorted(names - self.scope.globals):
                head = heads[name] = Node()
                if name in self.scope.names:
                    self.solver.link(self.scope.names[name], head)
                self.scope.names[name] = head
        self.loops.append(heads)
        return heads

    def _turn(self, heads: Names) -> None:
        """At the end of a turn: what the names hold now, they hold at the next one's start."""
        for name, head in heads.items():
            node = self.scope.names.get(name)
            if node is not None:
                self.solver.link(node, head)

    def _close_loop(self, heads: Names) -> None:
        self._turn(heads)
        self.loops.pop()
        self.scope.names.update(heads)

    def _with(self, statement: s.With) -> bool:
        for item in statement.items:
            manager = self.expression(item.value)
            entered = EXTERNAL
            if manager is not EXTERNAL:
                entered = Node()
                enter(self.engine, manager, entered, self.use(item.value))
            if item.target is not None:
                self.bind(item.target, entered, statement)
        return self.block(statement.body)

    def _try(self, statement: s.Try) -> bool:
        before = dict(self.scope.names)
        ends = []
        if self.block(statement.body) and self.block(statement.orelse):
            ends.append(self.scope.names)
        raised = self.scope.names if self.scope.weak else self._merge(before, self.scope.names)
        for handler in statement.handlers:
            self._begin_branch(raised)
            if handler.type is not None:
                self.expression(handler.type)
            if handler.name is not None:
                self.set(handler.name, EXTERNAL)
            if self.block(handler.body):
                ends.append(self.scope.names)
        self._join(ends or [raised])
        return self.block(statement.final) and bool(ends)

    def _match(self, statement: s.Match) -> bool:
        subject = self.expression(statement.subject)
        before = self.scope.names
        ends = [before]
        for case in statement.cases:
            self._begin_branch(before)
            for value in case.values:
                self.expression(value)
            for name in case.names:
                self.set(name, subject)
            if case.guard is not None:
                self.condition(case.guard)
            if self.block(case.body):
                ends.append(self.scope.names)
        self._join(ends)
        return True

    # --- definitions ---

    def _define_function(self, statement: s.Func) -> bool:
        if is_overload(statement):
            return True
        function = self.scope.definitions.get(id(statement))
        if not isinstance(function, FunctionInfo):
            qualname = f"{self.prefix()}{statement.name}"
            function = FunctionInfo(
                self.function.module, statement.name, qualname, statement, self.scope, None, self.function
            )
            describe(function)
            self.function.nested[id(statement)] = function
            self._add_name(statement.name, constant(function.ref))
        self._decorate(function, statement)
        return True

    def _add_name(self, name: str, node: Node) -> None:
        """Bind a name to one more thing: a decorated function is what it was as well as what wraps it."""
        self._assign_weakly(self.scope, name, node)

    def _decorate(self, function: FunctionInfo, statement: s.Func) -> None:
        """Call the decorators of the tree; what they make is bound to the name besides the function."""
        for decorator in reversed(statement.decorators):
            node = self.expression(decorator)
            if passes_on(node):
                continue
            made = Node(transform=partial(_wrapper, node))
            argument = constant(Decorated(function, node))
            place = decorator if s.line_of(decorator) else statement
            call(self.engine, Site(self.function, place, node, [(None, argument)], made))
            self._add_name(statement.name, made)

    def _define_class(self, statement: s.Class) -> bool:
        cls = self.scope.definitions.get(id(statement))
        if not isinstance(cls, ClassInfo):
            cls = self.engine.modules.local_class(self.function, statement, self.scope)
            self.set(statement.name, constant(cls.ref))
        for keyword in statement.keywords:
            self.expression(keyword.value)
        for decorator in statement.decorators:
            node = self.expression(decorator)
            if not passes_on(node):
                place = decorator if s.line_of(decorator) else statement
                call(self.engine, Site(self.function, place, node, [(None, constant(cls.ref))], Node()))
        Reader(self.engine, self.function, cls.scope).block(statement.body)
        return True


def _rebinds_globals(body: FunctionInfo) -> bool:
    """Whether functions of a module may assign its names."""
    module = body.module
    methods = [function for cls in module.classes.values() for made in cls.functions.values() for function in made]
    functions = [*module.functions.values(), *methods]
    return any(isinstance(f.node, s.Func) and s.GLOBAL in bytes(f.node.body) for f in functions)


def _wrapper(decorator: Node, value: Value) -> Value | None:
    """Of what a decorator returns, that which it made itself: it may return every function it was ever given."""
    if isinstance(value, (Bound, Decorated)):
        return None
    if not isinstance(value, FunctionRef):
        return value
    if makes_wrappers(value.function):
        return None  # `def register(f=None)` returns a decorator where it is given no function
    makers = {v.function for v in decorator.values if isinstance(v, (FunctionRef, Bound))}
    function = value.function.parent
    while function is not None and function not in makers:
        function = function.parent
    return value if function is not None else None


def _target_names(target: s.Expr, names: set[str]) -> None:
    if isinstance(target, s.Name):
        names.add(target.id)
    elif isinstance(target, s.Seq):
        for item in target.items:
            _target_names(item, names)
    elif isinstance(target, s.Star):
        _target_names(target.value, names)


def _assigned(body: list[s.Stmt], names: set[str]) -> None:
    """The names that statements assign."""
    for statement in body:
        if isinstance(statement, s.Assign):
            for target in statement.targets:
                _target_names(target, names)
        elif isinstance(statement, (s.AnnAssign, s.AugAssign, s.For)):
            _target_names(statement.target, names)
        elif isinstance(statement, s.With):
            for item in statement.items:
                if item.target is not None:
                    _target_names(item.target, names)
        for inner in s.blocks(statement):
            _assigned(inner, names)


_STATEMENTS: dict[type, Any] = {
    s.Assign: Reader._assign, s.AnnAssign: Reader._annotated, s.AugAssign: Reader._augmented,
    s.ExprStmt: Reader._expression_statement, s.Return: Reader._return, s.Raise: Reader._raise, s.Jump: Reader._jump,
    s.Assert: Reader._assert, s.Delete: Reader._delete, s.Scope: Reader._declare_scope, s.Import: Reader._import,
    s.ImportFrom: Reader._import, s.If: Reader._if, s.For: Reader._for, s.While: Reader._while, s.With: Reader._with,
    s.Try: Reader._try, s.Match: Reader._match, s.Func: Reader._define_function, s.Class: Reader._define_class,
}  # fmt: skip
