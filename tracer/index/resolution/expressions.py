"""Reads expressions in source order and makes nodes, links and sites of them."""

from __future__ import annotations

from functools import partial
from typing import Any

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.index.resolution.attributes import load
from sgltrace.index.resolution.binding import is_function, no_functions
from sgltrace.index.resolution.calls import call
from sgltrace.index.resolution.containers import merge, unordered
from sgltrace.index.resolution.elements import ask, iterate, on_object, special_method, subscript
from sgltrace.index.resolution.engine import Engine
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, Scope
from sgltrace.index.resolution.externals import SPECIAL_FORMS, call_external
from sgltrace.index.resolution.overwritten import Key, key_of
from sgltrace.index.resolution.uses import Args, Site, Use
from sgltrace.index.resolution.values import (
    EXTERNAL,
    NOTHING,
    OPAQUE,
    ClassRef,
    Container,
    External,
    Instance,
    Node,
    Value,
    constant,
)

_OPERATORS = {
    "+": "__add__", "-": "__sub__", "*": "__mul__", "/": "__truediv__", "//": "__floordiv__", "%": "__mod__",
    "**": "__pow__", "@": "__matmul__", "&": "__and__", "|": "__or__", "^": "__xor__", "<<": "__lshift__",
    ">>": "__rshift__", "==": "__eq__", "!=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__",
}  # fmt: skip
MAX_ORDERED = 16
"""A list display with more elements than this is data: they are one."""
_JOINING = {"__add__", "__mul__", "__or__", "__sub__", "__and__"}
"""Operators whose result holds what is in the operand."""


