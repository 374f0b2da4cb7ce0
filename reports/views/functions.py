"""The pages of functions, by module: where each stands, how a step gets there, its source, its callers and callees.

There are tens of thousands of links on them, and what the browser can tell is left to it: the text of a link to a
function is in its address, and ``<i>12</i>`` is a link to line 12 on the page of the function named before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jinja2
from markupsafe import Markup

from sgltrace.model import CallEdge, CallSite, Function, Guard
from sgltrace.reports.context import Context
from sgltrace.reports.graph import module, short
from sgltrace.reports.links import anchor
from sgltrace.reports.source import Excerpt
from sgltrace.reports.views.common import FunctionLink, GuardText, function_link, guard_texts

SHOWN_CALLERS = 2
"""Callers shown on the way to a function."""
ARROW = Markup(' <span class="arrow" aria-hidden="true">→</span> ')


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
class ShortWay:
    """How a step gets to the function, in short: the last callers on the way, and on which paths it is the same."""

    paths: list[str]
    before: int
    """Calls from the event loop to the first of ``links``."""
    links: Markup


@dataclass(slots=True)
class FunctionPart:
    """Everything on a function's page."""

    id: str
    name: str
    anchor: str
    fragment: Markup
    """The anchor as it stands in an address."""
    page: Markup
    """The module's page."""
    file: str
    line: int
    end_line: int
    phases: list[str]
    paths: list[str]
    editor: str | None
    forge: str | None
    ways: list[ShortWay]
    excerpt: Excerpt | None
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
    distance: int | None = None
    """Calls from an event loop to the nearest of its functions; None where none leads there."""
    functions: int = 0
    paths: set[str] = field(default_factory=set)


class ModulePages:
    """Makes the pages one at a time, and keeps the pieces that many of them show."""

    def __init__(self, context: Context, env: jinja2.Environment) -> None:
        self._context = context
        self._macros = env.get_template("macros.html").module
        self._links: dict[str, Markup] = {}
        self._conditions: dict[tuple[Guard, ...], Markup] = {}
        self._ran = {(caller, callee): count for run in context.runs for caller, callee, count in run.edges}
        self._points: dict[str, list[tuple[Markup, str, str]]] = {}
        for point in context.index.coupling_points:
            url = context.links.point(point.id) or Markup()
            fixes = {place.function for place in point.producers}
            relies = {place.function for place in point.consumers}
            for function in sorted(fixes | relies):
                told = " and ".join(
                    text for text, ends in (("fixes it", fixes), ("relies on it", relies)) if function in ends
                )
                self._points.setdefault(function, []).append((url, point.title, told))

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
            fragment=Markup((context.links.function(function.id) or "").rpartition("#")[2]),
            page=context.links.page(function.id) or Markup(),
            file=function.file,
            line=function.line,
            end_line=function.end_line,
            phases=function.phase,
            paths=function.paths,
            editor=context.editor.to(function.file, function.line),
            forge=context.links.forge(function.file, function.line),
            ways=self._ways(function.id),
            excerpt=context.reader.function(function.file, function.line, function.end_line),
            callers=_joined(
                [self._link(edge.caller) + self._lines(edge) for edge in graph.callers.get(function.id, [])]
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
            link = function_link(self._context, identifier)
            self._links[identifier] = (
                Markup(f'<a class="fn" href="{link.url}"></a>') if link.url else self._macros.function(link)  # type: ignore[attr-defined]
            )
        return self._links[identifier]

    def _edge(self, edge: CallEdge) -> Markup:
        """What is said of an edge on the caller's page: its marks, and its sites with their conditions."""
        ran = self._ran.get((edge.caller, edge.callee), 0)
        marked = edge.virtual or edge.confidence < 1 or ran
        marks = self._macros.marks(edge, ran) if marked else ""  # type: ignore[attr-defined]
        return Markup(marks) + Markup("").join(_line(site) + self._guards(site) for site in edge.sites)

    def _lines(self, edge: CallEdge) -> Markup:
        """What is said of it on the callee's page: the lines, where the conditions can be read."""
        return Markup("").join(map(_line, edge.sites))

    def _guards(self, site: CallSite) -> Markup:
        key = tuple(site.guards)
        if key not in self._conditions:
            self._conditions[key] = self._macros.guards(guard_texts(site.guards))  # type: ignore[attr-defined]
        return self._conditions[key]

    def _ways(self, target: str) -> list[ShortWay]:
        graph = self._context.graph
        ways: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        for path in self._context.paths:
            if graph.reaches(path, target):
                names = [target]
                while len(names) <= SHOWN_CALLERS and (caller := graph.reached_from(path, names[0])) is not None:
                    names.insert(0, caller)
                ways.setdefault((graph.depth(path)[names[0]], tuple(names)), []).append(path)
        return [
            ShortWay(paths, before, ARROW.join(self._link(name) for name in names))
            for (before, names), paths in ways.items()
        ]


def _joined(items: list[Markup]) -> Neighbours:
    return Neighbours(len(items), Markup("</li>\n<li>").join(items))


def _line(site: CallSite) -> Markup:
    return Markup(f"<i>{site.line}</i>")


def _first_line(edge: CallEdge) -> tuple[int, str]:
    return (edge.sites[0].line if edge.sites else 0, edge.callee)
