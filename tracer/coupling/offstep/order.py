"""In which order a step comes to its places: a walk along its calls, each function once."""

from __future__ import annotations

from bisect import bisect_right

from sgltrace.coupling.offstep.lookup import Sites
from sgltrace.coupling.offstep.run import Run
from sgltrace.coupling.offstep.steps import Step
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo


class Order:
    """Positions in the worker's half of a step."""

    def __init__(self, sites: Sites, step: Step) -> None:
        self._sites = sites
        self._at: dict[FunctionInfo, list[tuple[int, int]]] = {}
        self._next = 0
        run = step.worker
        for function in sorted(run.order, key=run.order.__getitem__)[:1]:
            self._visit(run, function)

    def _visit(self, run: Run, root: FunctionInfo) -> None:
        """Depth first, without recursion: a step's calls are nested deeply."""
        stack: list[tuple[FunctionInfo, list[tuple[int, FunctionInfo | None]]]] = []
        self._enter(run, root, stack)
        while stack:
            function, todo = stack[-1]
            if not todo:
                stack.pop()
                continue
            line, callee = todo.pop()
            self._next += 1
            self._at[function].append((line, self._next))
            if callee is not None and callee not in self._at and callee in run:
                self._enter(run, callee, stack)

    def _enter(
        self,
        run: Run,
        function: FunctionInfo,
        stack: list[tuple[FunctionInfo, list[tuple[int, FunctionInfo | None]]]],
    ) -> None:
        self._next += 1
        self._at[function] = [(function.line, self._next)]
        calls = [
            (call.line, callee)
            for call, _ in run.readings[function].calls
            for callee, _ in self._sites.called(call, function)
        ]
        stack.append((function, list(reversed(calls))))

    def of(self, access: Access) -> int:
        """The position of an access; the last of all where the walk did not come to its function."""
        events = self._at.get(access.function)
        if events is None:
            return 1 << 60
        events = sorted(events)
        at = bisect_right(events, (access.line, 1 << 60)) - 1
        return events[max(at, 0)][1]
