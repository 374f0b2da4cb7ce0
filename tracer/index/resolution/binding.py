"""Arguments to parameters, as Python joins them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.index.resolution.uses import Args, Site
from sgltrace.index.resolution.values import (
    Bound,
    ClassRef,
    Container,
    Decorated,
    FunctionRef,
    Node,
    Partial,
    Value,
    constant,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine

FUNCTIONS = (FunctionRef, Bound, Decorated, Partial)


def bind_arguments(engine: Engine, function: FunctionInfo, receiver: Value | None, args: Args) -> None:
    """Link a call's arguments to the function's parameters."""
    engine.sign(function)
    solver, parameters, nodes = engine.solver, function.parameters, function.params
    positional = [p.name for p in parameters if p.kind in ("", "/")]
    names = {p.name for p in parameters if p.kind in ("", "=")}
    rest = keywords = None
    if not function.is_wrapper:  # a wrapper's rest would be of all the functions that it wraps
        rest = next((p.name for p in parameters if p.kind == "*"), None)
        keywords = next((p.name for p in parameters if p.kind == "**"), None)
    at = 0
    if receiver is not None:
        if positional:
            solver.add(nodes[positional[0]], receiver)
        elif rest is not None:
            solver.add(_container(nodes[rest]).item(0), receiver)
        at = 1
    for name, node in args:
        if name is None:
            if at < len(positional):
                engine.pass_on(node, nodes[positional[at]])
            elif rest is not None:
                solver.link(node, _container(nodes[rest]).item(at - len(positional)))
            at += 1
        elif name == "*":
            solver.watch(node, partial(_spread, engine, positional[at:], rest, nodes))
        elif name == "**":
            solver.watch(node, partial(_spread_names, engine, names, keywords, nodes))
        elif name in names:
            engine.pass_on(node, nodes[name])
        elif keywords is not None:
            solver.link(node, _container(nodes[keywords]).item(name))


def _container(node: Node) -> Container:
    return next(value for value in node.values if type(value) is Container)


def _spread(engine: Engine, positional: list[str], rest: str | None, nodes: dict[str, Node], value: Value) -> None:
    """``*value``: its elements to the positional parameters that are left."""
    if type(value) is not Container:
        return
    targets = [nodes[name] for name in positional]
    for i, target in enumerate(targets):
        if i in value.items:
            engine.solver.link(value.items[i], target)
        engine.solver.link(value.element, target)
    if rest is not None:
        container = _container(nodes[rest])
        for key, node in list(value.items.items()):
            if isinstance(key, int) and key >= len(positional):
                engine.solver.link(node, container.item(key - len(positional)))
        engine.solver.link(value.element, container.element)


def _spread_names(engine: Engine, names: set[str], keywords: str | None, nodes: dict[str, Node], value: Value) -> None:
    """``**value``: what is under a known key to the parameter of that name."""
    if type(value) is not Container:
        return
    for key, node in list(value.items.items()):
        if key in names:
            engine.solver.link(node, nodes[key])
        elif keywords is not None:
            engine.solver.link(node, _container(nodes[keywords]).item(key))
    if keywords is not None:
        engine.solver.link(value.element, _container(nodes[keywords]).element)


def argument_of(function: FunctionInfo, receiver: Value | None, args: Args, name: str) -> Node | None:
    """The argument that a parameter gets, where it is passed by position or by name."""
    positional = [p.name for p in function.parameters if p.kind in ("", "/")]
    at = 1 if receiver is not None else 0
    for keyword, node in args:
        if keyword is None:
            if at < len(positional) and positional[at] == name:
                return node
            at += 1
        elif keyword == name:
            return node
        elif keyword in ("*", "**"):
            return function.params[name]
    return constant(receiver) if receiver is not None and positional[:1] == [name] else None


def hands_back(function: FunctionInfo) -> tuple[str, ...]:
    """The parameters that a function may return as they came; an empty name where it makes functions.

    Read off the encoded body: ``return`` of a name, and ``def``.
    """
    node = function.node
    if isinstance(node, s.Lambda):
        return tuple(p.name for p in node.params if isinstance(node.body, s.Name) and node.body.id == p.name)
    if not isinstance(node, s.Func):
        return ()
    body = bytes(node.body)
    names = [p.name for p in node.params if s.RETURNED_NAME + s.encode_text(p.name) in body]
    if s.NESTED_FUNCTION in body:
        names.append("")
    return tuple(names)


MAX_GETTER = 600
"""A body that gives back a field, with what is written about it, is no longer than this, encoded."""


def getter_of(function: FunctionInfo) -> s.Attr | None:
    """The field of its object that a method gives back, where it does nothing else."""
    node = function.node
    if not isinstance(node, s.Func) or function.kind != "method" or len(bytes(node.body)) > MAX_GETTER:
        return None
    match [statement for statement in function.body if not _is_text(statement)]:
        case [s.Return(value=s.Attr(value=s.Name(id=name)) as field)] if node.params and name == node.params[0].name:
            return field
    return None


def _is_text(statement: s.Stmt) -> bool:
    return isinstance(statement, s.ExprStmt) and isinstance(statement.value, s.Const)


def makes_wrappers(function: FunctionInfo) -> bool:
    """Whether a function takes a function and returns one, as a decorator does."""
    return not function.is_wrapper and bool(hands_back(function))


def hands_on(site: Site) -> bool:
    """Whether a call passes all that the function around it was given."""
    rest = [site.function.params[p.name] for p in site.function.parameters if p.kind in ("*", "**")]
    return any(name in ("*", "**") and node in rest for name, node in site.args)


def is_function(node: Node) -> bool:
    """Whether a node is known to hold a function of the tree."""
    return any(type(value) in FUNCTIONS for value in node.values)


def functions_only(value: Value) -> Value | None:
    """A transform that lets functions through."""
    return value if type(value) in FUNCTIONS else None


def classes_only(value: Value) -> Value | None:
    """A transform that lets classes of the tree through."""
    return value if type(value) is ClassRef else None


def no_functions(value: Value) -> Value | None:
    """A transform that keeps functions back."""
    return None if type(value) in FUNCTIONS else value
