"""Walks a function's statements in order and takes down what they do to tracked fields.

Local variables are followed as aliases: ``x = batch.seq_lens`` and then ``x.add_(1)`` changes the field. Behind a
branch a variable may be what either side made it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sgltrace.index.facts import syntax as s
from sgltrace.index.fields.access import Access, Parameter
from sgltrace.index.fields.alias import FUNCTIONS, Aliases, Sources
from sgltrace.index.fields.construct import by_name, construct, replaced
from sgltrace.index.fields.inplace import IN_PLACE_CONTAINER, Handed, argument, is_in_place
from sgltrace.index.fields.strides import note_strided
from sgltrace.index.resolution.values import Bound, ClassRef, FunctionRef

if TYPE_CHECKING:
    from sgltrace.index.fields.flow import FieldFlow
    from sgltrace.index.resolution.entities import FunctionInfo

_LEAVES = frozenset({s.Name, s.Const, s.Lambda, s.Ellipsis_})
"""A lambda is a function of its own."""
_PARTS = frozenset({s.Cond, s.Seq})


def walk(flow: FieldFlow, function: FunctionInfo) -> None:
    """Take down a function's accesses."""
    if function.node is None and function.qualname != "<module>":
        return  # a constructor that Python makes: its call sites are what writes
    Walker(flow, function).block(function.body)


class Walker(Aliases):
    """One function. ``aliases`` says what a variable is one with, ``made`` what it is made of, at the statement
    being read."""

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
            for cls in self.receivers(target):
                self.take(cls, target.attr, target, "read", target)
                self.take(cls, target.attr, target, "augment", node.value)
        elif isinstance(target, s.Sub):
            self._visit(target)
            self.change(target.value, "in-place", target, node.value)
        elif isinstance(target, s.Name):
            # ``x += 1`` on a tensor or list that is a field changes the field.
            self.change(target, "in-place", target, node.value)

    def _delete(self, node: s.Delete) -> None:
        for target in node.targets:
            if isinstance(target, s.Attr):
                self._visit(target.value)
                for cls in self.receivers(target):
                    self.take(cls, target.attr, target, "delete", None)
            else:
                self._visit(target)

    def _bind(self, target: s.Expr, exact: Sources, derived: Sources, value: s.Expr | None = None) -> None:
        """Assign to a target a value that is one with ``exact`` and made of ``derived``."""
        if isinstance(target, s.Name):
            self.aliases[target.id] = exact
            self.made[target.id] = derived
        elif isinstance(target, s.Attr):
            self._visit(target.value)
            for cls in self.receivers(target):
                other = any(isinstance(source, Access) and source.cls is not cls for source in exact)
                self.take(cls, target.attr, target, "copy" if other else "assign", value, exact, derived)
        elif isinstance(target, s.Sub):
            self._visit(target.value, "pass")
            self._visit(target.index)
            self.change(target.value, "in-place", target, value)
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
            for cls in self.receivers(node):
                self.take(cls, node.attr, node, context, self.whole)
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
                construct(self, node, value.cls)
            elif isinstance(value, FUNCTIONS):
                self._pass_on(node, value.function, isinstance(value, Bound))
        func = node.func
        if isinstance(func, s.Attr):
            self._method(node, func)
        elif isinstance(func, s.Sub):
            self._launch(node, func)
        elif isinstance(func, s.Name) and func.id in ("getattr", "setattr", "hasattr", "delattr"):
            by_name(self, node, func.id)
        for arg in node.args:
            if arg.name == "out":
                self.change(arg.value, "in-place", node, node)
        if not values and _is_replace(func):
            replaced(self, node)

    def _method(self, node: s.Call, func: s.Attr) -> None:
        """``x.copy_(y)``, ``x.append(y)``: the field that ``x`` is changes."""
        name = func.attr
        if is_in_place(name) or name in IN_PLACE_CONTAINER:
            written = node.args[0].value if node.args else node
            self.change(func.value, "in-place", node, written)

    def _launch(self, node: s.Call, func: s.Sub) -> None:
        """``kernel[grid](...)``: a Triton kernel stores through those of its pointers that it is written to."""
        callees = self._nodes.get(id(func.value))
        for value in callees.values if callees is not None else ():
            if isinstance(value, FunctionRef):
                for name in sorted(self.flow.in_place.stored(value.function)):
                    written = argument(value.function, node, name, False)
                    if written is not None:
                        self.change(written, "kernel", node, node)

    def _pass_on(self, node: s.Call, function: FunctionInfo, bound: bool) -> None:
        """Take down what a function of the tree is given."""
        for param, value in passed(function, node, bound):
            exact = self.same_as(value)
            sources = exact + self.made_of(value)
            if sources:
                parameter = Parameter(function, param)
                self.flow.passed.setdefault(parameter, {}).update(dict.fromkeys(sources))
                handed = self.flow.in_place.handed.setdefault(parameter, [])
                handed += (Handed(x, self.function, node, self.statement) for x in exact or self.shares_data(value))


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
