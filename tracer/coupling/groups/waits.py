"""Whether a field holds an event of a stream: what is read from it is waited for."""

from __future__ import annotations

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import expressions
from sgltrace.index.fields import Access

WAITS = frozenset({"synchronize", "wait", "query", "record", "wait_event", "record_event"})
"""What PyTorch calls on events and streams."""


def waits_for(access: Access) -> bool:
    """Whether a read waits for the field, or hands it to a stream that does."""
    statement = access.statement
    if statement is None:
        return False
    for root in expressions(statement):
        for node in s.descend(root):
            if not isinstance(node, s.Call) or not isinstance(node.func, s.Attr) or node.func.attr not in WAITS:
                continue
            if node.func.value is access.node or any(arg.value is access.node for arg in node.args):
                return True
    return False
