"""The page of a function: where it stands, how a step gets there, its source, its callers and callees."""

from __future__ import annotations

from dataclasses import dataclass

from sgltrace.model import CallEdge, Function
from sgltrace.reports.context import Context
from sgltrace.reports.graph import module, short
from sgltrace.reports.source import Excerpt
from sgltrace.reports.views.common import FunctionLink, GuardText, function_link, guard_texts


@dataclass(frozen=True)
class Site:
    """A line at which an edge is taken, and its conditions; ``url`` leads to the line in the caller's page."""

    line: int
    url: str | None
    guards: list[GuardText]


@dataclass(frozen=True)
class Neighbour:
    """A caller or callee."""

    function: FunctionLink
    kind: str
    virtual: bool
    confidence: float
    sites: list[Site]
    ran: int
    """How often the call was seen in the runs."""


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class FunctionPage:
    """Everything on a function's page."""

    id: str
    name: str
    module: str
    file: str
    line: int
    end_line: int
    phases: list[str]
    paths: list[str]
    component: str
    hue: int
    editor: str | None
    forge: str | None
    ways: list[Way]
    excerpt: Excerpt
    callers: list[Neighbour]
    callees: list[Neighbour]
    unresolved: list[UnresolvedCall]
    points: list[tuple[str, str, str]]
    """Coupling points with an end here: link, title, what this end is."""


class FunctionPages:
    """Makes the pages one at a time; holds what they share."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._links: dict[str, FunctionLink] = {}
        self._ran = {(caller, callee): count for run in context.runs for caller, callee, count in run.edges}
        self._points: dict[str, list[tuple[str, str, str]]] = {}
        for point in context.index.coupling_points:
            url = context.links.point(point.id) or ""
            ends = [(place.function, "fixes it") for place in point.producers]
            ends += [(place.function, "relies on it") for place in point.consumers]
            for function, end in dict.fromkeys(ends):
                self._points.setdefault(function, []).append((url, point.title, end))

    def page(self, function: Function) -> FunctionPage:
        """The page of one function."""
        context = self._context
        component = context.component(function.id)
        calls = sorted(context.graph.calls.get(function.id, []), key=_first_line)
        callers = context.graph.callers.get(function.id, [])
        return FunctionPage(
            id=function.id,
            name=short(function.id),
            module=module(function.id),
            file=function.file,
            line=function.line,
            end_line=function.end_line,
            phases=function.phase,
            paths=function.paths,
            component=component,
            hue=context.hues[component],
            editor=context.editor.to(function.file, function.line),
            forge=context.links.forge(function.file, function.line),
            ways=[way for path in context.paths if (way := self._way(path, function.id)) is not None],
            excerpt=context.reader.function(function.file, function.line, function.end_line),
            callers=[self._neighbour(edge, edge.caller, edge.caller) for edge in callers],
            callees=[self._neighbour(edge, edge.callee, edge.caller) for edge in calls],
            unresolved=[
                UnresolvedCall(call.line, call.expression, call.why)
                for call in context.graph.unresolved.get(function.id, [])
            ],
            points=self._points.get(function.id, []),
        )

    def _link(self, identifier: str) -> FunctionLink:
        if identifier not in self._links:
            self._links[identifier] = function_link(self._context, identifier)
        return self._links[identifier]

    def _neighbour(self, edge: CallEdge, shown: str, caller: str) -> Neighbour:
        page = self._link(caller).url
        return Neighbour(
            function=self._link(shown),
            kind=edge.kind,
            virtual=edge.virtual,
            confidence=edge.confidence,
            sites=[
                Site(site.line, f"{page}#L{site.line}" if page else None, guard_texts(site.guards))
                for site in edge.sites
            ],
            ran=self._ran.get((edge.caller, edge.callee), 0),
        )

    def _way(self, path: str, target: str) -> Way | None:
        route = self._context.graph.route(path, target)
        if route is None:
            return None
        steps = [Step(self._link(route.root), [])]
        steps += [Step(self._link(hop.callee), guard_texts(hop.guards)) for hop in route.hops]
        return Way(path, steps)


def _first_line(edge: CallEdge) -> tuple[int, str]:
    return (edge.sites[0].line if edge.sites else 0, edge.callee)
