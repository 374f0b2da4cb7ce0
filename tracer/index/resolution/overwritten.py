"""What a dict display holds for no time: entries that the statements right behind it overwrite before anyone reads."""

from __future__ import annotations

from collections.abc import Iterable

from sgltrace.index.facts import syntax as s

Key = str | int


def key_of(index: s.Expr) -> Key | None:
    """The constant in a subscript, where there is one."""
    if isinstance(index, s.Const) and isinstance(index.value, (str, int)) and not isinstance(index.value, bool):
        return index.value
    return None


def overwritten(display: s.Map, name: str, following: Iterable[s.Stmt]) -> dict[int, set[Key]]:
    """By the identity of a display, its own or one inside: the keys that hold something else before ``name`` is used.

    ``d = {"a": f}`` and then ``d["a"] = g``, ``d["a"]["b"] = g`` or ``d.update({"a": g})``.
    """
    found: dict[int, set[Key]] = {}
    for statement in following:
        match statement:
            case s.Assign(targets=[s.Sub() as target], value=value):
                path = _path(target, name)
                if path is None or _mentions(value, name):
                    break
                inner = _inside(display, path[:-1])
                if inner is not None:
                    found.setdefault(id(inner), set()).add(path[-1])
            case s.ExprStmt(
                value=s.Call(
                    func=s.Attr(value=s.Name(id=named), attr="update"), args=[s.Arg(name=None, value=s.Map() as new)]
                )
            ):
                if named != name or _mentions(new, name):
                    break
                keys = [key_of(key) for key in new.keys if key is not None]
                found.setdefault(id(display), set()).update(key for key in keys if key is not None)
            case _:
                break
    return found


def _path(target: s.Expr, name: str) -> list[Key] | None:
    """The keys of ``name[a][b]``."""
    if isinstance(target, s.Name):
        return [] if target.id == name else None
    if not isinstance(target, s.Sub):
        return None
    path, key = _path(target.value, name), key_of(target.index)
    return None if path is None or key is None else [*path, key]


def _inside(display: s.Map, path: list[Key]) -> s.Map | None:
    for key in path:
        values = [v for k, v in zip(display.keys, display.values, strict=True) if k is not None and key_of(k) == key]
        if len(values) != 1 or not isinstance(values[0], s.Map):
            return None
        display = values[0]
    return display


def _mentions(expression: s.Expr, name: str) -> bool:
    return any(isinstance(part, s.Name) and part.id == name for part in s.descend(expression))