class ExpressionReader:
    """Expressions of one body. ``scope.names`` is what each local holds at the place being read."""

    def __init__(self, engine: Engine, function: FunctionInfo, scope: Scope) -> None:
        self.engine = engine
        self.solver = engine.solver
        self.function = function
        self.scope = scope
        self.statement: s.Stmt | None = None
        """The one that is being read."""
        self.overwritten: dict[int, set[Key]] = {}
        """Of dict displays: the keys that hold something else before anyone reads them."""
        self.latest: dict[str, Node] = {}
        """What names of the module hold where its body is being read, as far as that is known."""
        self.is_plain = False
        """Whether a plain statement at the top of the module is being read."""
        self.loads: dict[tuple[Node, str], tuple[Use, Node]] = {}

    def expression(self, expression: s.Expr) -> Node:
        """The node of what an expression evaluates to."""
        node: Node = _EXPRESSIONS[type(expression)](self, expression)
        if not node.fixed:
            self.function.nodes[id(expression)] = node
        return node

    def bind(self, target: s.Expr, value: Node, statement: s.Stmt) -> None:
        """Assign to a target."""
        raise NotImplementedError

    def set(self, name: str, node: Node) -> None:
        """Assign to a name."""
        raise NotImplementedError

    def narrow(self, test: s.Expr, holds: bool) -> None:
        """Let names that an ``isinstance`` test speaks of hold only what passed it."""
        raise NotImplementedError

    def use(self, place: s.Expr | s.Stmt) -> Use:
        """A place where an object's special method is called: the statement, where an expression has no line."""
        if self.statement is not None and not s.line_of(place):
            place = self.statement
        return Use(self.function, place, dispatch=True)

    # --- names, attributes, calls ---

    def _name(self, expression: s.Name) -> Node:
        name, scope = expression.id, self.scope
        if self.latest and scope.parent is None and name in self.latest:
            return self.latest[name]
        node = scope.names.get(name) if name not in scope.globals else None
        if node is None or (scope.parent is None and name in scope.module.imports):
            outer = self.engine.name(name, scope if not scope.globals else scope.module.scope)
            node = outer if outer is not None else self.engine.modules.external(f"builtins.{name}")
        return node

    def _attribute(self, expression: s.Attr) -> Node:
        base = self.expression(expression.value)
        if base.fixed:
            if base is EXTERNAL or base is NOTHING:
                return base
            value = next(iter(base.values))
            if isinstance(value, External):
                return self.engine.modules.external(f"{value.path}.{expression.attr}")
        known = self.loads.get((base, expression.attr))
        if known is not None:
            known[0].expressions.append(expression)
            return known[1]
        use, result = Use(self.function, expression), Node()
        result.is_name = base.is_name
        self.loads[base, expression.attr] = (use, result)
        load(self.engine, base, expression.attr, use, result)
        return result

    def _call(self, expression: s.Call) -> Node:
        callee = self.expression(expression.func)
        if callee.fixed and callee.values:
            value = next(iter(callee.values))
            if isinstance(value, External):
                special = SPECIAL_FORMS.get(value.path)
                found = special(self, expression) if special is not None else None
                if found is not None:
                    return found
                args = self.arguments(expression)
                return call_external(self.engine, self.function, expression, value.path, args)
        args = self.arguments(expression)
        result = Node()
        call(self.engine, Site(self.function, expression, callee, args, result))
        return result

    def arguments(self, expression: s.Call) -> Args:
        """A call's arguments, read."""
        return [(arg.name, self.expression(arg.value)) for arg in expression.args]

    def super_(self) -> Node:
        """``super()`` and ``super(Class, self)``."""
        function: FunctionInfo | None = self.function
        while function is not None and function.owner is None:
            function = function.parent
        result = Node()
        if function is not None and function.owner is not None and function.parameters:
            receiver = function.params.get(function.parameters[0].name)
            if receiver is not None:
                self.solver.watch(receiver, partial(self._super, function.owner, result))
        return result

    def _super(self, owner: ClassInfo, result: Node, value: Value) -> None:
        if isinstance(value, (Instance, ClassRef)):
            self.solver.add(result, self.engine.interned.super_of(owner, value))

    def _subscript(self, expression: s.Sub) -> Node:
        base = self.expression(expression.value)
        index = self.expression(expression.index)
        if base is EXTERNAL or (base.fixed and any(isinstance(value, External) for value in base.values)):
            return base
        result, use = Node(), Use(self.function, expression)
        part = expression.index if isinstance(expression.index, s.Slice) else None
        subscript(self.engine, base, self._key(expression.index), index, use, result, part)
        return result

    def _key(self, index: s.Expr) -> Key | None:
        """The constant that an index is: written there, or bound once to a name of a module."""
        if not isinstance(index, s.Name):
            return key_of(index)
        scope: Scope | None = self.scope
        while scope is not None and scope.parent is not None:
            if index.id in scope.names:
                return None
            scope = scope.parent
        constant = self.engine.modules.constant(self.scope.module, index.id)
        return None if constant is None else key_of(constant)

    def _slice(self, expression: s.Slice) -> Node:
        for part in (expression.lower, expression.upper, expression.step):
            if part is not None:
                self.expression(part)
        return EXTERNAL

    # --- displays and literals ---

    def _const(self, expression: s.Const) -> Node:
        value = expression.value
        if value is None:
            return NOTHING
        return self.engine.interned.text(value) if isinstance(value, str) else EXTERNAL

    def _ellipsis(self, expression: s.Ellipsis_) -> Node:
        return EXTERNAL

    def _sequence(self, expression: s.Seq) -> Node:
        items = [self.expression(item) for item in expression.items]
        is_tuple = expression.kind == "tuple"
        if is_tuple and all(node is EXTERNAL or node is NOTHING for node in items):
            return EXTERNAL  # nothing of the tree is in it, nor ever will be
        container = Container(expression.kind)
        ordered = is_tuple or (expression.kind == "list" and _is_worth_telling_apart(items))
        starred = False
        for i, (item, node) in enumerate(zip(expression.items, items, strict=True)):
            if isinstance(item, s.Star):
                starred = True
                self.solver.link(self.element(node, item), container.element)
            elif node is not NOTHING:
                self.solver.link(node, container.item(i) if ordered and not starred else container.element)
        return constant(container)

    def _mapping(self, expression: s.Map) -> Node:
        container = Container("dict")
        for key, value in zip(expression.keys, expression.values, strict=True):
            node = self.expression(value)
            if key is None:
                self.solver.watch(node, partial(merge, self.engine, container))
                continue
            self.solver.link(self.expression(key), container.keys)
            known = key_of(key)
            if known is None:
                self.solver.link(node, container.element)
            elif known not in self.overwritten.get(id(expression), ()):
                self.solver.link(node, container.item(known))
        return constant(container)

    def _star(self, expression: s.Star) -> Node:
        return self.expression(expression.value)

    def _format(self, expression: s.Format) -> Node:
        for part in expression.parts:
            if not isinstance(part, s.Const):
                self.expression(part)
        return EXTERNAL

    # --- operators ---

    def _binary(self, expression: s.Bin) -> Node:
        left, right = self.expression(expression.left), self.expression(expression.right)
        return self.operate(expression, expression.op, left, right)

    def operate(self, place: s.Expr | s.Stmt, op: str, left: Node, right: Node) -> Node:
        """``left op right``: a special method of the left operand, or of the right one."""
        quiet = [node.fixed and not _holds_container(node) for node in (left, right)]
        if all(quiet):
            return EXTERNAL
        result, use, name = Node(), self.use(place), _OPERATORS[op]
        use.base = left
        self.solver.watch(left, partial(self._operate, name, right, use, result))
        if not quiet[1]:
            self.solver.watch(right, partial(self._operate_right, f"__r{name[2:]}", left, use, result))
        return result

    def _operate(self, name: str, right: Node, use: Use, result: Node, value: Value) -> None:
        if isinstance(value, Instance):
            special_method(self.engine, value, name, use, [(None, right)], result)
        elif isinstance(value, Container) and name in _JOINING:
            self.solver.add(result, unordered(self.engine, value))
        elif isinstance(value, External):
            self.solver.add(result, OPAQUE)

    def _operate_right(self, name: str, left: Node, use: Use, result: Node, value: Value) -> None:
        if isinstance(value, Instance):
            if self.engine.classes.lookup(value.cls, name) is not None:
                special_method(self.engine, value, name, use, [(None, left)], result)
        elif isinstance(value, Container) and name in ("__radd__", "__ror__", "__rmul__"):
            self.solver.add(result, unordered(self.engine, value))

    def _comparison(self, expression: s.Cmp) -> Node:
        left = self.expression(expression.left)
        for op, right_expression in zip(expression.ops, expression.rights, strict=True):
            right = self.expression(right_expression)
            if op in ("in", "not in"):
                if not right.fixed:
                    on_object(self.engine, right, "__contains__", [(None, left)], self.use(expression))
            elif op in _OPERATORS and not left.fixed:
                on_object(self.engine, left, _OPERATORS[op], [(None, right)], self.use(expression))
            left = right
        return EXTERNAL

    def _unary(self, expression: s.Unary) -> Node:
        self.expression(expression.value)
        return EXTERNAL

    def _boolean(self, expression: s.Bool) -> Node:
        return self.either(self.expression(expression.left), self.expression(expression.right))

    def _conditional(self, expression: s.Cond) -> Node:
        self.condition(expression.test)
        body, orelse = self.expression(expression.body), self.expression(expression.orelse)
        if _is_called_if_it_can_be(expression):
            value = Node(transform=no_functions)
            self.solver.link(orelse, value)
            orelse = value
        return self.either(body, orelse)

    def either(self, one: Node, other: Node) -> Node:
        """A node that holds what either of two holds."""
        if one is other:
            return one
        result = Node()
        self.solver.link(one, result)
        self.solver.link(other, result)
        return result

    def condition(self, test: s.Expr) -> None:
        """An expression that is asked whether it is true."""
        self.expression(test)
        self._asked(test)

    def _asked(self, test: s.Expr) -> None:
        if isinstance(test, s.Bool) or (isinstance(test, s.Unary) and test.op == "not"):
            for part in s.children(test):
                self._asked(part)
        elif isinstance(test, (s.Name, s.Attr, s.Call)):
            node = self.function.nodes.get(id(test))
            if node is not None and not node.fixed:
                ask(self.engine, node, self.use(test))

    # --- what has a scope of its own ---

    def _lambda(self, expression: s.Lambda) -> Node:
        known = self.function.nested.get(id(expression))
        if known is None:
            known = self._frame("<lambda>", expression)
        return constant(known.ref)

    def _frame(self, name: str, expression: s.Lambda | s.Comp) -> FunctionInfo:
        qualname = f"{self.prefix()}{name}"
        frame = FunctionInfo(self.function.module, name, qualname, expression, self.scope, None, self.function)
        self.function.nested[id(expression)] = frame
        return frame

    def prefix(self) -> str:
        """What the qualified name of something defined here begins with."""
        if self.scope.owner is not None and self.scope.is_class:
            return f"{self.scope.owner.qualname}."
        qualname = self.function.qualname
        return "" if qualname == "<module>" else f"{qualname}."

    def _comprehension(self, expression: s.Comp) -> Node:
        if expression.kind == "generator":
            return self._generator_expression(expression)
        saved = self.scope.names
        if not self.scope.weak:
            self.scope.names = dict(saved)
        container = self._comprehended(expression)
        self.scope.names = saved
        return EXTERNAL if container is None else constant(container)

    def _generator_expression(self, expression: s.Comp) -> Node:
        """A generator expression runs as a frame of its own, as a function that its iteration calls."""
        frame = self._frame("<genexpr>", expression)
        use = self.use(expression)
        frame.synthetic_lines = (s.line_of(use.expressions[0]) or self.function.line,) * 2
        frame.queued = frame.signed = frame.lowered = True
        scope = Scope(self.function.module, self.scope, frame, weak=self.scope.weak)
        scope.names = dict(self.scope.names)
        scope.globals, scope.declared = self.scope.globals, self.scope.declared
        frame.scope = scope
        iterated = self.expression(expression.gens[0].iter)  # evaluated by the enclosing function
        reader = type(self)(self.engine, frame, scope)
        reader.statement = self.statement
        container = reader._comprehended(expression, iterated)
        self.engine.reached[frame] = None
        self.engine.edge(use, frame, "generator_expression")
        return EXTERNAL if container is None else constant(container)

    def _comprehended(self, expression: s.Comp, iterated: Node | None = None) -> Container | None:
        """Read a comprehension; what it makes, or None where nothing of the tree can be in it."""
        for gen in expression.gens:
            node = iterated if iterated is not None else self.expression(gen.iter)
            iterated = None
            element = self.element(node, gen.iter)
            self.bind(gen.target, element, s.ExprStmt(gen.iter, 0))
            for test in gen.tests:
                self.condition(test)
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
        iterate(self.engine, iterated, node, self.use(place))
        return node

    def _walrus(self, expression: s.Walrus) -> Node:
        value = self.expression(expression.value)
        self.set(expression.target, value)
        return value

    def _await(self, expression: s.Await) -> Node:
        value = NOTHING if expression.value is None else self.expression(expression.value)
        generator = self.function.generator
        if expression.kind == "await" or generator is None:
            return value
        if expression.kind == "yield":
            self.solver.link(value, generator.element)
            return EXTERNAL
        iterate(self.engine, value, generator.element, self.use(expression))
        return value


