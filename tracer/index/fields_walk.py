"""Walks a function's statements in order and takes down what they do to tracked fields.

Local variables are followed as aliases: ``x = batch.seq_lens`` and then ``x.add_(1)`` changes the field. Behind a
branch a variable may be what either side made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sgltrace.index import syntax as s
from sgltrace.index.fields import Access, Parameter, Returned, Source
from sgltrace.index.fields_inplace import IN_PLACE_CONTAINER, VIEWS, VIEWS_ONLY, Handed, argument, is_in_place
from sgltrace.index.fields_strides import note_strided
from sgltrace.index.values import Bound, ClassRef, FunctionRef, Instance

if TYPE_CHECKING:
    from sgltrace.index.entities import ClassInfo, FunctionInfo
    from sgltrace.index.fields import FieldFlow

Sources = tuple[Source, ...]
_LEAVES = frozenset({s.Name, s.Const, s.Lambda, s.Ellipsis_})
"""A lambda is a function of its own."""
_PARTS = frozenset({s.Cond, s.Seq})
_FUNCTIONS = (FunctionRef, Bound)


def walk(flow: FieldFlow, function: FunctionInfo) -> None:
    """Take down a function's accesses."""
    if function.node is None and function.qualname != "<module>":
        return  # a constructor that Python makes: its call sites are what writes
    Walker(flow, function).block(function.body)


