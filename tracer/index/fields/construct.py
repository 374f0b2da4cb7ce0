"""Writes by constructors, by ``dataclasses.replace`` and by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.fields.access import Access

if TYPE_CHECKING:
    from sgltrace.index.fields.walk import Walker
    from sgltrace.index.resolution.entities import ClassInfo


def construct(walker: Walker, node: s.Call, cls: ClassInfo) -> None:
    """A dataclass's constructor writes a field for each argument, and the defaults of the others."""
    if walker.flow.role(cls) is None or not cls.is_dataclass or cls.is_enum or "__init__" in cls.scope.names:
        return
    names = _constructor_fields(walker, cls)
    given: dict[str, s.Expr] = {}
    for i, arg in enumerate(node.args):
        name = names[i] if arg.name is None and i < len(names) else arg.name
        if name is not None and name in names:
            given[name] = arg.value
    spread = any(arg.name in ("*", "**") for arg in node.args)
    for name in names:
        owner = walker.flow.tracked.owner(cls, name)
        value = given.get(name)
        if value is not None:
            exact = walker.same_as(value)
            other = any(isinstance(source, Access) and source.cls is not owner for source in exact)
            kind = "copy" if other else "constructor"
            walker.take(owner, name, node, kind, value, exact, walker.made_of(value), getattr(value, "line", 0))
        elif not spread:
            walker.take(owner, name, node, "default", _default(walker, cls, name))


def replaced(walker: Walker, node: s.Call) -> None:
    """``dataclasses.replace(x, field=value)``."""
    first = next((arg.value for arg in node.args if arg.name is None), None)
    for cls in walker.classes(first) if first is not None else ():
        for arg in node.args:
            if arg.name is not None and arg.name not in ("*", "**"):
                owner = walker.flow.tracked.owner(cls, arg.name)
                walker.take(owner, arg.name, node, "constructor", arg.value, walker.same_as(arg.value))


def by_name(walker: Walker, node: s.Call, function: str) -> None:
    """``getattr(x, "field", default)`` and ``setattr(x, "field", value)`` with a literal name."""
    args = [arg.value for arg in node.args]
    if len(args) < 2 or not isinstance(args[1], s.Const) or not isinstance(args[1].value, str):
        return
    name = args[1].value
    for cls in walker.classes(args[0]):
        if not walker.is_field(cls, name):
            continue
        owner = walker.flow.tracked.owner(cls, name)
        if function == "setattr" and len(args) == 3:
            walker.take(owner, name, node, "assign", args[2], walker.same_as(args[2]))
        else:
            walker.take(owner, name, node, "delete" if function == "delattr" else "read", walker.whole)


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