def _holds_container(node: Node) -> bool:
    return any(isinstance(value, Container) for value in node.values)


def _is_worth_telling_apart(items: list[Node]) -> bool:
    """Whether the elements of a list display are few, and more than texts and numbers."""
    return len(items) <= MAX_ORDERED and any(not node.fixed or is_function(node) for node in items)


def _is_called_if_it_can_be(expression: s.Cond) -> bool:
    """``x() if callable(x) else x``: what is not called is no function."""
    match expression.test:
        case s.Call(func=s.Name(id="callable"), args=[s.Arg(value=asked)]):
            return text(asked) == text(expression.orelse)
    return False


_EXPRESSIONS: dict[type, Any] = {
    s.Name: ExpressionReader._name, s.Attr: ExpressionReader._attribute, s.Call: ExpressionReader._call,
    s.Sub: ExpressionReader._subscript, s.Slice: ExpressionReader._slice, s.Const: ExpressionReader._const,
    s.Ellipsis_: ExpressionReader._ellipsis, s.Seq: ExpressionReader._sequence, s.Map: ExpressionReader._mapping,
    s.Bin: ExpressionReader._binary, s.Bool: ExpressionReader._boolean, s.Cmp: ExpressionReader._comparison,
    s.Unary: ExpressionReader._unary, s.Cond: ExpressionReader._conditional, s.Lambda: ExpressionReader._lambda,
    s.Comp: ExpressionReader._comprehension, s.Star: ExpressionReader._star, s.Format: ExpressionReader._format,
    s.Walrus: ExpressionReader._walrus, s.Await: ExpressionReader._await,
}  # fmt: skip
