"""Has a function's body read, once: its names, its statements, and the defaults of its parameters."""

from __future__ import annotations

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.engine import Engine
from sgltrace.index.resolution.entities import FunctionInfo, Scope
from sgltrace.index.resolution.statements import Reader


def lower(engine: Engine, function: FunctionInfo) -> None:
    """Make nodes, links and sites of a function's statements."""
    if function.lowered:
        return
    function.lowered = True
    if function.node is None:
        Reader(engine, function, function.enclosing).block(function.body)
        return
    scope = Scope(function.module, function.enclosing, function, weak=_has_nested(function))
    scope.names.update(function.params)
    function.scope = scope
    defaults = Reader(engine, function, function.enclosing)
    for param in function.parameters:
        if param.default is not None:
            engine.solver.link(defaults.expression(param.default), function.params[param.name])
    Reader(engine, function, scope).block(function.body)


def _has_nested(function: FunctionInfo) -> bool:
    """Whether a body has functions of its own, which see its names whenever they are called."""
    node = function.node
    if not isinstance(node, s.Func):
        return True
    body = bytes(node.body)
    return s.NESTED_FUNCTION in body or s.LAMBDA in body
