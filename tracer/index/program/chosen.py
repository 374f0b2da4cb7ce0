"""Which function a table of functions gives, as a condition: the one that is registered under the key asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.index.program.program import Program
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.model import Guard

MANY = 8
"""A key that comes from more calls is not followed."""


def chosen(
    program: Program, caller: FunctionInfo, callee: FunctionInfo, kind: str, expression: s.Expr | s.Stmt
) -> list[Guard]:
    """The condition under which a subscripted table gives ``callee``; none where that cannot be told."""
    if kind != "dict_dispatch" or not isinstance(expression, s.Call) or not isinstance(expression.func, s.Sub):
        return []
    keys = _keys(caller, callee)
    own = _own(caller)
    asked = [
        re.sub(r"\bself\.(\w+)", lambda found: own.get(found[1], found[0]), one)
        for one in _asked(program, caller, expression.func.index)
    ]
    if not keys or not asked or len(asked) > MANY:
        return []
    told = [f"{asked[0]} == {key!r}" if len(asked) == 1 else f"{key!r} in ({', '.join(asked)})" for key in keys]
    return [Guard(" or ".join(told), True, expression.line)]


def _own(caller: FunctionInfo) -> dict[str, str]:
    """What the constructor of the caller's class takes over from elsewhere: attributes that are another object's."""
    if caller.owner is None:
        return {}
    return {
        target.attr: text(statement.value)
        for function in caller.owner.functions.get("__init__", [])
        for statement in s.nested(function.body)
        if isinstance(statement, s.Assign) and isinstance(statement.value, s.Attr)
        for target in statement.targets
        if isinstance(target, s.Attr) and isinstance(target.value, s.Name) and target.value.id == "self"
    }


def _keys(caller: FunctionInfo, callee: FunctionInfo) -> list[str]:
    """The constants that the function stands under: its decorator's, or those of a table in the caller or beside it."""
    if isinstance(callee.node, s.Func):
        for decorator in callee.node.decorators:
            match decorator:
                case s.Call(args=[s.Arg(value=s.Const(value=str(name)))]):
                    return [name]
    beside = [caller] if caller.owner is None else [f for fs in caller.owner.functions.values() for f in fs]
    found = [key for function in beside for key, name in _tables(function.body) if name == callee.name]
    return list(dict.fromkeys(found))


def _tables(body: list[s.Stmt]) -> Iterator[tuple[str, str]]:
    for statement in s.nested(body):
        value = getattr(statement, "value", None)
        for part in s.descend(value) if isinstance(value, s.Map) else ():
            if isinstance(part, s.Map):
                for key, item in zip(part.keys, part.values, strict=True):
                    if isinstance(key, s.Const) and isinstance(key.value, str):
                        for one in (item.body, item.orelse) if isinstance(item, s.Cond) else (item,):
                            yield key.value, one.attr if isinstance(one, s.Attr) else getattr(one, "id", "")


def _asked(program: Program, caller: FunctionInfo, index: s.Expr) -> Iterator[str]:
    """The keys that are asked for: the index, or what callers pass for it."""
    positions = [p.name for p in caller.parameters]
    if not isinstance(index, s.Name):
        yield text(index)
        return
    if index.id in positions:
        yield from _passed(program, caller, index.id)
        return
    for value in _set(caller, index.id):
        given = [name for name in positions if re.search(rf"\b{re.escape(name)}\b", text(value)) and name != "self"]
        if not given:
            yield text(value)
        for passed in _passed(program, caller, given[0]) if len(given) == 1 else ():
            yield re.sub(rf"\b{re.escape(given[0])}\b", f"({passed})".replace("\\", r"\\"), text(value))


def _passed(program: Program, function: FunctionInfo, name: str) -> list[str]:
    """What callers give for a parameter."""
    positions = [p.name for p in function.parameters]
    method = function.owner is not None and function.kind != "static_method"
    place = positions.index(name) - (1 if method else 0)
    found: dict[str, None] = {}
    for caller, call in program.callers(function):
        if isinstance(call, s.Call):
            plain = [arg.value for arg in call.args if arg.name is None]
            named = [arg.value for arg in call.args if arg.name == name]
            for value in named or plain[place : place + 1]:
                once = _set(caller, value.id) if isinstance(value, s.Name) else []
                found[text(once[0] if len(once) == 1 else value)] = None
    return list(found)


def _set(function: FunctionInfo, name: str) -> list[s.Expr]:
    """What a local name is set to."""
    return [
        statement.value
        for statement in s.nested(function.body)
        if isinstance(statement, s.Assign) and any(isinstance(t, s.Name) and t.id == name for t in statement.targets)
    ]
