"""Runs a step: from its roots along the calls that are alive, each function as the scenario leaves it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sgltrace.coupling.offstep.domain import Val, join
from sgltrace.coupling.offstep.interpret import Env, Interpreter, Reading, Strike
from sgltrace.coupling.offstep.lookup import Lookup, bind, takes_self
from sgltrace.coupling.offstep.scenario import Scenario
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo

PROBED = 3
"""Through so many calls None is followed."""
AGAIN = 3
"""A function whose callers differ is read so many times before its parameters count as unknown."""


class Run:
    """The functions that a step reaches, as it runs them."""

    def __init__(self, lookup: Lookup, roots: Iterable[FunctionInfo], loose: bool = False) -> None:
        """``loose``: what the roots' parameters are is not known, not even where they have defaults."""
        self.lookup = lookup
        self.scenario: Scenario = lookup.scenario
        self.readings: dict[FunctionInfo, Reading] = {}
        self.stopped: set[FunctionInfo] = set()
        """Functions at which the step was cut."""
        self.order: dict[FunctionInfo, int] = {}
        self._params: dict[FunctionInfo, Env] = {}
        self._count: dict[FunctionInfo, int] = {}
        self._pending: deque[FunctionInfo] = deque()
        self._probed: dict[tuple[FunctionInfo, frozenset[str]], None] = {}
        self._met: list[Strike] = []
        for root in roots:
            self._enter(root, {} if loose else bind(root, [], None, takes_self(root)))
        while self._pending:
            self._read(self._pending.popleft())

    def _enter(self, function: FunctionInfo, params: Env) -> None:
        scenario = self.scenario
        if function in scenario.stops:
            self.stopped.add(function)
            for instead in scenario.stops[function]:
                self._enter(instead, bind(instead, [], None, takes_self(instead)))
            return
        if function in scenario.avoid or (scenario.within and function not in scenario.within):
            return
        known = self._params.get(function)
        if known is None:
            self._params[function] = params
            self.order[function] = len(self.order)
            self._pending.append(function)
            return
        merged: Env = {name: join(value, params.get(name)) for name, value in known.items() if value is not None}
        if any(merged.get(name) != value for name, value in known.items() if value is not None):
            self._count[function] = self._count.get(function, 0) + 1
            self._params[function] = {} if self._count[function] >= AGAIN else merged
            self._pending.append(function)

    def _read(self, function: FunctionInfo) -> None:
        reading = Interpreter(self.lookup, function, self._params[function]).run()
        self.readings[function] = reading
        given: dict[FunctionInfo, list[Env]] = {}
        for call, args in reading.calls:
            for callee, _ in self.lookup.sites.called(call, function):
                given.setdefault(callee, []).append(bind(callee, args, None, takes_self(callee)))
        for callee, envs in given.items():
            for params in envs:
                self._probe(callee, params, 0)
        for callee, _, places in self.lookup.sites.out.get(function, ()):
            if places and not any(id(p) in reading.seen or id(p) in reading.alive for p in places):
                continue
            for params in given.get(callee, [{}]):
                self._enter(callee, params)

    def _probe(self, function: FunctionInfo, params: Env, depth: int) -> None:
        """Follow None into a function that other callers give something else: it strikes there for this caller."""
        scenario = self.scenario
        lost = frozenset(name for name, v in params.items() if v is not None and v.is_none and v.why)
        if not lost or depth > PROBED or (function, lost) in self._probed:
            return
        if function in scenario.stops or function in scenario.avoid or function not in scenario.reachable:
            return
        self._probed[function, lost] = None
        reading = Interpreter(self.lookup, function, params).run()
        self._met += reading.strikes
        for call, args in reading.calls:
            for callee, _ in self.lookup.sites.called(call, function):
                self._probe(callee, bind(callee, args, None, takes_self(callee)), depth + 1)

    # --- questions ---

    def __contains__(self, function: FunctionInfo) -> bool:
        return function in self.readings

    def runs(self, access: Access) -> bool:
        """Whether an access happens in the step."""
        reading = self.readings.get(access.function)
        if reading is None:
            return False
        if access.statement is not None and id(access.statement) not in reading.alive:
            return False
        return _is_target(access) or id(access.node) in reading.seen

    def fails_before(self, access: Access) -> bool:
        """Whether the step strikes before it comes to an access."""
        reading = self.readings.get(access.function)
        return reading is not None and access.statement is not None and self._at(reading, access)[0]

    def always(self, access: Access) -> bool:
        """Whether an access happens whenever its function runs: no condition around it is left open."""
        reading = self.readings.get(access.function)
        return reading is not None and access.statement is not None and self._at(reading, access)[1]

    @staticmethod
    def _at(reading: Reading, access: Access) -> tuple[bool, bool]:
        return reading.alive.get(id(access.statement), (False, False))

    @property
    def strikes(self) -> list[Strike]:
        """Everything that the step strikes, in the order of function and line."""
        found = {
            (x.function.id, x.line, x.exception, id(x.expression)): x
            for strikes in (self._met, *(r.strikes for r in self.readings.values()))
            for x in strikes
        }
        return sorted(found.values(), key=lambda x: (x.function.id, x.line, x.exception))

    def value(self, function: FunctionInfo, node: object) -> Val | None:
        """What an expression of a function is in the step."""
        reading = self.readings.get(function)
        return None if reading is None else reading.values.get(id(node))


def _is_target(access: Access) -> bool:
    """Whether the node is what a statement assigns to: no expression that is evaluated."""
    return access.kind in ("assign", "augment", "delete", "copy", "default", "in-place", "kernel")
