"""Questions about the call graph: which function is meant, who calls it, and how one reaches another."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any

import networkx as nx

from sgltrace.errors import UsageError
from sgltrace.model import CallEdge, Function, Index, Unresolved

_SHOWN = 10
"""How many candidates an error line lists."""


class CallGraph:
    """The call graph of an index, with the verbs that the command line and the report ask it."""

    def __init__(self, index: Index) -> None:
        self.functions: dict[str, Function] = {function.id: function for function in index.functions}
        self._index = index

    def find(self, name: str) -> str:
        """The id of the function that ``name`` means: a full id, or a tail of one that fits no other.

        Dots may stand for the colon. A tail that is a whole qualified name is taken before one that is part of one.
        Raises UsageError with the candidates, or with what comes nearest.
        """
        found = self.find_all(name)
        if len(found) > 1:
            raise UsageError(f"{name!r} may be any of {len(found)} functions: {_listed(found)}")
        return found[0]

    def find_all(self, name: str) -> list[str]:
        """All functions that ``name`` may mean, by id. Raises UsageError with what comes nearest where none does."""
        if name in self.functions:
            return [name]
        wanted = _dotted(name)
        fitting = [id for id in self.functions if f".{_dotted(id)}".endswith(f".{wanted}")]
        exact = [id for id in fitting if id.partition(":")[2] == name] or fitting
        if not exact:
            raise UsageError(f"there is no function {name!r} in the index; {self._nearest(wanted)}")
        return sorted(exact)

    def calls(self, function: str) -> list[CallEdge]:
        """The edges out of a function, by callee."""
        return self._out[function]

    def callers(self, function: str) -> list[CallEdge]:
        """The edges into a function, by caller."""
        return self._in[function]

    def unresolved(self, function: str) -> list[Unresolved]:
        """The calls of a function whose target is not known, by line."""
        return [call for call in self._index.unresolved if call.caller == function]

    def shortest_path(self, start: str, goal: str) -> list[CallEdge] | None:
        """The edges of a shortest call path, or None where there is none. Certain edges win among equals.

        A path that a decode step may take wins over a shorter one that none can (``decode`` of an edge is False).
        What a decorator's wrapper calls is whatever is decorated: a path begins in a wrapper, but leads through none.
        """
        for decode_only in (True, False):

            def weight(caller: str, callee: str, data: dict[str, Any], decode_only: bool = decode_only) -> float | None:
                edge: CallEdge = data["edge"]
                hidden = (edge.kind == "decorated" and caller != start) or (decode_only and not edge.decode)
                return None if hidden else _weight(edge)

            try:
                nodes = nx.dijkstra_path(self._graph, start, goal, weight=weight)
            except (nx.NetworkXNoPath, nx.NodeNotFound):
                continue
            return [self._graph.edges[pair]["edge"] for pair in pairwise(nodes)]
        return None

    @cached_property
    def _graph(self) -> nx.DiGraph[str]:
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(self.functions)
        for edge in self._index.calls:
            known = graph.get_edge_data(edge.caller, edge.callee)
            if known is None or _rank(edge) < _rank(known["edge"]):
                graph.add_edge(edge.caller, edge.callee, edge=edge)
        return graph

    @cached_property
    def _out(self) -> defaultdict[str, list[CallEdge]]:
        return _grouped((edge.caller, edge) for edge in self._index.calls)

    @cached_property
    def _in(self) -> defaultdict[str, list[CallEdge]]:
        return _grouped((edge.callee, edge) for edge in self._index.calls)

    def _nearest(self, wanted: str) -> str:
        members = sorted(id for id in self.functions if f".{wanted}." in f".{_dotted(id)}")
        if members:
            return f"inside {wanted} there is {_listed(members)}"
        tails: dict[str, list[str]] = {}
        for id in sorted(self.functions):
            parts = _dotted(id).split(".")
            tails.setdefault(".".join(parts[-wanted.count(".") - 1 :]), []).append(id)
        near = difflib.get_close_matches(wanted, tails, n=3, cutoff=0.6)
        if not near:
            return "`sgltrace index` lists the entry points to start from"
        return f"did you mean {_listed([id for tail in near for id in tails[tail]])}?"


def _weight(edge: CallEdge) -> float:
    doubt = (1.0 - edge.confidence) + (0.5 if edge.virtual else 0.0)
    return 1.0 + doubt / 1000  # decides among paths of one length, never between lengths


def _rank(edge: CallEdge) -> tuple[bool, bool, float]:
    """Of two edges between the same functions, the one that says more comes first."""
    return edge.kind == "decorated", not edge.decode, _weight(edge)


def _grouped(pairs: Iterable[tuple[str, CallEdge]]) -> defaultdict[str, list[CallEdge]]:
    groups: defaultdict[str, list[CallEdge]] = defaultdict(list)
    for key, edge in pairs:
        groups[key].append(edge)
    for edges in groups.values():
        edges.sort(key=lambda edge: (edge.caller, edge.callee, edge.kind))
    return groups


def _dotted(name: str) -> str:
    return name.replace(":", ".")


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
