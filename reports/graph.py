"""The index's call graph, asked in the report's words: who calls whom, how a step gets to a function."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

from sgltrace.model import CallEdge, Function, Guard, Index, Unresolved

STEP = "every step"


@dataclass(frozen=True)
class Hop:
    """One call on a route: ``caller`` calls ``callee`` at ``line`` under ``guards``."""

    caller: str
    callee: str
    line: int
    guards: list[Guard]
    virtual: bool


@dataclass(frozen=True)
class Route:
    """How a root (an event loop, or a process entry) gets to a function; empty ``hops`` where it is the root."""

    root: str
    hops: list[Hop]


class CallGraph:
    """Functions by id, and edges by either end, in the index's order."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.functions: dict[str, Function] = {function.id: function for function in index.functions}
        self.calls: dict[str, list[CallEdge]] = defaultdict(list)
        self.callers: dict[str, list[CallEdge]] = defaultdict(list)
        self.unresolved: dict[str, list[Unresolved]] = defaultdict(list)
        for edge in index.calls:
            self.calls[edge.caller].append(edge)
            self.callers[edge.callee].append(edge)
        for call in index.unresolved:
            self.unresolved[call.caller].append(call)
        self._trees: dict[str, dict[str, CallEdge | None]] = {}
        self._depths: dict[str, dict[str, int]] = {}

    def loops(self, path: str) -> list[str]:
        """The event loops of a path, the plain one first: the one of this path alone whose name says least besides."""
        known = [loop for loop in self.index.event_loops if loop in self.functions]
        marked = [loop for loop in known if path in self.functions[loop].paths] or known
        return sorted(marked, key=lambda loop: (len(self.functions[loop].paths), short(loop).count("_"), loop))

    def on_path(self, path: str) -> list[Function]:
        """The functions of a path, by id."""
        return [function for function in self.index.functions if path in function.paths]

    def route(self, path: str, target: str) -> Route | None:
        """The shortest way from the path's event loop to ``target``; None where there is none in the graph."""
        tree = self._tree(path)
        if target not in tree:
            return None
        hops: list[Hop] = []
        edge = tree[target]
        while edge is not None:
            site = edge.sites[0] if edge.sites else None
            line, guards = (site.line, site.guards) if site else (0, [])
            hops.append(Hop(edge.caller, edge.callee, line, guards, edge.virtual))
            edge = tree[edge.caller]
        hops.reverse()
        return Route(hops[0].caller if hops else target, hops)

    def reaches(self, path: str, target: str) -> bool:
        """Whether the path's event loops lead to ``target``."""
        return target in self._tree(path)

    def reached_from(self, path: str, target: str) -> str | None:
        """The caller on the shortest way to a function that is reached; None for an event loop."""
        edge = self._tree(path)[target]
        return None if edge is None else edge.caller

    def depth(self, path: str) -> dict[str, int]:
        """For each function that the path's event loops reach, the number of calls to it."""
        if path not in self._depths:
            depths: dict[str, int] = {}
            for target, edge in self._tree(path).items():
                depths[target] = 0 if edge is None else depths[edge.caller] + 1
            self._depths[path] = depths
        return self._depths[path]

    def _tree(self, path: str) -> dict[str, CallEdge | None]:
        """The shortest ways from the plain event loop, and for what it does not reach from the others."""
        if path not in self._trees:
            tree: dict[str, CallEdge | None] = {}
            for loop in self.loops(path):
                self._grow(tree, loop, path)
            self._trees[path] = tree
        return self._trees[path]

    def _grow(self, tree: dict[str, CallEdge | None], root: str, path: str) -> None:
        """Adds what a root reaches, breadth first over functions of the path, declared targets before overrides."""
        tree[root] = None
        queue = deque([root])
        while queue:
            edges = self.calls.get(queue.popleft(), [])
            for edge in sorted(edges, key=lambda edge: (edge.virtual, edge.sites[0].line if edge.sites else 0)):
                callee = self.functions.get(edge.callee)
                if callee is not None and path in callee.paths and edge.callee not in tree:
                    tree[edge.callee] = edge
                    queue.append(edge.callee)


def short(identifier: str) -> str:
    """``Class.method`` of ``module:Class.method``."""
    return identifier.partition(":")[2] or identifier


def module(identifier: str) -> str:
    """``module`` of ``module:Class.method``."""
    return identifier.partition(":")[0]
