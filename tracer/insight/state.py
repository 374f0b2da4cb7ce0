"""Questions about a step's state: who writes and reads a field, in step order, and what an off step must produce."""

from __future__ import annotations

import difflib
from collections import defaultdict
from typing import NamedTuple

from sgltrace.errors import UsageError
from sgltrace.model import Access, ContractField, Field, Index

_SHOWN = 10


class OrderedAccess(NamedTuple):
    """An access of a field, and whether it writes."""

    cls: str
    field: str
    writes: bool
    access: Access


def find_fields(index: Index, name: str) -> list[Field]:
    """The fields that ``NAME`` or ``Class.NAME`` means, in all classes that have one of that name.

    First those through which a coupling point crosses, then by the number of writes and reads. Raises
    UsageError with what comes nearest.
    """
    owner, _, field = name.rpartition(".")
    found = [f for f in index.fields if f.field == field and (not owner or _is_class(f.cls, owner))]
    if found:
        crossing = {name for point in index.coupling_points for name in point.fields}

        def relevance(f: Field) -> tuple[bool, int, str]:
            crosses = not crossing.isdisjoint({f"{f.cls}.{f.field}", f"{_short(f.cls)}.{f.field}"})
            return not crosses, -len(f.writes) - len(f.reads), f.cls

        return sorted(found, key=relevance)
    known = {f.field for f in index.fields} | {f"{_short(f.cls)}.{f.field}" for f in index.fields}
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(near)}?" if near else "the report's page of fields lists them"
    raise UsageError(f"there is no field {name!r} in the index; {hint}")


def in_step_order(index: Index, fields: list[Field], path: str | None = None) -> list[OrderedAccess]:
    """The accesses of fields as a step comes by them; those outside of steps first, by function and line."""
    order = step_order(index, path)
    accesses = [
        OrderedAccess(f.cls, f.field, writes, access)
        for f in fields
        for writes, group in ((True, f.writes), (False, f.reads))
        for access in group
        if path is None or path in access.paths
    ]
    return sorted(
        accesses, key=lambda a: (order.get(a.access.function, -1), a.access.function, a.access.line, not a.writes)
    )


def step_order(index: Index, path: str | None = None) -> dict[str, int]:
    """The functions that run in a step, in the order in which the event loops first come by them."""
    callees: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for edge in index.calls:
        line = min((site.line for site in edge.sites), default=0)
        callees[edge.caller].append((line, edge.callee))
    every = {f.id for f in index.functions if "every step" in f.phase and (path is None or path in f.paths)}
    order: dict[str, int] = {}
    pending = [loop for loop in reversed(index.event_loops) if loop in every]
    while pending:
        function = pending.pop()
        if function in order:
            continue
        order[function] = len(order)
        pending += [callee for _, callee in sorted(callees[function], reverse=True) if callee in every]
    return order


def contract_of(index: Index, path: str | None) -> list[ContractField]:
    """The fields that an off step must produce. Raises UsageError for a path that the release lacks."""
    check_path(index, path)
    return [row for row in index.contract if path in (None, row.path)]


def check_path(index: Index, path: str | None) -> None:
    """Raise UsageError for a path that the index lacks."""
    if path is not None and index.entry_points.get(path) is None:
        release = f"{index.source.name} {index.source.version or 'of unknown version'}"
        if path in index.unknown_paths:
            raise UsageError(f"whether {release} has a path {path} is unknown: {index.unknown_paths[path]}")
        there = [name for name, entry in sorted(index.entry_points.items()) if entry is not None]
        known = f"it has {', '.join(there)}" if there else "it has none"
        raise UsageError(f"{release} has no path {path}; {known}")


def _is_class(cls: str, wanted: str) -> bool:
    return wanted in (cls, _short(cls))


def _short(cls: str) -> str:
    return cls.rpartition(":")[2]
