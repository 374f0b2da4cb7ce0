"""Which function a table of functions gives, as a condition: the one that is registered under the key asked for."""

from __future__ import annotations

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
    key = _key(caller, callee)
    asked = list(_asked(program, caller, expression.func.index))
    if key is None or not asked or len(asked) > MANY:
        return []
    one = f"{asked[0]} == {key!r}" if len(asked) == 1 else f"{key!r} in ({', '.join(asked)})"
    return [Guard(one, True, expression.line)]


def _key(caller: FunctionInfo, callee: FunctionInfo) -> str | None:
    """The constant that the function stands under: its decorator's, or a table's in the caller."""
    if isinstance(callee.node, s.Func):
        for decorator in callee.node.decorators:
            match decorator:
                case s.Call(args=[s.Arg(value=s.Const(value=str(name)))]):
                    return name
    return next((key for key, name in _tables(caller.body) if name == callee.name), None)


def _tables(body: list[s.Stmt]) -> Iterator[tuple[str, str]]:
    for statement in body:
        value = getattr(statement, "value", None)
        for part in s.descend(value) if isinstance(value, s.Map) else ():
            if isinstance(part, s.Map):
                for key, item in zip(part.keys, part.values, strict=True):
                    name = item.attr if isinstance(item, s.Attr) else getattr(item, "id", "")
                    if isinstance(key, s.Const) and isinstance(key.value, str):
                        yield key.value, name
        for inner in s.blocks(statement):
            yield from _tables(inner)


def _asked(program: Program, caller: FunctionInfo, index: s.Expr) -> Iterator[str]:
    """The keys that are asked for: the index, or what callers pass for it."""
    positions = [p.name for p in caller.parameters]
    if not isinstance(index, s.Name) or index.id not in positions:
        yield text(index)
        return
    place = positions.index(index.id) - (1 if caller.owner is not None and caller.kind != "static_method" else 0)
    found: dict[str, None] = {}
    for function, call in program.callers(caller):
        if isinstance(call, s.Call):
            plain = [arg.value for arg in call.args if arg.name is None]
            named = [arg.value for arg in call.args if arg.name == index.id]
            for value in named or plain[place : place + 1]:
                found[text(_once(function, value))] = None
    yield from found


def _once(function: FunctionInfo, value: s.Expr) -> s.Expr:
    """What a local name was set to, where that is said once."""
    if isinstance(value, s.Name):
        found = [
            statement.value
            for statement in _all(function.body)
            if isinstance(statement, s.Assign)
            and any(isinstance(t, s.Name) and t.id == value.id for t in statement.targets)
        ]
        return found[0] if len(found) == 1 else value
    return value


def _all(body: list[s.Stmt]) -> Iterator[s.Stmt]:
    for statement in body:
        yield statement
        for inner in s.blocks(statement):
            yield from _all(inner)
