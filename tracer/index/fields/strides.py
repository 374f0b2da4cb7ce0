"""Strided reading: ``ids[i * stride : i * stride + n]``, ``ids[i * stride + k]``, and where the stride comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.index.fields.access import Parameter

if TYPE_CHECKING:
    from sgltrace.index.fields.access import Access, Source
    from sgltrace.index.fields.flow import FieldFlow
    from sgltrace.index.fields.walk import Walker
    from sgltrace.index.resolution.entities import FunctionInfo


@dataclass(eq=False)
class StridedRead:
    """Rows of equal width read out of a flat value. ``stride`` is the width as it is written there."""

    function: FunctionInfo
    line: int
    node: s.Sub
    base: s.Expr
    stride: s.Expr
    read_sources: tuple[Source, ...]
    stride_sources: tuple[Source, ...]
    read: list[Access] = field(default_factory=list)
    """The reads of fields that the flat value is, or is made of."""
    stride_from: list[Access] = field(default_factory=list)
    """The reads of fields that the stride is: of the same object as the value, it was carried along; of another, it is
    read late, when that object may have changed."""

    @property
    def carried(self) -> bool | None:
        """Whether the stride travels on the object that holds the value; None where either is not a field."""
        if not self.read or not self.stride_from:
            return None
        return bool({a.cls for a in self.read} & {a.cls for a in self.stride_from})

    def __repr__(self) -> str:
        return f"<{text(self.base)} by {text(self.stride)} {self.function.qualname}:{self.line}>"


def note_strided(walker: Walker, node: s.Sub) -> None:
    """Take down a subscript that reads rows by a stride."""
    index = node.index
    row = index.lower if isinstance(index, s.Slice) else index
    product = _product(row) if isinstance(row, s.Bin) else None
    if product is None:
        return
    for stride in (product[1], product[0]):
        sources = walker.same_as(stride)
        if sources and not all(isinstance(source, Parameter) for source in sources):
            base = walker.same_as(node.value) + walker.made_of(node.value)
            walker.flow.strided.append(StridedRead(walker.function, node.line, node, node.value, stride, base, sources))
            return


def resolve_strided(flow: FieldFlow) -> None:
    """Say of each strided read which fields the value and the stride come from; drop those where neither is one."""
    for read in flow.strided:
        read.read = flow.resolve(read.read_sources)
        read.stride_from = flow.resolve(read.stride_sources)
    flow.strided = [read for read in flow.strided if read.stride_from]
    flow.strided.sort(key=lambda read: (read.function.id, read.line))


def _product(node: s.Expr) -> tuple[s.Expr, s.Expr] | None:
    """The two factors of ``i * stride`` or ``i * stride + k``."""
    if isinstance(node, s.Bin) and node.op == "+":
        return _product(node.left) or _product(node.right)
    if isinstance(node, s.Bin) and node.op == "*":
        return node.left, node.right
    return None