class Walker:
    """One function. ``aliases`` says what a variable is one with, ``made`` what it is made of, at the statement
    being read."""

    def __init__(self, flow: FieldFlow, function: FunctionInfo) -> None:
        self.flow = flow
        self.function = function
        self.aliases: dict[str, Sources] = {p.name: (Parameter(function, p.name),) for p in function.parameters}
        self.made: dict[str, Sources] = {}
        self.statement: s.Stmt | None = None
        self.whole: s.Expr | None = None
        self._nodes = function.nodes

    # --- statements ---

    def block(self, body: list[s.Stmt]) -> None:
        """Read statements in order."""
        for statement in body:
            handler = _STATEMENTS.get(type(statement))
            if handler is not None:
                self.statement = statement
                handler(self, statement)

    def _expression(self, node: s.ExprStmt | s.Raise) -> None:
        if node.value is not None:
            self._top(node.value)

    def _return(self, node: s.Return) -> None:
        if node.value is None:
            return
        self._top(node.value)
        sources = self.same_as(node.value) + self.made_of(node.value)
        if sources:
            self.flow.returned.setdefault(self.function, {}).update(dict.fromkeys(sources))

    def _assignment(self, node: s.Assign) -> None:
        self._assign(node.targets, node.value)

    def _annotated(self, node: s.AnnAssign) -> None:
        if node.value is not None:
            self._assign([node.target], node.value)

    def _test(self, node: s.If | s.While) -> None:
        self._top(node.test)
        self._branches([node.body, node.orelse])

    def _for(self, node: s.For) -> None:
        self._top(node.iter)
        self._bind(node.target, (), ())
        self._branches([node.body, node.orelse])

    def _with(self, node: s.With) -> None:
        for item in node.items:
            self._top(item.value)
            if item.target is not None:
                self._bind(item.target, (), ())
        self.block(node.body)

    def _try(self, node: s.Try) -> None:
        self.block(node.body)
        self._branches([[], *(handler.body for handler in node.handlers)])
        self.block(node.orelse)
        self.block(node.final)

    def _match(self, node: s.Match) -> None:
        self._top(node.subject)
        self._branches([case.body for case in node.cases])

    def _assert(self, node: s.Assert) -> None:
        self._top(node.test)

    def _class(self, node: s.Class) -> None:
        self.block(node.body)

    def _branches(self, bodies: list[list[s.Stmt]]) -> None:
        """Read branches of which any may run: a variable may be what either made it."""
        before = self.aliases, self.made
        merged: tuple[dict[str, Sources], dict[str, Sources]] | None = None
        for body in bodies:
            self.aliases, self.made = (dict(before[0]), dict(before[1])) if body else before
            self.block(body)
            if merged is None:
                merged = (dict(before[0]), dict(before[1])) if not body else (self.aliases, self.made)
                continue
            for known, new in zip(merged, (self.aliases, self.made), strict=True):
                for name, sources in new.items():
                    old = known.get(name, ())
                    if old is not sources:
                        known[name] = old + tuple(x for x in sources if x not in old)
        if merged is not None:
            self.aliases, self.made = merged

    def _assign(self, targets: list[s.Expr], value: s.Expr) -> None:
        paired = [t.items for t in targets if isinstance(t, s.Seq)]
        if isinstance(value, s.Seq) and paired and all(len(items) == len(value.items) for items in paired):
            self.whole = value
            for item in value.items:
                self._visit(item, "unpack")
            for items in paired:
                for inner, part in zip(items, value.items, strict=True):
                    self._bind(inner, self.same_as(part), self.made_of(part), part)
            return
        self._top(value, "unpack" if any(isinstance(t, s.Seq) for t in targets) else "read")
        exact, derived = self.same_as(value), self.made_of(value)
        for target in targets:
            self._bind(target, exact, derived, value)

    def _augment(self, node: s.AugAssign) -> None:
        self._top(node.value)
        target = node.target
        if isinstance(target, s.Attr):
            self._visit(target.value)
            for cls in self._receivers(target):
                self._take(cls, target.attr, target, "read", target)
                self._take(cls, target.attr, target, "augment", node.value)
        elif isinstance(target, s.Sub):
            self._visit(target)
            self._change(target.value, "in-place", target, node.value)
        elif isinstance(target, s.Name):
            # ``x += 1`` on a tensor or list that is a field changes the field.
            self._change(target, "in-place", target, node.value)

    def _delete(self, node: s.Delete) -> None:
        for target in node.targets:
            if isinstance(target, s.Attr):
                self._visit(target.value)
                for cls in self._receivers(target):
                    self._take(cls, target.attr, target, "delete", None)
            else:
                self._visit(target)

    def _bind(self, target: s.Expr, exact: Sources, derived: Sources, value: s.Expr | None = None) -> None:
        """Assign to a target a value that is one with ``exact`` and made of ``derived``."""
        if isinstance(target, s.Name):
            self.aliases[target.id] = exact
            self.made[target.id] = derived
        elif isinstance(target, s.Attr):
            self._visit(target.value)
            for cls in self._receivers(target):
                other = any(isinstance(source, Access) and source.cls is not cls for source in exact)
                self._take(cls, target.attr, target, "copy" if other else "assign", value, exact, derived)
        elif isinstance(target, s.Sub):
            self._visit(target.value, "pass")
            self._visit(target.index)
            self._change(target.value, "in-place", target, value)
        elif isinstance(target, s.Seq):
            for item in target.items:
                self._bind(item, (), exact + derived, value)
        elif isinstance(target, s.Star):
            self._bind(target.value, (), exact + derived, value)

    # --- expressions ---

    def _top(self, node: s.Expr, context: str = "read") -> None:
        """A statement's expression."""
        self.whole = node
        self._visit(node, context)

    def _visit(self, node: s.Expr, context: str = "read") -> None:
        kind = type(node)
        if kind in _LEAVES:
            return
        if isinstance(node, s.Attr):
            self._visit(node.value)
            for cls in self._receivers(node):
                self._take(cls, node.attr, node, context, self.whole)
        elif isinstance(node, s.Call):
            self._call(node)
        elif isinstance(node, s.Bin):
            self._visit(node.left)
            self._visit(node.right)
        elif isinstance(node, s.Walrus):
            self._visit(node.value, context)
            self._bind(s.Name(node.target), self.same_as(node.value), ())
        elif isinstance(node, s.Comp) and node.kind == "generator":
            self._visit(node.gens[0].iter)  # the rest is a function of its own
        else:
            if isinstance(node, s.Sub):
                note_strided(self, node)
            inner = context if kind in _PARTS else "read"
            for child in s.children(node):
                self._visit(child, inner)

    def _call(self, node: s.Call) -> None:
        self._visit(node.func)
        for arg in node.args:
            self._visit(arg.value, "pass")
        callees = self._nodes.get(id(node.func))
        values = callees.values if callees is not None else ()
        for value in values:
            if isinstance(value, ClassRef):
                self._construct(node, value.cls)
            elif isinstance(value, _FUNCTIONS):
                self._pass_on(node, value.function, isinstance(value, Bound))
        func = node.func
        if isinstance(func, s.Attr):
            self._method(node, func)
        elif isinstance(func, s.Sub):
            self._launch(node, func)
        elif isinstance(func, s.Name) and func.id in ("getattr", "setattr", "hasattr", "delattr"):
            self._by_name(node, func.id)
        for arg in node.args:
            if arg.name == "out":
                self._change(arg.value, "in-place", node, node)
        if not values and _is_replace(func):
            self._replaced(node)

    def _method(self, node: s.Call, func: s.Attr) -> None:
        """``x.copy_(y)``, ``x.append(y)``: the field that ``x`` is changes."""
        name = func.attr
        if is_in_place(name) or name in IN_PLACE_CONTAINER:
            written = node.args[0].value if node.args else node
            self._change(func.value, "in-place", node, written)

    def _launch(self, node: s.Call, func: s.Sub) -> None:
        """``kernel[grid](...)``: a Triton kernel stores through those of its pointers that it is written to."""
        callees = self._nodes.get(id(func.value))
        for value in callees.values if callees is not None else ():
            if isinstance(value, FunctionRef):
                for name in sorted(self.flow.in_place.stored(value.function)):
                    written = argument(value.function, node, name, False)
                    if written is not None:
                        self._change(written, "kernel", node, node)

    def _pass_on(self, node: s.Call, function: FunctionInfo, bound: bool) -> None:
        """Take down what a function of the tree is given."""
        for param, value in passed(function, node, bound):
            exact = self.same_as(value)
            sources = exact + self.made_of(value)
            if sources:
                parameter = Parameter(function, param)
                self.flow.passed.setdefault(parameter, {}).update(dict.fromkeys(sources))
                handed = self.flow.in_place.handed.setdefault(parameter, [])
                handed += (Handed(x, self.function, node, self.statement) for x in exact or self._shares_data(value))

    def _construct(self, node: s.Call, cls: ClassInfo) -> None:
        """A dataclass's constructor writes a field for each argument, and the defaults of the others."""
        if self.flow.role(cls) is None or not cls.is_dataclass or cls.is_enum or "__init__" in cls.scope.names:
            return
        names = _constructor_fields(self, cls)
        given: dict[str, s.Expr] = {}
        for i, arg in enumerate(node.args):
            name = names[i] if arg.name is None and i < len(names) else arg.name
            if name is not None and name in names:
                given[name] = arg.value
        spread = any(arg.name in ("*", "**") for arg in node.args)
        for name in names:
            owner = self.flow.tracked.owner(cls, name)
            value = given.get(name)
            if value is not None:
                exact = self.same_as(value)
                other = any(isinstance(source, Access) and source.cls is not owner for source in exact)
                kind = "copy" if other else "constructor"
                self._take(owner, name, node, kind, value, exact, self.made_of(value), getattr(value, "line", 0))
            elif not spread:
                self._take(owner, name, node, "default", _default(self, cls, name))

    def _replaced(self, node: s.Call) -> None:
        """``dataclasses.replace(x, field=value)``."""
        first = next((arg.value for arg in node.args if arg.name is None), None)
        for cls in self._classes(first) if first is not None else ():
            for arg in node.args:
                if arg.name is not None and arg.name not in ("*", "**"):
                    owner = self.flow.tracked.owner(cls, arg.name)
                    self._take(owner, arg.name, node, "constructor", arg.value, self.same_as(arg.value))

    def _by_name(self, node: s.Call, function: str) -> None:
        """``getattr(x, "field", default)`` and ``setattr(x, "field", value)`` with a literal name."""
        args = [arg.value for arg in node.args]
        if len(args) < 2 or not isinstance(args[1], s.Const) or not isinstance(args[1].value, str):
            return
        name = args[1].value
        for cls in self._classes(args[0]):
            if not self._is_field(cls, name):
                continue
            owner = self.flow.tracked.owner(cls, name)
            if function == "setattr" and len(args) == 3:
                self._take(owner, name, node, "assign", args[2], self.same_as(args[2]))
            else:
                self._take(owner, name, node, "delete" if function == "delattr" else "read", self.whole)

    # --- what is what ---

    def _classes(self, node: s.Expr) -> list[ClassInfo]:
        """The tracked classes that an expression may be of."""
        known = self._nodes.get(id(node))
        if known is None or not known.values:
            return []
        role = self.flow.tracked.role
        found = {v.cls for v in known.values if type(v) is Instance and role(v.cls) is not None}
        return sorted(found, key=lambda cls: cls.id) if len(found) > 1 else list(found)

    def _receivers(self, node: s.Attr) -> list[ClassInfo]:
        """The tracked classes whose field an attribute is; those that declare it, where any does."""
        classes = [cls for cls in self._classes(node.value) if self._is_field(cls, node.attr)]
        if len(classes) > 1:
            declaring = [cls for cls in classes if self._declares(cls, node.attr)]
            classes = declaring or classes
        owner = self.flow.tracked.owner
        return list(dict.fromkeys(owner(cls, node.attr) for cls in classes))

    def _is_field(self, cls: ClassInfo, name: str) -> bool:
        """Whether an attribute is no method, property or other thing of the class."""
        if name.startswith("__"):
            return False
        found = self.flow.program.engine.classes.lookup(cls, name)
        return found is None or name not in found[0].functions

    def _declares(self, cls: ClassInfo, name: str) -> bool:
        """Whether the class annotates the field or its own methods write it."""
        order = self.flow.program.engine.classes.mro(cls)
        return any(name in base.annotations or name in base.fields for base in order)

    def same_as(self, node: s.Expr) -> Sources:
        """What an expression is the same object as."""
        if isinstance(node, s.Name):
            return self.aliases.get(node.id, ())
        if isinstance(node, s.Attr):
            return tuple(a for a in self.flow.at(node) if not a.is_write)
        if isinstance(node, s.Cond):
            return self.same_as(node.body) + self.same_as(node.orelse)
        if isinstance(node, s.Bool):
            return self.same_as(node.left) + self.same_as(node.right)
        if isinstance(node, s.Walrus):
            return self.same_as(node.value)
        if isinstance(node, s.Call):
            reads = tuple(a for a in self.flow.at(node) if not a.is_write)
            known = self._nodes.get(id(node.func))
            if known is not None and any(isinstance(value, _FUNCTIONS) for value in known.values):
                return (*reads, Returned(self.function, node))
            return reads
        return ()

    def made_of(self, node: s.Expr) -> Sources:
        """What an expression is a view, slice, copy or element of."""
        if isinstance(node, s.Name):
            return self.made.get(node.id, ())
        if isinstance(node, s.Sub):
            return self.same_as(node.value) + self.made_of(node.value)
        if isinstance(node, s.Call) and isinstance(node.func, s.Attr) and node.func.attr in VIEWS:
            return self.same_as(node.func.value) + self.made_of(node.func.value)
        if isinstance(node, s.Cond):
            return self.made_of(node.body) + self.made_of(node.orelse)
        return ()

    def _change(self, target: s.Expr, kind: str, node: s.Expr, value: s.Expr | None) -> None:
        """What ``target`` is, or is a view of, is changed in place."""
        line = getattr(node, "line", 0)
        exact = self.same_as(value) if value is not None and value is not node else ()
        for read in self._shares_data(target):
            if isinstance(read, Access):
                self._take(read.cls, read.field, node, kind, value, exact, (), line)
            elif isinstance(read, Parameter):
                self.flow.in_place.changed[read] = None

    def _shares_data(self, node: s.Expr) -> Sources:
        if isinstance(node, s.Sub):
            return self._shares_data(node.value)
        if isinstance(node, s.Call) and isinstance(node.func, s.Attr) and node.func.attr in VIEWS_ONLY:
            return self._shares_data(node.func.value)
        return self.same_as(node)

    def _take(
        self,
        cls: ClassInfo,
        name: str,
        node: s.Expr,
        kind: str,
        value: s.Expr | None,
        exact: Sources = (),
        derived: Sources = (),
        line: int = 0,
    ) -> None:
        """Take down an access."""
        line = line or getattr(node, "line", 0) or getattr(self.statement, "line", 0)
        access = Access(cls, name, self.function, line, kind, node, self.statement, value, exact, derived)
        self.flow.add(access)


