"""Conditions that a diff adds, and whether anybody ever sets what they ask.

A repair behind a flag that nobody sets is half of one.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sgltrace.insight.changes.sides import Side
from sgltrace.insight.impact.edits import Definition, Edits


@dataclass(frozen=True)
class Dead:
    """A condition in a function that holds only once somebody sets a name, which nobody does."""

    function: str
    test: str
    name: str


def dead_conditions(edits: Edits, after: Side) -> list[Dead]:
    """The conditions that are new in edited functions and ask a field or parameter that keeps its default everywhere.

    Only those that this makes false where what the diff adds is their branch (or true, where it is the other branch).
    """
    asked = list(_asked(edits))
    names = {name for _, _, _, found in asked for name in found}
    if not names or after.bodies is None:
        return []
    constants = _constants(names, after, {id: node for id, node, _, _ in asked})
    out = []
    for function, _, (test, holds), found in asked:
        known = {name: value.value for name in sorted(found) if (value := constants.get(name)) is not None}
        if known and _truth(test, known) is (not holds):
            out.append(Dead(function, ast.unparse(test), next(iter(known))))
    return out


def _asked(edits: Edits) -> Iterator[tuple[str, Definition, tuple[ast.expr, bool], set[str]]]:
    pairs: list[tuple[str, Definition | None, Definition]] = [
        (id, old, new) for id, (old, new) in sorted(edits.edited.items())
    ]
    pairs += [(id, None, new) for id, new in sorted(edits.new.items())]
    for id, old, new in pairs:
        own = {arg.arg for arg in (*new.args.args, *new.args.kwonlyargs, *new.args.posonlyargs)}
        for test, holds in new_tests(old, new):
            if names := set(_names_in(test, own)):
                yield id, new, (test, holds), names


def new_tests(before: Definition | None, now: Definition) -> Iterator[tuple[ast.expr, bool]]:
    """The conditions of a function that it had not before, each with the truth that leads to what is new under it."""
    old, new = (Counter(map(ast.dump, ast.walk(node))) if node is not None else Counter() for node in (before, now))
    added = new - old  # a statement that stands there once more is new, too
    for node in ast.walk(now):
        if not isinstance(node, (ast.If, ast.While, ast.IfExp)) or ast.dump(node.test) not in added:
            continue
        body = node.body if isinstance(node.body, list) else [node.body]
        other = node.orelse if isinstance(node.orelse, list) else [node.orelse]
        fresh, fresh_other = (any(ast.dump(part) in added for part in parts) for parts in (body, other))
        if fresh and not fresh_other:
            yield node.test, True
        elif fresh_other and not fresh:
            yield node.test, False


def _names_in(test: ast.expr, own: set[str]) -> Iterator[str]:
    """Fields that a condition asks, and parameters of its function."""
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name) and node.id in own:
            yield node.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            named = node.args[1] if len(node.args) > 1 else None
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                yield named.value


def _constants(names: set[str], side: Side, functions: Mapping[str, Definition]) -> dict[str, ast.Constant | None]:
    """For each name the constant that it has wherever it is set; None where it is set to something else, or unknown."""
    assert side.bodies is not None
    files = sorted({function.file for function in side.index.functions})
    called = {node.name for node in functions.values()}
    word = re.compile(rb"\b(" + b"|".join(re.escape(name.encode()) for name in sorted(names | called)) + rb")\b")
    values: dict[str, list[ast.expr | None]] = {name: [] for name in names}
    for file in files:
        data = side.bodies.data(file) or b""
        if word.search(data):
            _collect(data, names, values, functions)
    out: dict[str, ast.Constant | None] = {}
    for name, found in values.items():
        kinds = {ast.dump(value) if isinstance(value, ast.Constant) else "?" for value in found}
        only = found[0] if found and len(kinds) == 1 else None
        out[name] = only if isinstance(only, ast.Constant) else None
    return out


def _collect(
    data: bytes, names: set[str], values: dict[str, list[ast.expr | None]], functions: Mapping[str, Definition]
) -> None:
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        for name, value in _set_in(node):
            if name in names:
                values[name].append(value)
        if isinstance(node, ast.Call):
            for name in _given_by_place(node, functions):
                if name in names:
                    values[name].append(None)


def _given_by_place(call: ast.Call, functions: Mapping[str, Definition]) -> Iterator[str]:
    """The parameters that a call may give a value without their name."""
    func = call.func
    callee = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    starred = any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords)
    for node in functions.values():
        if node.name == callee:
            arguments = [*node.args.posonlyargs, *node.args.args]
            given = len(arguments) if starred else len(call.args) + isinstance(func, ast.Attribute)
            yield from (arg.arg for arg in arguments[:given])


def _set_in(node: ast.AST) -> Iterable[tuple[str, ast.expr | None]]:
    """Names that a node sets, with what it sets them to."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from _targets(node.target, node.value)
        elif isinstance(node.target, ast.Name):
            yield node.target.id, None
    elif isinstance(node, (ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _targets(node.target, None)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _targets(node.optional_vars, None)
    elif isinstance(node, ast.Call):
        yield from ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
        if isinstance(node.func, ast.Name) and node.func.id == "setattr" and len(node.args) > 2:
            named = node.args[1]
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                yield named.value, node.args[2]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        yield from _parameters(node)


def _parameters(node: Definition) -> Iterable[tuple[str, ast.expr | None]]:
    """Parameters with their defaults. One without a default is given by every caller: unknown. So is the function's
    name: a condition may ask the method itself.
    """
    yield node.name, None
    positional = [*node.args.posonlyargs, *node.args.args]
    first = len(positional) - len(node.args.defaults)
    for n, arg in enumerate(positional):
        yield arg.arg, node.args.defaults[n - first] if n >= first else None
    yield from ((a.arg, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))


def _targets(target: ast.expr, value: ast.expr | None) -> Iterable[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Attribute):
        yield target.attr, value
    elif isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _targets(item, None)
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value, None)


def _truth(test: ast.expr, known: Mapping[str, object]) -> bool | None:
    """The truth of a condition where names have their constants; None where it depends on more."""
    found = _value(test, known)
    return None if found is _UNKNOWN else bool(found)


_UNKNOWN = object()


def _value(node: ast.expr, known: Mapping[str, object]) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        return known.get(node.attr, _UNKNOWN)
    if isinstance(node, ast.Name):
        return known.get(node.id, _UNKNOWN)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
        named = node.args[1] if len(node.args) > 1 else None
        return known.get(str(named.value), _UNKNOWN) if isinstance(named, ast.Constant) else _UNKNOWN
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _value(node.operand, known)
        return _UNKNOWN if inner is _UNKNOWN else not inner
    if isinstance(node, ast.BoolOp):
        values = [_value(part, known) for part in node.values]
        stops = isinstance(node.op, ast.Or)
        if any(value is not _UNKNOWN and bool(value) is stops for value in values):
            return stops
        return _UNKNOWN if any(value is _UNKNOWN for value in values) else not stops
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = _value(node.left, known), _value(node.comparators[0], known)
        if left is _UNKNOWN or right is _UNKNOWN:
            return _UNKNOWN
        if isinstance(node.ops[0], (ast.Is, ast.Eq)):
            return left is right if isinstance(node.ops[0], ast.Is) else left == right
        if isinstance(node.ops[0], (ast.IsNot, ast.NotEq)):
            return left is not right if isinstance(node.ops[0], ast.IsNot) else left != right
    return _UNKNOWN
