"""The call graph as GraphML and for Graphviz."""

from __future__ import annotations

import io

import networkx as nx

from sgltrace.model import CallEdge, Index
from sgltrace.reports.text import visible


def graphml(index: Index) -> bytes:
    """Functions as nodes and call edges between them, with what the index says of each."""
    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    for function in index.functions:
        graph.add_node(
            visible(function.id),
            file=visible(function.file),
            line=function.line,
            end_line=function.end_line,
            component=visible(function.component),
            phases=", ".join(function.phase),
            paths=", ".join(function.paths),
        )
    known = {function.id for function in index.functions}
    for edge in _edges(index, known):
        graph.add_edge(
            visible(edge.caller),
            visible(edge.callee),
            kind=edge.kind,
            confidence=edge.confidence,
            virtual=edge.virtual,
            lines=", ".join(str(site.line) for site in edge.sites),
        )
    written = io.BytesIO()
    nx.write_graphml_xml(graph, written)
    return written.getvalue()


def dot(index: Index) -> bytes:
    """The functions on a path, in a cluster for each component; virtual calls are dashed."""
    drawn = [function for function in index.functions if function.paths]
    numbers = {function.id: f"f{number}" for number, function in enumerate(drawn)}
    clusters: dict[str, list[str]] = {}
    for function in drawn:
        name = function.id.partition(":")[2] or function.id
        line = f"    {numbers[function.id]} [label={_quoted(name)}, tooltip={_quoted(function.id)}];"
        clusters.setdefault(function.component or "other", []).append(line)
    lines = ["digraph calls {", "  rankdir=LR;", '  node [shape=box, fontname="monospace", fontsize=10];']
    for number, (component, inside) in enumerate(sorted(clusters.items())):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(component)};", *inside, "  }"]
    for edge in _edges(index, set(numbers)):
        style = " [style=dashed]" if edge.virtual else ""
        lines.append(f"  {numbers[edge.caller]} -> {numbers[edge.callee]}{style};")
    return "\n".join([*lines, "}", ""]).encode()


def _edges(index: Index, known: set[str]) -> list[CallEdge]:
    return [edge for edge in index.calls if edge.caller in known and edge.callee in known]


def _quoted(text: str) -> str:
    """A string of the DOT language. A backslash would begin one of its escapes."""
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
