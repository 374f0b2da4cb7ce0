"""In which order a step comes to its places: a walk along its calls, each function once."""

from __future__ import annotations

from sgltrace.coupling.offstep.lookup import Sites
from sgltrace.coupling.offstep.run import Run
from sgltrace.coupling.offstep.steps import Step
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo

NEVER = 1 << 60
"""The position of what a step does not come to."""


class Order:
    """Positions in the worker's half of a step, or in another run."""

    def __init__(self, sites: Sites, step: Step, run: Run | None = None) -> None:
        self._sites = sites
        self._at: dict[FunctionInfo, list[tuple[int, int]]] = {}
        self._next = 0
        run = step.worker if run is None else run
        for function in sorted(run.order, key=run.order.__getitem__)[:1]:
            self._visit(run, function)

    def _visit(self, run: Run, root: FunctionInfo) -> None:
        """Depth first, without recursion: a step's calls are nested deeply."""
        stack: list[tuple[FunctionInfo, list[tuple[int, FunctionInfo]]]] = []
        self._enter(run, root, stack)
        while stack:
            function, todo = stack[-1]
            if not todo:
                stack.pop()
                if stack:  # what follows the call comes after what it ran
                    caller = stack[-1][0]
                    self._mark(caller, self._at[caller][-1][0])
                continue
            line, callee = todo.pop()
            self._mark(function, line)
            if callee not in self._at and callee in run:
                self._enter(run, callee, stack)

    def _mark(self, function: FunctionInfo, line: int) -> None:
        self._next += 1
        self._at[function].append((line, self._next))

    def _enter(
        self, run: Run, function: FunctionInfo, stack: list[tuple[FunctionInfo, list[tuple[int, FunctionInfo]]]]
    ) -> None:
        self._at[function] = []
        self._mark(function, function.line)
        calls = [
            (call.line, callee)
            for call, _ in run.readings[function].calls
            for callee, _ in self._sites.called(call, function)
        ]
        stack.append((function, list(reversed(calls))))

    def of(self, access: Access) -> int:
        """The position of an access; the last of all where the walk did not come to its function."""
        return self.at(access.function, access.line)

    def at(self, function: FunctionInfo, line: int) -> int:
        """The position of a line of a function."""
        events = self._at.get(function)
        if events is None:
            return NEVER
        before = [position for at, position in events if at <= line]
        return max(before, default=events[0][1])
