"""When each function runs, and on which path: read off the call graph.

Reachability is asked for one path at a time. On a path, of the speculative workers only its own is made; a method is
reached only where its class (or one that inherits it) is made on the path; a call behind a condition that the path is
known to fail is not taken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from sgltrace.index.program.conditions import Conditions
from sgltrace.index.program.program import Program
from sgltrace.index.program.roles import Cast
from sgltrace.index.program.vocabulary import Roles, matches
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.uses import Use
from sgltrace.model import PATHS, PHASES

START, CAPTURE, ADMISSION, STEP = PHASES
_FREE = {"class_method", "static_method", "unbound_method"}
"""Calls of methods that need no object of the class."""


class Phases:
    """The functions that run in each phase of each path: ``of[path][phase]``; path ``any`` takes every call."""

    def __init__(self, program: Program, roles: Roles, cast: Cast) -> None:
        calls = _Calls(program)
        self.of: dict[str, dict[str, frozenset[FunctionInfo]]] = {}
        for path in ("any", *PATHS):
            worker = cast.worker_of(path)
            if path != "any" and worker is None:
                continue
            others = [c for c in cast.worker_classes.values() if worker is not None and c is not worker]
            view = _View(calls, frozenset(others), Conditions(program, roles.known.get(path, {})))
            self.of[path] = _phases(view, roles, cast)

    def phases(self, function: FunctionInfo) -> list[str]:
        """The phases in which a function runs, in their order."""
        return [phase for phase in PHASES if function in self.of["any"][phase]]

    def paths(self, function: FunctionInfo) -> list[str]:
        """The paths on which a function runs, in whatever phase."""
        return [p for p in PATHS if p in self.of and any(function in reached for reached in self.of[p].values())]

    def runs(self, function: FunctionInfo, path: str, phase: str) -> bool:
        """Whether a function runs in a phase of a path."""
        return path in self.of and function in self.of[path][phase]


class _Calls:
    """The call graph by caller."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.out: dict[FunctionInfo, list[tuple[FunctionInfo, str, list[Use]]]] = defaultdict(list)
        for (caller, callee, kind), uses in program.engine.edges.items():
            if kind != "decorated":  # the caller of a decorated function has an edge of its own
                self.out[caller].append((callee, kind, uses))
        self.constructed = program.engine.constructed
        self.at_start = [module.body for module in program.engine.modules.loaded.values()] + program.engine.assumed
        """What runs when a process starts, besides what its function calls: modules' own code, and arguments made."""
        self.classes = program.engine.classes


class _View:
    """The call graph as one path sees it."""

    def __init__(self, calls: _Calls, others: frozenset[ClassInfo], conditions: Conditions) -> None:
        self.calls = calls
        self.others = others
        self._conditions = conditions
        self.made: set[ClassInfo] = set()
        self.available: set[ClassInfo] = set()

    def reach(self, roots: Iterable[FunctionInfo], stop: frozenset[FunctionInfo]) -> set[FunctionInfo]:
        """What the roots reach without going through ``stop``; functions of ``stop`` that are met are in it."""
        seen: set[FunctionInfo] = set()
        waiting: dict[ClassInfo, list[FunctionInfo]] = defaultdict(list)
        todo = list(roots)
        while todo:
            function = todo.pop()
            if function in seen:
                continue
            seen.add(function)
            if function in stop:
                continue
            todo += self._make(function, waiting)
            for callee, kind, uses in self.calls.out.get(function, ()):
                if callee in seen or not self._alive(function, uses):
                    continue
                owner = callee.owner
                free = callee.kind != "method" or kind in _FREE
                if owner is None or free or self._is_available(owner):
                    todo.append(callee)
                else:
                    waiting[owner].append(callee)
        return seen

    def _make(self, function: FunctionInfo, waiting: dict[ClassInfo, list[FunctionInfo]]) -> list[FunctionInfo]:
        """Make the classes that a function constructs; the methods that waited for one of them."""
        woken: list[FunctionInfo] = []
        for cls, use in self.calls.constructed.get(function, ()):
            if cls in self.others or cls in self.made or not self._alive(function, (use,)):
                continue
            self.made.add(cls)
            for owner in self.calls.classes.mro(cls):
                if owner not in self.available:
                    self.available.add(owner)
                    woken += waiting.pop(owner, ())
        return woken

    def _is_available(self, owner: ClassInfo) -> bool:
        """Whether an object with the class's methods exists on the path, or may come from where nobody sees it."""
        if owner in self.available or owner.is_enum:
            return True
        if owner.instances.values:
            return False
        return not any(owner in self.calls.classes.mro(other) for other in self.others)

    def _alive(self, caller: FunctionInfo, uses: Iterable[Use]) -> bool:
        return self._conditions.may_take(caller, uses)


def _phases(view: _View, roles: Roles, cast: Cast) -> dict[str, frozenset[FunctionInfo]]:
    loops = frozenset(cast.event_loops)
    begin = [*cast.processes, *view.calls.at_start]
    everything = view.reach(begin, frozenset())
    capture = frozenset(f for f in everything if _captures(f, roles))
    admission = frozenset(f for f in everything if _admits(f, roles, view, cast))
    start = view.reach(begin, loops | capture)
    step = view.reach(start & loops, capture | admission) if start & loops else set()
    admitted = view.reach(step & admission, capture)
    captured = view.reach((start | step | admitted) & capture, loops)
    return {
        START: frozenset(start - loops - capture),
        CAPTURE: frozenset(captured - loops),
        ADMISSION: frozenset(admitted - capture),
        STEP: frozenset(step - capture - admission),
    }


def _captures(function: FunctionInfo, roles: Roles) -> bool:
    owner = function.owner
    return owner is not None and matches(function.name, roles.capture) and matches(owner.name, roles.capture_classes)


def _admits(function: FunctionInfo, roles: Roles, view: _View, cast: Cast) -> bool:
    return function.name in roles.admission and function.owner in view.calls.classes.mro(cast.scheduler)
