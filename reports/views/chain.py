"""A path's step as an ordered chain of calls: from the event loop through the worker and back, with the conditions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from markupsafe import Markup

from sgltrace.model import CallEdge, CallSite
from sgltrace.reports.context import Context
from sgltrace.reports.graph import STEP
from sgltrace.reports.views.common import FunctionLink, GuardText, function_link, guard_texts

DEEPEST = 14
MOST = 1200
"""Calls that are written out on one page; beyond it callees stay on their function's page, and are counted."""


@dataclass
class Call:
    """A call in the order of the source, with the calls below it that matter."""

    function: FunctionLink
    line: int
    site: Markup | None
    """Link to the calling line."""
    guards: list[GuardText]
    virtual: bool
    written: bool = False
    """Whether its own calls are written out here."""
    repeated: bool = False
    """Its calls are written out further up."""
    anchor: str = ""
    entry: bool = False
    """Whether it is the path's worker."""
    points: int = 0
    """Coupling points that have an end in it."""
    open: bool = False
    """Whether the way to the worker leads through it, or it is the worker."""
    calls: list[Call] = field(default_factory=list)
    inside: list[Call | Group] = field(default_factory=list)
    """The same calls, those that follow each other under one condition together."""
    shown: list[GuardText] = field(default_factory=list)
    """Of its conditions those that no group around it says."""
    group: bool = False
    overrides: list[FunctionLink] = field(default_factory=list)
    """Of a virtual call: what else may run in its place."""
    others: list[FunctionLink] = field(default_factory=list)
    """Functions called besides, which lead to no coupling point, tensor or worker."""
    left_out: int = 0


@dataclass(frozen=True)
class Group:
    """Calls that follow each other under the same conditions, which are said once."""

    conditions: list[GuardText]
    inside: list[Call | Group]
    group: bool = True


@dataclass(frozen=True)
class Chain:
    """The chain of one path."""

    path: str
    entry: FunctionLink
    roots: list[Call]
    """The plain event loop; empty where the index knows none."""
    others: list[FunctionLink]
    """Event loops of other setups, which lead to the same worker."""
    count: int


def chain(context: Context, path: str) -> Chain:
    """The chain of a path that the release has."""
    builder = _Builder(context, path)
    loops = context.graph.loops(path)
    roots = [builder.root(loop) for loop in loops[:1]]
    entry = context.index.entry_points[path]
    assert entry is not None
    others = [function_link(context, loop) for loop in loops[1:]]
    return Chain(path, function_link(context, entry), roots, others, builder.count)