def passed(function: FunctionInfo, node: s.Call, bound: bool) -> list[tuple[str, s.Expr]]:
    """The parameters to which a call gives something, and the expressions."""
    positional = [p.name for p in function.parameters if p.kind in ("", "/")][1 if bound else 0 :]
    names = {p.name for p in function.parameters}
    out: list[tuple[str, s.Expr]] = []
    at = 0
    for arg in node.args:
        if arg.name is None:
            if at < len(positional):
                out.append((positional[at], arg.value))
            at += 1
        elif arg.name == "*":
            at = len(positional)
        elif arg.name in names:
            out.append((arg.name, arg.value))
    return out


def _constructor_fields(walker: Walker, cls: ClassInfo) -> list[str]:
    names: dict[str, None] = {}
    for owner in reversed(walker.flow.program.engine.classes.mro(cls)):
        if owner.is_dataclass or owner is cls:
            names.update(dict.fromkeys(owner.annotations))
    return list(names)


def _default(walker: Walker, cls: ClassInfo, name: str) -> s.Expr | None:
    for owner in walker.flow.program.engine.classes.mro(cls):
        for statement in owner.node.body:
            if isinstance(statement, s.AnnAssign) and _is_name(statement.target, name):
                return statement.value
    return None


def _is_name(node: s.Expr, name: str) -> bool:
    return isinstance(node, s.Name) and node.id == name


def _is_replace(func: s.Expr) -> bool:
    return (isinstance(func, s.Attr) and func.attr == "replace" and isinstance(func.value, s.Name)) or (
        isinstance(func, s.Name) and func.id == "replace"
    )


_STATEMENTS: dict[type, Callable[[Walker, Any], None]] = {
    s.Assign: Walker._assignment, s.AnnAssign: Walker._annotated, s.AugAssign: Walker._augment,
    s.ExprStmt: Walker._expression, s.Raise: Walker._expression, s.Return: Walker._return, s.If: Walker._test,
    s.While: Walker._test, s.For: Walker._for, s.With: Walker._with, s.Try: Walker._try, s.Match: Walker._match,
    s.Assert: Walker._assert, s.Delete: Walker._delete, s.Class: Walker._class,
}  # fmt: skip
