"""What happens at a place, in words."""

from __future__ import annotations

from sgltrace.coupling.facts import Access
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text

_SHORT = 72


def show(node: s.Expr | None) -> str:
    """An expression as text, cut where it is long."""
    if node is None:
        return "?"
    out = text(node)
    return out if len(out) <= _SHORT else out[: _SHORT - 3] + "..."


def writes_of(access: Access) -> str:
    """What a write does, for a reader."""
    verb = {"augment": "adds to", "in-place": "changes in place", "item": "writes elements of", "delete": "deletes"}
    if access.how in verb:
        return f"{verb[access.how]} {access.field}: {show(access.value)}"
    return f"sets {access.field} = {show(access.value)}"


def reads_of(access: Access) -> str:
    """What a read is for, for a reader."""
    how = {"index": "indexes", "divisor": "divides by", "test": "decides by", "call": "calls on"}
    return f"{how.get(access.how, 'reads')} {access.owner + '.' if access.owner else ''}{access.field}"
