"""Which functions and fields a diff edits, read off the files before and after; comments and layout are no edit."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from sgltrace.errors import InputError
from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.sides import Side
from sgltrace.interpreter import deep_recursion
from sgltrace.model import Access
from sgltrace.sources import SourceTree, UndecodableSource, UnreadableFile, decode_source, module_name

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Edits:
    """What differs in the changed files, function by function. Ids are those of the side that has them."""

    edited: dict[str, tuple[Definition, Definition]] = field(default_factory=dict)
    """By the id after: the function before and after."""
    new: dict[str, Definition] = field(default_factory=dict)
    deleted: dict[str, Definition] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)
    """``Class.field`` of classes whose bodies define another default, or no default any more."""
    names: dict[str, str] = field(default_factory=dict)
    """Of ``edited``: the id before, where it was another."""

    @property
    def touches(self) -> list[str]:
        """Every function that is edited, new or deleted."""
        return sorted({*self.edited, *self.new, *self.deleted})


def check_syntax(before: SourceTree, after: SourceTree, files: Iterable[str]) -> None:
    """Raise InputError where one of the changed files does not parse after, and did before."""
    for path in files:
        now = _parsed(after, path)
        if isinstance(now, SyntaxError) and not isinstance(_parsed(before, path), SyntaxError):
            raise InputError(
                f"the diff leaves {path} with a syntax error at line {now.lineno} ({now.msg}); mend it, and try again"
            )


def find_edits(before: SourceTree, after: SourceTree, files: Iterable[str], names: Names) -> Edits:
    """Compare the changed files."""
    found = Edits()
    old: dict[str, Definition] = {}
    new: dict[str, Definition] = {}
    for path in files:
        was, now = _parsed(before, path), _parsed(after, path)
        module = module_name(path) or path
        for tree, table in ((was, old), (now, new)):
            if isinstance(tree, ast.Module):
                table.update((f"{module}:{name}", node) for name, node in _functions(tree, ""))
        left, right = (_defaults(tree) if isinstance(tree, ast.Module) else {} for tree in (was, now))
        found.fields |= {key for key in {*left, *right} if left.get(key) != right.get(key)}
    for id, node in old.items():
        other = id if id in new else names.function(id)
        if other is None or other not in new:
            found.deleted[id] = node
        elif _text(node) != _text(new[other]):
            found.edited[other] = (node, new[other])
            found.names[other] = id
    kept = {names.function(id) for id in old} | set(old)
    found.new = {id: node for id, node in new.items() if id not in kept}
    return found


def edited_fields(before: Side, after: Side, edits: Edits, names: Names) -> list[str]:
    """The fields that edited functions write or read otherwise than before, as they are called after."""
    found = set(edits.fields)
    back = {edits.names.get(id, id): id for id in edits.edited}
    old = _accesses(before, {*back, *edits.deleted}, names)
    new = _accesses(after, {*edits.edited, *edits.new}, None)
    for key in {*old, *new}:
        if old.get(key) != new.get(key):
            found.add(key[1])
    known = {name for name in found if name in after.fields or name in before.fields or name in edits.fields}
    return sorted(known)


def _accesses(side: Side, functions: set[str], names: Names | None) -> dict[tuple[str, str], Counter[str]]:
    out: dict[tuple[str, str], Counter[str]] = {}
    for name, fields in side.fields.items():
        called = names.field(name) if names else name
        for entry in fields:
            for access in (*entry.writes, *entry.reads):
                if access.function in functions:
                    function = (names.function(access.function) if names else None) or access.function
                    out.setdefault((function, called), Counter())[_told(access, names)] += 1
    return out


def _told(access: Access, names: Names | None) -> str:
    guards = " and ".join(f"{guard.holds} {guard.text}" for guard in access.guards)
    text = f"{access.kind} {access.expression} where {guards}"
    return names.text(text) if names else text


# --- reading ---


def _parsed(tree: SourceTree, path: str) -> ast.Module | SyntaxError | None:
    try:
        with deep_recursion():
            return ast.parse(decode_source(tree.read(path)))
    except (UnreadableFile, UndecodableSource):
        return None
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error))


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{prefix}{child.name}", child
            yield from _functions(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _functions(child, prefix)


def _text(node: Definition) -> str:
    """A function without its docstring and the functions in it, which are functions of their own."""
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    parts = [ast.dump(node.args), *(ast.dump(item) for item in node.decorator_list)]
    inner = {id(child) for child in ast.walk(node) if child is not node and isinstance(child, _DEFINITIONS)}
    if not inner:
        return "\n".join([*parts, *(ast.dump(statement) for statement in body)])
    return "\n".join([*parts, *(ast.dump(_Hollow().visit(deepcopy(statement))) for statement in body)])


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Hollow(ast.NodeTransformer):
    """Leaves of a nested function its name."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return ast.Global(names=[node.name])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return ast.Global(names=[node.name])


def _defaults(tree: ast.Module) -> dict[str, str]:
    """``Class.field`` to what the class's body says of it."""
    out: dict[str, str] = {}
    for cls in ast.walk(tree):
        if isinstance(cls, ast.ClassDef):
            for item in cls.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    out[f"{cls.name}.{item.target.id}"] = ast.dump(item)
                elif isinstance(item, ast.Assign):
                    out.update((f"{cls.name}.{t.id}", ast.dump(item)) for t in item.targets if isinstance(t, ast.Name))
    return out