class _Builder:
    """Depth first over the functions of the path that run every step; each is written out once."""

    def __init__(self, context: Context, path: str) -> None:
        self.context = context
        self.count = 0
        self.entry = context.index.entry_points.get(path)
        self.step = {
            function.id for function in context.graph.on_path(path) if STEP in function.phase or not function.phase
        }
        self.points: dict[str, int] = {}
        for point in context.index.coupling_points:
            for name in {place.function for place in (*point.producers, *point.consumers)}:
                self.points[name] = self.points.get(name, 0) + 1
        self.kept = self._above(self._notable(path))
        self.kept |= self._below(context.graph.loops(path)[:1], 2) | self._below([self.entry or ""], 3)
        self.anchors: dict[str, str] = {}
        self.leaves: set[str] = set()

    def _notable(self, path: str) -> set[str]:
        """The path's worker, and what stands at an end of a coupling point that is hard on the path."""
        hard = (point for point in self.context.index.coupling_points if point.severity.get(path) == "hard")
        found = {place.function for point in hard for place in (*point.producers, *point.consumers)}
        return found | ({self.entry} if self.entry else set())

    def _above(self, notable: set[str]) -> set[str]:
        """The functions of the step from which a notable one is reached."""
        kept = notable & self.step
        queue = deque(sorted(kept))
        while queue:
            for edge in self.context.graph.callers.get(queue.popleft(), []):
                if edge.caller in self.step and edge.caller not in kept:
                    kept.add(edge.caller)
                    queue.append(edge.caller)
        return kept

    def _below(self, roots: list[str], depth: int) -> set[str]:
        """The functions of the step at most ``depth`` calls below the roots that call something themselves."""
        found = set(roots) & self.step
        ring = found
        for _ in range(depth):
            edges = (edge for name in ring for edge in self.context.graph.calls.get(name, []))
            ring = {edge.callee for edge in edges if edge.callee in self.step and not edge.virtual} - found
            ring = {name for name in ring if self.context.graph.calls.get(name)}
            found = found | ring
        return found

    def root(self, loop: str) -> Call:
        made = Call(function_link(self.context, loop), 0, None, [], False, points=self.points.get(loop, 0))
        self._expand(made, loop, 0)
        return made

    def _expand(self, call: Call, identifier: str, depth: int) -> None:
        self.anchors[identifier] = call.anchor = f"c{len(self.anchors)}"
        call.written = True
        sites = [
            (site.line, edge.virtual, edge.callee, site, edge)
            for edge in self.context.graph.calls.get(identifier, [])
            if edge.callee in self.step
            for site in edge.sites
        ]
        others: dict[str, None] = {}
        inner: list[tuple[Call, str]] = []
        virtual: dict[tuple[int, str], Call] = {}
        for line, _, callee, site, edge in sorted(sites, key=self._first):
            method = (line, callee.rpartition(".")[2])
            if edge.virtual and method in virtual:
                virtual[method].overrides.append(function_link(self.context, callee))
            elif callee not in self.kept:
                others[callee] = None
            elif depth >= DEEPEST or self.count >= MOST:
                call.left_out += 1
            else:
                made = self._call(edge, line, guard_texts(site.guards))
                inner.append((made, callee))
                if edge.virtual:
                    virtual[method] = made
        for made, callee in inner:
            call.calls.append(made)
            if callee in self.anchors:
                made.repeated, made.anchor = callee not in self.leaves, self.anchors[callee]
            else:
                self._expand(made, callee, depth + 1)
        call.open = call.entry or any(made.open for made in call.calls)
        call.inside = _grouped([(made, made.guards) for made in call.calls])
        call.others = [function_link(self.context, name) for name in others]
        if not call.calls and not call.others:
            self.leaves.add(identifier)

    def _first(self, item: tuple[int, bool, str, CallSite, CallEdge]) -> tuple[int, bool, bool, str]:
        """By line; of the overrides that a line may call, the worker first, and then the plainest name."""
        line, _, callee, _, edge = item
        return (line, edge.virtual and callee != self.entry, callee not in self.kept, callee)

    def _call(self, edge: CallEdge, line: int, guards: list[GuardText]) -> Call:
        self.count += 1
        return Call(
            function_link(self.context, edge.callee),
            line,
            self.context.links.line(edge.caller, line),
            guards,
            edge.virtual,
            entry=edge.callee == self.entry,
            points=self.points.get(edge.callee, 0),
        )


def _grouped(calls: list[tuple[Call, list[GuardText]]]) -> list[Call | Group]:
    """Each call with those of its conditions that are still to be said."""
    found: list[Call | Group] = []
    at = 0
    while at < len(calls):
        call, guards = calls[at]
        end = at + 1
        while guards and end < len(calls) and calls[end][1][:1] == guards[:1]:
            end += 1
        if end - at > 1:
            run = calls[at:end]
            same = next(
                (n for n, alike in enumerate(zip(*(g for _, g in run), strict=False)) if len(set(alike)) > 1), None
            )
            count = min(len(g) for _, g in run) if same is None else same
            found.append(Group(guards[:count], _grouped([(made, rest[count:]) for made, rest in run])))
        else:
            call.shown = guards
            found.append(call)
        at = end
    return found
