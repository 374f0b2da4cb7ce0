"""Which code a step runs, with speculation and without: reachability under the regimes of call sites.

An edge whose every call site lies under a condition that selects speculation is not followed in a plain step, and
the other way round. What only a speculative step reaches is speculation's own code; the rest is shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sgltrace.coupling.facts import Facts
from sgltrace.coupling.regime import PLAIN, SPEC


@dataclass(frozen=True, slots=True)
class Edge:
    """``caller`` may run ``callee`` at ``lines``."""

    caller: str
    callee: str
    lines: tuple[int, ...]


@dataclass
class Graph:
    """Call edges with the regimes and the paths of their sites."""

    out: dict[str, list[tuple[str, frozenset[str | None], frozenset[str | None]]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def reach(
        self,
        roots: Iterable[str],
        regime: str,
        path: str | None = None,
        stop: frozenset[str] = frozenset(),
        avoid: frozenset[str] = frozenset(),
    ) -> set[str]:
        """What a step of a regime (and path) runs from ``roots``.

        ``stop`` is reached but not entered; ``avoid`` is not reached.
        """
        other = PLAIN if regime == SPEC else SPEC
        seen = set(roots)
        todo = list(seen)
        while todo:
            caller = todo.pop()
            if caller in stop:
                continue
            for callee, regimes, paths in self.out.get(caller, ()):
                if callee in seen or callee in avoid or regimes == {other}:
                    continue
                if path is not None and None not in paths and path not in paths:
                    continue
                seen.add(callee)
                todo.append(callee)
        return seen


def graph(edges: Iterable[Edge], facts: Mapping[str, Facts]) -> Graph:
    """Join the call edges with what was found at their lines."""
    at: dict[tuple[str, int], list[tuple[str | None, str | None, str]]] = defaultdict(list)
    for function, found in facts.items():
        for call in found.calls:
            at[function, call.line].append((call.regime, call.path, call.name))
    made = Graph()
    for edge in edges:
        name = edge.callee.rpartition(".")[2].rpartition(":")[2]
        regimes: set[str | None] = set()
        paths: set[str | None] = set()
        for line in edge.lines:
            found_here = at.get((edge.caller, line), [])
            named = [c for c in found_here if c[2] == name] or found_here
            if not named:
                regimes.add(None)
                paths.add(None)
            for regime, path, _ in named:
                regimes.add(regime)
                paths.add(path)
        made.out[edge.caller].append((edge.callee, frozenset(regimes or {None}), frozenset(paths or {None})))
    return made
