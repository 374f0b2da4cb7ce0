"""What the variables and expressions of a function are one with, and made of, at the statement being read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.fields.access import Access, Parameter, Returned, Source
from sgltrace.index.fields.inplace import VIEWS, VIEWS_ONLY
from sgltrace.index.resolution.values import Bound, FunctionRef, Instance

if TYPE_CHECKING:
    from sgltrace.index.fields.flow import FieldFlow
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
Sources = tuple[Source, ...]
FUNCTIONS = (FunctionRef, Bound)


class Aliases:
    """One function. ``aliases`` says what a variable is one with, ``made`` what it is made of."""

    def __init__(self, flow: FieldFlow, function: FunctionInfo) -> None:
        self.flow = flow
        self.function = function
        self.aliases: dict[str, Sources] = {p.name: (Parameter(function, p.name),) for p in function.parameters}
        self.made: dict[str, Sources] = {}
        self.statement: s.Stmt | None = None
        self.whole: s.Expr | None = None
        self._nodes = function.nodes

    def classes(self, node: s.Expr) -> list[ClassInfo]:
        """The tracked classes that an expression may be of."""
        known = self._nodes.get(id(node))
        if known is None or not known.values:
            return []
        role = self.flow.tracked.role
        found = {v.cls for v in known.values if type(v) is Instance and role(v.cls) is not None}
        return sorted(found, key=lambda cls: cls.id) if len(found) > 1 else list(found)

    def receivers(self, node: s.Attr) -> list[ClassInfo]:
        """The tracked classes whose field an attribute is; those that declare it, where any does."""
        classes = [cls for cls in self.classes(node.value) if self.is_field(cls, node.attr)]
        if len(classes) > 1:
            declaring = [cls for cls in classes if self._declares(cls, node.attr)]
            classes = declaring or classes
        owner = self.flow.tracked.owner
        return list(dict.fromkeys(owner(cls, node.attr) for cls in classes))

    def is_field(self, cls: ClassInfo, name: str) -> bool:
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
            if known is not None and any(isinstance(value, FUNCTIONS) for value in known.values):
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

    def change(self, target: s.Expr, kind: str, node: s.Expr, value: s.Expr | None) -> None:
        """What ``target`` is, or is a view of, is changed in place."""
        line = getattr(node, "line", 0)
        exact = self.same_as(value) if value is not None and value is not node else ()
        for read in self.shares_data(target):
            if isinstance(read, Access):
                self.take(read.cls, read.field, node, kind, value, exact, (), line)
            elif isinstance(read, Parameter):
                self.flow.in_place.changed[read] = None

    def shares_data(self, node: s.Expr) -> Sources:
        """What an expression is, or is a view of."""
        if isinstance(node, s.Sub):
            return self.shares_data(node.value)
        if isinstance(node, s.Call) and isinstance(node.func, s.Attr) and node.func.attr in VIEWS_ONLY:
            return self.shares_data(node.func.value)
        return self.same_as(node)

    def take(
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
