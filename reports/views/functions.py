"""The pages of functions, by module: where each stands, how a step gets there, its source, its callers and callees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import jinja2
from markupsafe import Markup

from sgltrace.model import CallEdge, Function
from sgltrace.reports.context import Context
from sgltrace.reports.graph import module, short
from sgltrace.reports.links import anchor
from sgltrace.reports.source import Excerpt
from sgltrace.reports.views.common import FunctionLink, GuardText, function_link, guard_texts

ARROW = Markup(' <span class="arrow" aria-hidden="true">→</span> ')


@dataclass(slots=True)
class Site:
    """A line at which an edge is taken, and its conditions; ``url`` leads to the line in the caller's page."""

    line: int
    url: Markup | None
    guards: list[GuardText]


@dataclass(slots=True)
class Neighbours:
    """Callers or callees: each a link, the edge's marks, and its sites. Pieces are rendered once for all pages."""

    count: int
    items: Markup
    """What stands between the first ``<li>`` and the last ``</li>``."""


@dataclass(slots=True)
class UnresolvedCall:
    """A call in the function whose target is not known."""

    line: int
    expression: str
    why: str


@dataclass(frozen=True)
class Step:
    """One function on the way from the event loop."""

    function: FunctionLink
    guards: list[GuardText]


@dataclass(frozen=True)
class Way:
    """The way from a path's event loop to the function."""

    path: str
    steps: list[Step]


@dataclass(slots=True)
class FunctionPart:
    """Everything on a function's page."""

    id: str
    name: str
    anchor: str
    line: int
    end_line: int
    phases: list[str]
    paths: list[str]
    editor: str | None
    forge: str | None
    ways: list[tuple[str, Markup]]
    """Path, and the links from the event loop to here."""
    excerpt: Excerpt
    callers: Neighbours
    callees: Neighbours
    unresolved: list[UnresolvedCall]
    points: list[tuple[Markup, str, str]]
    """Coupling points with an end here: link, title, what this end is."""


@dataclass(frozen=True)
class ModulePage:
    """A module's functions, one part each."""

    file: str
    module: str
    source: str
    component: str
    hue: int
    parts: list[FunctionPart]


@dataclass
class ModuleLine:
    """A module in the list of all."""

    name: str
    file: str
    component: str
    functions: int = 0
    paths: set[str] = field(default_factory=set)


class ModulePages:
    """Makes the pages one at a time, and keeps the pieces that many of them show."""

    def __init__(self, context: Context, env: jinja2.Environment) -> None:
        self._context = context
        self._macros = env.get_template("macros.html").module
        self._links: dict[str, Markup] = {}
        self._edges: dict[tuple[str, str, str], Markup] = {}
        self._ways: dict[tuple[str, str], Markup | None] = {}
        self._ran = {(caller, callee): count for run in context.runs for caller, callee, count in run.edges}
        self._points: dict[str, list[tuple[Markup, str, str]]] = {}
        for point in context.index.coupling_points:
            url = context.links.point(point.id) or Markup()
            ends = [(place.function, "fixes it") for place in point.producers]
            ends += [(place.function, "relies on it") for place in point.consumers]
            for function, end in dict.fromkeys(ends):
                self._points.setdefault(function, []).append((url, point.title, end))

    def page(self, file: str) -> ModulePage:
        """The module page that is written to ``file``."""
        functions = self._context.modules[file]
        component = self._context.component(functions[0].id)
        return ModulePage(
            file=file,
            module=module(functions[0].id),
            source=functions[0].file,
            component=component,
            hue=self._context.hues[component],
            parts=[self._part(function) for function in functions],
        )

    def _part(self, function: Function) -> FunctionPart:
        context, graph = self._context, self._context.graph
        return FunctionPart(
            id=function.id,
            name=short(function.id),
            anchor=anchor(function.id),
            line=function.line,
            end_line=function.end_line,
            phases=function.phase,
            paths=function.paths,
            editor=context.editor.to(function.file, function.line),
            forge=context.links.forge(function.file, function.line),
            ways=[(path, way) for path in context.paths if (way := self._way(path, function.id)) is not None],
            excerpt=context.reader.function(function.file, function.line, function.end_line),
            callers=_joined(
                [self._link(edge.caller) + self._edge(edge) for edge in graph.callers.get(function.id, [])]
            ),
            callees=_joined(
                [
                    self._link(edge.callee) + self._edge(edge)
                    for edge in sorted(graph.calls.get(function.id, []), key=_first_line)
                ]
            ),
            unresolved=[
                UnresolvedCall(call.line, call.expression, call.why) for call in graph.unresolved.get(function.id, [])
            ],
            points=self._points.get(function.id, []),
        )

    def _link(self, identifier: str) -> Markup:
        if identifier not in self._links:
            self._links[identifier] = self._macros.function(function_link(self._context, identifier))  # type: ignore[attr-defined]
        return self._links[identifier]

    def _edge(self, edge: CallEdge) -> Markup:
        key = (edge.caller, edge.callee, edge.kind)
        if key not in self._edges:
            line = self._context.links.line
            sites = [Site(site.line, line(edge.caller, site.line), guard_texts(site.guards)) for site in edge.sites]
            self._edges[key] = self._macros.edge(edge, sites, self._ran.get(key[:2], 0))  # type: ignore[attr-defined]
        return self._edges[key]

    def _way(self, path: str, target: str) -> Markup | None:
        """The links to a function: those to its caller on the shortest way, and its own."""
        key = (path, target)
        if key not in self._ways:
            for step in self._down(path, target):
                caller = self._context.graph.reached_from(path, step)
                before = self._ways[(path, caller)] if caller else None
                self._ways[(path, step)] = (before + ARROW if before else Markup()) + self._link(step)
            self._ways.setdefault(key, None)
        return self._ways[key]

    def _down(self, path: str, target: str) -> Iterator[str]:
        """The functions on the way to ``target`` that have no links yet, the event loop's side first."""
        if not self._context.graph.reaches(path, target):
            return
        todo: list[str] = []
        at: str | None = target
        while at is not None and (path, at) not in self._ways:
            todo.append(at)
            at = self._context.graph.reached_from(path, at)
        yield from reversed(todo)


def _joined(items: list[Markup]) -> Neighbours:
    return Neighbours(len(items), Markup("</li>\n<li>").join(items))


def _first_line(edge: CallEdge) -> tuple[int, str]:
    return (edge.sites[0].line if edge.sites else 0, edge.callee)
