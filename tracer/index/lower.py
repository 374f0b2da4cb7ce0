"""Reads a function's statements in source order and makes nodes, links and sites of them.

Locals are followed as they are assigned: branches and loops join what a name may hold. Where a function has nested
functions, a name is one node for all its assignments, because a nested function may see any of them.
"""

from __future__ import annotations

from functools import partial

from sgltrace.index import syntax as s
from sgltrace.index.engine import Args, Engine, Site, Use, makes_wrappers
from sgltrace.index.entities import ClassInfo, FunctionInfo, Scope
from sgltrace.index.externals import SPECIAL_FORMS, passes_on
from sgltrace.index.modules import import_bindings, is_overload
from sgltrace.index.narrow import narrowed
from sgltrace.index.values import (
    EXTERNAL,
    NOTHING,
    Bound,
    ClassRef,
    Container,
    Decorated,
    External,
    FunctionRef,
    Instance,
    Node,
    SuperRef,
    Text,
    Value,
    constant,
)

_OPERATORS = {
    "+": "__add__", "-": "__sub__", "*": "__mul__", "/": "__truediv__", "//": "__floordiv__", "%": "__mod__",
    "**": "__pow__", "@": "__matmul__", "&": "__and__", "|": "__or__", "^": "__xor__", "<<": "__lshift__",
    ">>": "__rshift__", "==": "__eq__", "!=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__",
}  # fmt: skip


def lower(engine: Engine, function: FunctionInfo) -> None:
    """Read a function's body, once."""
    if function.lowered:
        return
    function.lowered = True
    if function.qualname == "<module>":
        reader = Reader(engine, function, function.enclosing)
        reader.block(function.body)
        return
    node = function.node
    weak = isinstance(node, s.Lambda) or (isinstance(node, s.Func) and _has_nested(node))
    scope = Scope(function.module, function.enclosing, function, weak=weak)
    function.scope = scope
    scope.names.update(function.params)
    reader = Reader(engine, function, scope)
    for param in function.parameters:
        if param.default is not None:
            default = Reader(engine, function, function.enclosing).expression(param.default)
            engine.solver.link(default, function.params[param.name])
    reader.block(function.body)


def _has_nested(node: s.Func) -> bool:
    """Whether the encoded body holds the tag of a function or (perhaps) of a lambda."""
    body = bytes(node.body)
    return b"\xa3def" in body or b"\x94\xa1F" in body


