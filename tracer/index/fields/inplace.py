"""What changes a value in place: methods, and the parameters through which functions and Triton kernels write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import expressions

if TYPE_CHECKING:
    from sgltrace.index.fields.access import Parameter, Source
    from sgltrace.index.resolution.entities import FunctionInfo

IN_PLACE_CONTAINER = frozenset(
    {"append", "extend", "insert", "pop", "clear", "remove", "sort", "reverse", "update", "add", "discard", "popleft",
     "appendleft", "setdefault"}
)  # fmt: skip
"""Methods of lists, sets and dicts that change them."""
VIEWS_ONLY = frozenset(
    {"view", "reshape", "flatten", "unsqueeze", "squeeze", "transpose", "permute", "t", "expand", "narrow", "select",
     "contiguous", "detach"}
)  # fmt: skip
"""Methods whose result shares the tensor's data."""
VIEWS = VIEWS_ONLY | {"to", "cpu", "cuda", "clone", "long", "int", "float", "tolist", "copy"}
"""Methods whose result is the tensor itself, a view or a copy of it."""


@dataclass(frozen=True)
class Handed:
    """A value that a call hands to a parameter, by reference."""

    source: Source
    function: FunctionInfo
    call: s.Call
    statement: s.Stmt | None


class InPlace:
    """Knows, of the functions of one program, through which parameters they write.

    What a function does to its own parameters is told while it is walked; what follows for its callers, and theirs,
    is worked out when all are.
    """

    def __init__(self) -> None:
        self.changed: dict[Parameter, None] = {}
        self.handed: dict[Parameter, list[Handed]] = {}
        self._stored: dict[FunctionInfo, frozenset[str]] = {}

    def stored(self, function: FunctionInfo) -> frozenset[str]:
        """The parameters of a Triton kernel through which it stores (``tl.store(out + i, x)``) or adds atomically."""
        found = self._stored.get(function)
        if found is None:
            pointers = {param.name: {param.name} for param in function.parameters}
            stored: set[str] = set()
            _scan_kernel(function.body, pointers, stored)
            found = self._stored[function] = frozenset(stored)
        return found

    def spread(self) -> list[Handed]:
        """The fields that are changed because they were handed to a function that changes its parameter."""
        from sgltrace.index.fields.access import Access, Parameter

        hit: dict[Handed, None] = {}
        pending = list(self.changed)
        while pending:
            for handed in self.handed.get(pending.pop(), ()):
                if isinstance(handed.source, Access):
                    hit[handed] = None
                elif isinstance(handed.source, Parameter) and handed.source not in self.changed:
                    self.changed[handed.source] = None
                    pending.append(handed.source)
        return list(hit)


def is_in_place(method: str) -> bool:
    """Whether a method's name says that it changes its tensor (``add_``)."""
    return method.endswith("_") and not method.endswith("__")


def argument(function: FunctionInfo, node: s.Call, name: str, bound: bool) -> s.Expr | None:
    """The expression that a call gives to a parameter."""
    positional = [p.name for p in function.parameters if p.kind in ("", "/")][1 if bound else 0 :]
    at = 0
    for arg in node.args:
        if arg.name == name:
            return arg.value
        if arg.name == "*":
            return None
        if arg.name is None:
            if at < len(positional) and positional[at] == name:
                return arg.value
            at += 1
    return None


def _scan_kernel(body: list[s.Stmt], pointers: dict[str, set[str]], stored: set[str]) -> None:
    for statement in body:
        for expression in expressions(statement):
            for node in s.descend(expression):
                if isinstance(node, s.Call) and _is_store(node.func) and node.args:
                    stored |= _pointer_bases(node.args[0].value, pointers)
        if isinstance(statement, s.Assign):
            for target in statement.targets:
                if isinstance(target, s.Name):
                    pointers.setdefault(target.id, set()).update(_pointer_bases(statement.value, pointers))
        for inner in s.blocks(statement):
            _scan_kernel(inner, pointers, stored)


def _is_store(func: s.Expr) -> bool:
    return isinstance(func, s.Attr) and (func.attr == "store" or func.attr.startswith("atomic_"))


def _pointer_bases(node: s.Expr, pointers: dict[str, set[str]]) -> set[str]:
    """The parameter that a pointer expression starts from: the leftmost name of a sum (offsets come after)."""
    while isinstance(node, s.Bin) and node.op in ("+", "-"):
        node = node.left
    if isinstance(node, s.Name):
        return set(pointers.get(node.id, ()))
    if isinstance(node, s.Call) and isinstance(node.func, s.Attr):
        return _pointer_bases(node.func.value, pointers)  # ``ptr.to(...)``
    return set()
