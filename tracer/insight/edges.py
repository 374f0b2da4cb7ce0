"""Calls that ran, set beside the static call graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sgltrace import runtime
from sgltrace.model import Index

_GENERATED = "__create_fn__.<locals>."
"""What Python 3.11 to 3.13 call the methods that ``dataclasses`` writes; their class is not in the name."""
Edge = tuple[str, str, int]


def edges(pairs: Iterable[runtime.CallPair], index: Index) -> tuple[list[Edge], list[Edge]]:
    """The calls that ran, and those of them that the call graph lacks.

    A constructor that a dataclass has from ``dataclasses`` runs under a name without its class: it is the class of that
    module which the static graph has the caller construct.
    """
    static = {(edge.caller, edge.callee) for edge in index.calls}
    constructed: dict[tuple[str, str], list[str]] = defaultdict(list)
    for edge in index.calls:
        if edge.kind == "constructor":
            constructed[edge.caller, edge.callee.partition(":")[0]].append(edge.callee)
    constructs = {edge.callee: edge.caller for edge in reversed(index.calls) if edge.kind == "constructor"}
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for pair in pairs:
        caller, callee = _plain(pair.caller), pair.callee
        module, _, name = callee.partition(":")
        if name.startswith(_GENERATED):
            known = constructed.get((caller, module))
            callee = known[0] if known else f"{module}:{name.removeprefix(_GENERATED)} of a dataclass"
        elif pair.caller.partition(":")[2].startswith(_GENERATED) and _plain(callee) in constructs:
            # The generated constructor calls it; the static graph has whoever constructs the class do that.
            caller = constructs[_plain(callee)]
        counts[caller, _plain(callee)] += pair.count
    ran = [(caller, callee, count) for (caller, callee), count in sorted(counts.items())]
    return ran, [row for row in ran if row[:2] not in static]


def _plain(function: str) -> str:
    return function.replace("<locals>.", "")