class Reader:
    """One function's body. ``names`` is what each local holds at the place being read."""

    def __init__(self, engine: Engine, function: FunctionInfo, scope: Scope) -> None:
        self.engine = engine
        self.solver = engine.solver
        self.function = function
        self.scope = scope
        self.loops: list[dict[str, Node]] = []
        self.loads: dict[tuple[Node, str], tuple[Use, Node]] = {}

    # --- statements ---

    def block(self, body: list[s.Stmt]) -> bool:
        """Read statements; False where control does not come out at their end."""
        for statement in body:
            if not _STATEMENTS[type(statement)](self, statement):
                return False
        return True

    def assign(self, statement: s.Assign) -> bool:
        value = self.expression(statement.value)
        for target in statement.targets:
            self.bind(target, value, statement)
        return True

    def annotated(self, statement: s.AnnAssign) -> bool:
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
        elif isinstance(target, s.Name):
            self.bind(target, declared, statement)
        elif isinstance(target, s.Attr):
            self.bind(target, declared, statement)
        return True

    def augmented(self, statement: s.AugAssign) -> bool:
        value = self.expression(statement.value)
        target = statement.target
        current = self.expression(target)
        result = self.operate(statement, statement.op, current, value)
        self.bind(target, result, statement)
        return True

    def expression_statement(self, statement: s.ExprStmt) -> bool:
        self.expression(statement.value)
        return True

    def return_(self, statement: s.Return) -> bool:
        if statement.value is not None:
            value = self.expression(statement.value)
            self.solver.link(value, self.function.result)
        return False

    def raise_(self, statement: s.Raise) -> bool:
        if statement.value is not None:
            self.expression(statement.value)
        return False

    def jump(self, statement: s.Jump) -> bool:
        if self.loops:
            self.close_loop(self.loops[-1])
        return False

    def assert_(self, statement: s.Assert) -> bool:
        self.expression(statement.test)
        self.narrow(statement.test, True)
        return True

    def delete(self, statement: s.Delete) -> bool:
        for target in statement.targets:
            if isinstance(target, s.Sub):
                base, index = self.expression(target.value), self.expression(target.index)
                use = Use(self.function, statement, dispatch=True)
                if not base.fixed:
                    self.solver.watch(base, partial(self._item, "__delitem__", [(None, index)], use))
        return True

    def _item(self, name: str, args: Args, use: Use, value: Value) -> None:
        if type(value) is Instance:
            self.engine.dunder(value, name, use, args, Node())

    def declare_scope(self, statement: s.Scope) -> bool:
        if statement.kind == "global":
            self.scope.globals.update(statement.names)
        else:
            self.scope.declared.update(statement.names)
        return True

    def import_(self, statement: s.Import | s.ImportFrom) -> bool:
        if self.scope.function is None:
            return True  # the module's and the classes' own imports are bound already
        bindings, stars = import_bindings(self.engine.modules, self.function.module, statement)
        for name, target, attribute in bindings:
            found = self.engine.modules.imported(target, attribute)
            self.set(name, found if found is not None else Node())
        return True

    def condition(self, test: s.Expr) -> None:
        """An expression that is asked whether it is true: an object may answer by a method."""
        node = self.expression(test)
        if isinstance(test, s.Unary) and test.op == "not":
            self.truth(test.value)
        elif isinstance(test, s.Bool):
            self.truth(test.left)
            self.truth(test.right)
        else:
            self.truth(test, node)

    def truth(self, test: s.Expr, node: Node | None = None) -> None:
        if isinstance(test, (s.Bool, s.Unary)):
            for part in s.children(test):
                self.truth(part)
        elif isinstance(test, (s.Name, s.Attr, s.Call)):
            node = node if node is not None else self.function.nodes.get(id(test))
            if node is not None and not node.fixed:
                self.solver.watch(node, partial(self._truth, Use(self.function, test, dispatch=True)))

    def _truth(self, use: Use, value: Value) -> None:
        if type(value) is Instance:
            name = "__bool__" if self.engine.classes.lookup(value.cls, "__bool__") is not None else "__len__"
            if self.engine.classes.lookup(value.cls, name) is not None:
                self.engine.dunder(value, name, use, [], Node())

    def if_(self, statement: s.If) -> bool:
        self.condition(statement.test)
        before = self.scope.names
        if self.scope.weak:
            self.scope_weak_if(statement)
            through_body = self._branch(statement.body)
            through_else = self._branch(statement.orelse)
            return through_body or through_else
        self.scope.names = dict(before)
        self.narrow(statement.test, True)
        through_body = self.block(statement.body)
        after_body = self.scope.names
        self.scope.names = dict(before)
        self.narrow(statement.test, False)
        through_else = self.block(statement.orelse)
        after_else = self.scope.names
        if through_body and through_else:
            self.scope.names = self.merge(after_body, after_else)
        else:
            self.scope.names = after_body if through_body else after_else
        return through_body or through_else

    def scope_weak_if(self, statement: s.If) -> None:
        """Nothing to narrow: a name is one node in the whole function."""

    def _branch(self, body: list[s.Stmt]) -> bool:
        return self.block(body)

    def merge(self, one: dict[str, Node], other: dict[str, Node]) -> dict[str, Node]:
        """What names hold where two branches come together."""
        out = dict(one)
        for name, node in other.items():
            mine = out.get(name)
            if mine is None:
                out[name] = node
            elif mine is not node:
                joined = out[name] = Node()
                self.solver.link(mine, joined)
                self.solver.link(node, joined)
        return out

    def open_loop(self, body: list[s.Stmt], targets: list[s.Expr]) -> dict[str, Node]:
        """Before a loop: each name that its body assigns gets one node for all turns."""
        heads: dict[str, Node] = {}
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

    def close_loop(self, heads: dict[str, Node]) -> None:
        """At the end of a turn: what the names hold now, they hold at the next one's start."""
        for name, head in heads.items():
            node = self.scope.names.get(name)
            if node is not None:
                self.solver.link(node, head)

    def end_loop(self, heads: dict[str, Node]) -> None:
        self.close_loop(heads)
        self.loops.pop()
        self.scope.names.update(heads)

    def for_(self, statement: s.For) -> bool:
        iterated = self.expression(statement.iter)
        heads = self.open_loop(statement.body, [statement.target])
        element = self.element(iterated, statement)
        self.bind(statement.target, element, statement)
        self.block(statement.body)
        self.end_loop(heads)
        self.block(statement.orelse)
        return True

    def while_(self, statement: s.While) -> bool:
        heads = self.open_loop(statement.body, [])
        self.condition(statement.test)
        self.block(statement.body)
        self.end_loop(heads)
        self.block(statement.orelse)
        return True

    def with_(self, statement: s.With) -> bool:
        for item in statement.items:
            manager = self.expression(item.value)
            entered = EXTERNAL
            if manager is not EXTERNAL:
                entered = Node()
                use = Use(self.function, item.value, dispatch=True)
                self.solver.watch(manager, partial(self._enter, use, entered))
            if item.target is not None:
                self.bind(item.target, entered, statement)
        return self.block(statement.body)

    def _enter(self, use: Use, entered: Node, value: Value) -> None:
        if type(value) is Instance:
            for name in ("__enter__", "__aenter__", "__exit__", "__aexit__"):
                found = self.engine.classes.lookup(value.cls, name)
                for attribute in list(found[1].values) if found else ():
                    if type(attribute) is FunctionRef:
                        result = entered if name.endswith("enter__") else Node()
                        self.engine.invoke(use, attribute.function, value, [], result, "context_manager")
        elif type(value) is Container:
            self.solver.link(value.element, entered)
        elif type(value) is External:
            self.solver.add(entered, value)

    def try_(self, statement: s.Try) -> bool:
        before = dict(self.scope.names)
        through = self.block(statement.body) and self.block(statement.orelse)
        weak = self.scope.weak
        after = self.scope.names
        raised = after if weak else self.merge(before, after)
        ends = [after] if through else []
        for handler in statement.handlers:
            if not weak:
                self.scope.names = dict(raised)
            if handler.type is not None:
                self.expression(handler.type)
            if handler.name is not None:
                self.set(handler.name, EXTERNAL)
            if self.block(handler.body):
                ends.append(self.scope.names)
                through = True
        if not weak:
            joined = ends[0] if ends else raised
            for end in ends[1:]:
                joined = self.merge(joined, end)
            self.scope.names = joined
        return self.block(statement.final) and through

    def match(self, statement: s.Match) -> bool:
        subject = self.expression(statement.subject)
        before, weak = self.scope.names, self.scope.weak
        ends = [before]
        for case in statement.cases:
            if not weak:
                self.scope.names = dict(before)
            for value in case.values:
                self.expression(value)
            for name in case.names:
                self.set(name, subject)
            if case.guard is not None:
                self.expression(case.guard)
            if self.block(case.body):
                ends.append(self.scope.names)
        if not weak:
            joined = ends[0]
            for end in ends[1:]:
                joined = self.merge(joined, end)
            self.scope.names = joined
        return True

    def define_function(self, statement: s.Func) -> bool:
        if is_overload(statement):
            return True
        known = self.scope.definitions.get(id(statement))
        if isinstance(known, FunctionInfo):
            function = known
        else:
            qualname = f"{self.function.qualname}.{statement.name}"
            function = FunctionInfo(
                self.function.module, statement.name, qualname, statement, self.scope, None, self.function
            )
            self.engine.describe(function)
            self.function.nested[id(statement)] = function
            self.set(statement.name, Node())
            self.scope.names[statement.name] = self.weak_or_new(statement.name, constant(function.ref))
        self.decorate(function, statement)
        return True

    def weak_or_new(self, name: str, node: Node) -> Node:
        """The node under a name once ``node`` is assigned to it."""
        if self.scope.weak and name in self.scope.names:
            self.solver.link(node, self.scope.names[name])
            return self.scope.names[name]
        return node

    def decorate(self, function: FunctionInfo, statement: s.Func) -> None:
        """Call the decorators of the tree; what they return besides the function is bound to the name as well."""
        for decorator in reversed(statement.decorators):
            node = self.expression(decorator)
            if passes_on(node):
                continue
            current = constant(Decorated(function, node))
            result = Node(transform=partial(_wrapper, node))
            site = Site(self.function, decorator, node, [(None, current)], result)
            site.decorated = function
            self.engine.call(site)
            joined = Node()
            self.solver.link(result, joined)
            target = self.scope.names.get(statement.name)
            if target is not None:
                self.solver.link(joined, target)

    def define_class(self, statement: s.Class) -> bool:
        known = self.scope.definitions.get(id(statement))
        if isinstance(known, ClassInfo):
            cls = known
        else:
            cls = self.engine.modules.local_class(self.function, statement, self.scope)
            self.set(statement.name, constant(cls.ref))
        for keyword in statement.keywords:
            self.expression(keyword.value)
        for decorator in statement.decorators:
            node = self.expression(decorator)
            if not passes_on(node):
                self.engine.call(Site(self.function, decorator, node, [(None, constant(cls.ref))], Node()))
        Reader(self.engine, self.function, cls.scope).block(statement.body)
        return True

    # --- binding ---

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

    def bind(self, target: s.Expr, value: Node, statement: s.Stmt) -> None:
        """Assign to a target."""
        if isinstance(target, s.Name):
            self.set(target.id, value)
            self.function.nodes[id(target)] = value
        elif isinstance(target, s.Attr):
            base = self.expression(target.value)
            self.function.nodes[id(target)] = value
            if base is not EXTERNAL:
                self.engine.store(base, target.attr, value, Use(self.function, target))
        elif isinstance(target, s.Sub):
            base, index = self.expression(target.value), self.expression(target.index)
            if base is not EXTERNAL:
                use = Use(self.function, statement, dispatch=True)
                self.solver.watch(base, partial(self._store_item, _key(target.index), index, value, use))
        elif isinstance(target, s.Seq):
            self.unpack(target, value, statement)
        elif isinstance(target, s.Star):
            self.bind(target.value, value, statement)

    def _store_item(self, key: object, index: Node, node: Node, use: Use, value: Value) -> None:
        if type(value) is Container:
            self.solver.link(node, value.item(key) if isinstance(key, str) else value.element)
            if value.kind == "dict":
                self.solver.link(index, value.keys)
        elif type(value) is Instance:
            self.engine.dunder(value, "__setitem__", use, [(None, index), (None, node)], Node())

    def unpack(self, target: s.Seq, value: Node, statement: s.Stmt) -> None:
        if value is EXTERNAL:
            for item in target.items:
                self.bind(item, EXTERNAL, statement)
            return
        targets: list[tuple[object, Node]] = []
        starred = False
        for i, item in enumerate(target.items):
            starred |= isinstance(item, s.Star)
            node = Node()
            targets.append((None if starred else i, node))
        self.engine.unpack(value, targets, Use(self.function, statement, dispatch=True))
        for item, (_, node) in zip(target.items, targets, strict=True):
            if isinstance(item, s.Star):
                container = Container("list")
                self.solver.link(node, container.element)
                node = constant(container)
            self.bind(item, node, statement)

    def narrow(self, test: s.Expr, holds: bool) -> None:
        """Let names that an ``isinstance`` test speaks of hold only what passed it."""
        if self.scope.weak:
            return
        for name, transform in narrowed(self.engine, self.scope, test, holds):
            node = self.scope.names.get(name)
            if node is not None and not node.fixed:
                fitting = Node(transform=transform)
                self.solver.link(node, fitting)
                self.scope.names[name] = fitting

    # --- expressions ---

    def expression(self, expression: s.Expr) -> Node:
        """The node of what an expression evaluates to."""
        node = _EXPRESSIONS[type(expression)](self, expression)
        if not node.fixed:
            self.function.nodes[id(expression)] = node
        return node

    def name(self, expression: s.Name) -> Node:
        name, scope = expression.id, self.scope
        node = scope.names.get(name) if name not in scope.globals else None
        if node is None or (scope.parent is None and name in scope.module.imports):
            outer = self.engine.name(name, scope if not scope.globals else scope.module.scope)
            node = outer if outer is not None else self.engine.modules.external(f"builtins.{name}")
        return node

    def attribute(self, expression: s.Attr) -> Node:
        base = self.expression(expression.value)
        if base.fixed:
            if base is EXTERNAL or base is NOTHING:
                return base
            value = next(iter(base.values))
            if type(value) is External:
                return self.engine.modules.external(f"{value.path}.{expression.attr}")
        known = self.loads.get((base, expression.attr))
        if known is not None:
            known[0].expressions.append(expression)
            return known[1]
        result = Node()
        use = Use(self.function, expression)
        self.loads[base, expression.attr] = (use, result)
        self.engine.load(base, expression.attr, use, result)
        return result

    def call(self, expression: s.Call) -> Node:
        callee = self.expression(expression.func)
        if callee.fixed and callee.values:
            value = next(iter(callee.values))
            if type(value) is External:
                special = SPECIAL_FORMS.get(value.path)
                if special is not None:
                    found = special(self, expression)
                    if found is not None:
                        return found
                args = self.arguments(expression)
                return self.engine.external_call(self.function, expression, value.path, args)
        args = self.arguments(expression)
        result = Node()
        site = Site(self.function, expression, callee, args, result)
        self.engine.call(site)
        return result

    def arguments(self, expression: s.Call) -> Args:
        return [(arg.name, self.expression(arg.value)) for arg in expression.args]

    def subscript(self, expression: s.Sub) -> Node:
        base = self.expression(expression.value)
        index = self.expression(expression.index)
        if base is EXTERNAL:
            return EXTERNAL
        if base.fixed and base.values and type(next(iter(base.values))) is External:
            return base
        result = Node()
        whole = isinstance(expression.index, s.Slice)
        use = Use(self.function, expression)
        self.engine.subscript(base, _key(expression.index), index, use, result, whole)
        return result

    def slice_(self, expression: s.Slice) -> Node:
        for part in (expression.lower, expression.upper, expression.step):
            if part is not None:
                self.expression(part)
        return EXTERNAL

    def const(self, expression: s.Const) -> Node:
        value = expression.value
        if value is None:
            return NOTHING
        return self.engine.text(value) if isinstance(value, str) else EXTERNAL

    def ellipsis(self, expression: s.Ellipsis_) -> Node:
        return EXTERNAL

    def sequence(self, expression: s.Seq) -> Node:
        items = [self.expression(item) for item in expression.items]
        is_tuple = expression.kind == "tuple"
        if is_tuple and all(node is EXTERNAL or node is NOTHING for node in items):
            return EXTERNAL  # nothing of the tree is in it, nor ever will be
        container = Container(expression.kind)
        starred = False
        for i, (item, node) in enumerate(zip(expression.items, items, strict=True)):
            if isinstance(item, s.Star):
                starred = True
                self.solver.link(self.element(node, item), container.element)
            elif node is not NOTHING:
                self.solver.link(node, container.item(i) if is_tuple and not starred else container.element)
        return constant(container)

    def mapping(self, expression: s.Map) -> Node:
        container = Container("dict")
        for key, value in zip(expression.keys, expression.values, strict=True):
            node = self.expression(value)
            if key is None:
                self.solver.watch(node, partial(self.engine.merge_dict, container))
                continue
            self.solver.link(self.expression(key), container.keys)
            known = _key(key)
            self.solver.link(node, container.item(known) if isinstance(known, str) else container.element)
        return constant(container)

    def binary(self, expression: s.Bin) -> Node:
        left, right = self.expression(expression.left), self.expression(expression.right)
        return self.operate(expression, expression.op, left, right)

    def operate(self, place: s.Expr | s.Stmt, op: str, left: Node, right: Node) -> Node:
        """``left op right``: a special method of the left operand, or of the right one."""
        if left.fixed and right.fixed and not _is_container(left) and not _is_container(right):
            return EXTERNAL
        result = Node()
        use = Use(self.function, place, dispatch=True)
        name = _OPERATORS.get(op)
        if name is None:
            return EXTERNAL
        self.solver.watch(left, partial(self._operate, name, right, use, result))
        if not right.fixed or _is_container(right):
            self.solver.watch(right, partial(self._operate_right, f"__r{name[2:]}", left, use, result))
        return result

    def _operate(self, name: str, right: Node, use: Use, result: Node, value: Value) -> None:
        if type(value) is Instance:
            self.engine.dunder(value, name, use, [(None, right)], result)
        elif type(value) is Container and name in ("__add__", "__mul__", "__or__", "__sub__", "__and__"):
            self.solver.add(result, value)
        elif type(value) is External:
            self.solver.add(result, EXTERNAL.values and next(iter(EXTERNAL.values)))

    def _operate_right(self, name: str, left: Node, use: Use, result: Node, value: Value) -> None:
        if type(value) is Instance and self.engine.classes.lookup(value.cls, name) is not None:
            self.engine.dunder(value, name, use, [(None, left)], result)
        elif type(value) is Container and name in ("__radd__", "__ror__", "__rmul__"):
            self.solver.add(result, value)

    def boolean(self, expression: s.Bool) -> Node:
        left, right = self.expression(expression.left), self.expression(expression.right)
        if left is right:
            return left
        result = Node()
        self.solver.link(left, result)
        self.solver.link(right, result)
        return result

    def comparison(self, expression: s.Cmp) -> Node:
        left = self.expression(expression.left)
        for op, right_expression in zip(expression.ops, expression.rights, strict=True):
            right = self.expression(right_expression)
            if op in ("in", "not in"):
                if not right.fixed:
                    use = Use(self.function, expression, dispatch=True)
                    self.solver.watch(right, partial(self._item, "__contains__", [(None, left)], use))
            elif op in _OPERATORS and not left.fixed:
                use = Use(self.function, expression, dispatch=True)
                self.solver.watch(left, partial(self._item, _OPERATORS[op], [(None, right)], use))
            left = right
        return EXTERNAL

    def unary(self, expression: s.Unary) -> Node:
        self.expression(expression.value)
        return EXTERNAL

    def conditional(self, expression: s.Cond) -> Node:
        self.condition(expression.test)
        body, orelse = self.expression(expression.body), self.expression(expression.orelse)
        if body is orelse:
            return body
        result = Node()
        self.solver.link(body, result)
        self.solver.link(orelse, result)
        return result

    def lambda_(self, expression: s.Lambda) -> Node:
        known = self.function.nested.get(id(expression))
        if known is None:
            qualname = f"{_prefix(self)}<lambda>"
            known = FunctionInfo(
                self.function.module, "<lambda>", qualname, expression, self.scope, None, self.function
            )
            self.function.nested[id(expression)] = known
        return constant(known.ref)

    def comprehension(self, expression: s.Comp) -> Node:
        if expression.kind == "generator":
            return self.generator_expression(expression)
        saved = self.scope.names
        if not self.scope.weak:
            self.scope.names = dict(saved)
        container = self.comprehension_body(expression)
        self.scope.names = saved
        return EXTERNAL if container is None else constant(container)

    def generator_expression(self, expression: s.Comp) -> Node:
        """A generator expression runs as a frame of its own, as a function that its iteration calls."""
        qualname = f"{_prefix(self)}<genexpr>"
        frame = FunctionInfo(self.function.module, "<genexpr>", qualname, expression, self.scope, None, self.function)
        frame.synthetic_lines = (_line(expression) or self.function.line,) * 2
        frame.queued = frame.signed = frame.lowered = True
        self.function.nested[id(expression)] = frame
        scope = Scope(self.function.module, self.scope, frame, weak=self.scope.weak)
        scope.names = dict(self.scope.names)
        scope.globals, scope.declared = self.scope.globals, self.scope.declared
        frame.scope = scope
        first = expression.gens[0]
        iterated = self.expression(first.iter)  # evaluated by the enclosing function
        container = Reader(self.engine, frame, scope).comprehension_body(expression, iterated)
        self.engine.reached[frame] = None
        self.engine.edge(Use(self.function, expression), frame, "generator_expression")
        return EXTERNAL if container is None else constant(container)

    def comprehension_body(self, expression: s.Comp, iterated: Node | None = None) -> Container | None:
        """Read a comprehension; what it makes, or None where nothing of the tree can be in it."""
        for gen in expression.gens:
            node = iterated if iterated is not None else self.expression(gen.iter)
            iterated = None
            element = self.element(node, gen.iter)
            self.bind(gen.target, element, s.ExprStmt(gen.iter, 0))
            for test in gen.tests:
                self.expression(test)
                self.narrow(test, True)
        element = self.expression(expression.element)
        key = EXTERNAL if expression.key is None else self.expression(expression.key)
        if element is EXTERNAL and key is EXTERNAL:
            return None
        container = Container(expression.kind)
        self.solver.link(element, container.element)
        self.solver.link(key, container.keys)
        return container

    def element(self, iterated: Node, place: s.Expr | s.Stmt) -> Node:
        """What iterating yields."""
        if iterated is EXTERNAL:
            return EXTERNAL
        node = Node()
        self.engine.iterate(iterated, node, Use(self.function, place, dispatch=True))
        return node

    def star(self, expression: s.Star) -> Node:
        return self.expression(expression.value)

    def format_(self, expression: s.Format) -> Node:
        for part in expression.parts:
            if not isinstance(part, s.Const):
                self.expression(part)
        return EXTERNAL

    def walrus(self, expression: s.Walrus) -> Node:
        value = self.expression(expression.value)
        self.set(expression.target, value)
        return value

    def await_(self, expression: s.Await) -> Node:
        value = NOTHING if expression.value is None else self.expression(expression.value)
        if expression.kind == "await":
            return value
        generator = self.function.generator
        if generator is not None:
            if expression.kind == "yield":
                self.solver.link(value, generator.element)
                return EXTERNAL
            self.engine.iterate(value, generator.element, Use(self.function, expression))
        return value

    # --- special forms ---

    def super_(self, expression: s.Call) -> Node:
        """``super()`` and ``super(Class, self)``."""
        function: FunctionInfo | None = self.function
        while function is not None and function.owner is None:
            function = function.parent
        result = Node()
        if function is None or function.owner is None or not function.parameters:
            return result
        receiver = function.params.get(function.parameters[0].name)
        if receiver is not None:
            self.solver.watch(receiver, partial(self._super, function.owner, result))
        return result

    def _super(self, owner: ClassInfo, result: Node, value: Value) -> None:
        if isinstance(value, (Instance, ClassRef)):
            self.solver.add(result, self.engine.super_of(owner, value))


def _wrapper(decorator: Node, value: Value) -> Value | None:
    """Of what a decorator returns, that which it made itself: it may return every function it was ever given."""
    if type(value) is Bound or type(value) is Decorated:
        return None
    if type(value) is not FunctionRef:
        return value
    if makes_wrappers(value.function):
        return None  # `def register(f=None)` returns a decorator where it is given no function
    function: FunctionInfo | None = value.function.parent
    makers = {v.function for v in decorator.values if type(v) is FunctionRef}
    makers |= {v.function for v in decorator.values if type(v) is Bound}
    while function is not None:
        if function in makers:
            return value
        function = function.parent
    return None


def _is_container(node: Node) -> bool:
    return bool(node.values) and type(next(iter(node.values))) is Container


def _prefix(reader: Reader) -> str:
    if reader.scope.owner is not None and reader.scope.is_class:
        return f"{reader.scope.owner.qualname}."
    qualname = reader.function.qualname
    return "" if qualname == "<module>" else f"{qualname}."


def _line(expression: s.Expr) -> int | None:
    for part in s.descend(expression):
        line = getattr(part, "line", None)
        if line:
            return int(line)
    return None


def _key(index: s.Expr) -> object:
    if isinstance(index, s.Const) and isinstance(index.value, (str, int)) and not isinstance(index.value, bool):
        return index.value
    return None


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
        elif isinstance(statement, (s.AnnAssign, s.AugAssign)):
            _target_names(statement.target, names)
        else:
            if isinstance(statement, s.For):
                _target_names(statement.target, names)
            elif isinstance(statement, s.With):
                for item in statement.items:
                    if item.target is not None:
                        _target_names(item.target, names)
            for inner in s.blocks(statement):
                _assigned(inner, names)


_STATEMENTS = {
    s.Assign: Reader.assign, s.AnnAssign: Reader.annotated, s.AugAssign: Reader.augmented,
    s.ExprStmt: Reader.expression_statement, s.Return: Reader.return_, s.Raise: Reader.raise_, s.Jump: Reader.jump,
    s.Assert: Reader.assert_, s.Delete: Reader.delete, s.Scope: Reader.declare_scope, s.Import: Reader.import_,
    s.ImportFrom: Reader.import_, s.If: Reader.if_, s.For: Reader.for_, s.While: Reader.while_, s.With: Reader.with_,
    s.Try: Reader.try_, s.Match: Reader.match, s.Func: Reader.define_function, s.Class: Reader.define_class,
}  # fmt: skip
_EXPRESSIONS = {
    s.Name: Reader.name, s.Attr: Reader.attribute, s.Call: Reader.call, s.Sub: Reader.subscript,
    s.Slice: Reader.slice_, s.Const: Reader.const, s.Ellipsis_: Reader.ellipsis, s.Seq: Reader.sequence,
    s.Map: Reader.mapping, s.Bin: Reader.binary, s.Bool: Reader.boolean, s.Cmp: Reader.comparison,
    s.Unary: Reader.unary, s.Cond: Reader.conditional, s.Lambda: Reader.lambda_, s.Comp: Reader.comprehension,
    s.Star: Reader.star, s.Format: Reader.format_, s.Walrus: Reader.walrus, s.Await: Reader.await_,
}  # fmt: skip
