"""What an off step strikes, in the order of a turn of the scheduler's loop."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.scene import Scene, shown
from sgltrace.coupling.offstep.interpret import Strike
from sgltrace.coupling.offstep.order import Order
from sgltrace.coupling.offstep.questions import Questions
from sgltrace.coupling.offstep.run import Run
from sgltrace.coupling.offstep.steps import Step
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.index.resolution.values import Instance
from sgltrace.model import Met

STAGES = ("schedule", "worker", "launch", "result")
LATE = "v2"
"""The path whose scheduler processes a result one step later."""


def meets(scene: Scene) -> list[Met]:
    """The strikes of one path, each place once."""
    q = scene.questions
    stages = {step: _Stages(q, step) for step in (q.detached, q.attached)}
    found: dict[tuple[str, int, str], tuple[tuple[int, int, int], str, Strike, set[str]]] = {}
    for strike in _strikes(scene):
        for word, step in (("draft state gone", q.detached), ("draft state left", q.attached)):
            if not any(x.function is strike.function and x.line == strike.line for r in step.runs_ for x in r.strikes):
                continue
            stage, position = stages[step].of(strike)
            key = (strike.function.id, strike.line, strike.exception)
            entry = found.setdefault(key, ((STAGES.index(stage), position, strike.line), stage, strike, set()))
            entry[3].add(word)
    ordered = sorted(found.values(), key=lambda entry: (entry[0], entry[2].function.id))
    return [
        Met(
            path=scene.path,
            order=number,
            stage=stage,
            later=stage == "result" and scene.path == LATE,
            function=strike.function.id,
            line=strike.line,
            exception=strike.exception,
            expression=shown(strike.expression),
            where="" if len(words) > 1 else "".join(words),
        )
        for number, (_, stage, strike, words) in enumerate(ordered, 1)
    ]


def _strikes(scene: Scene) -> Iterator[Strike]:
    answers = scene.answers
    for unset in answers.unset:
        yield from unset.strikes
    for detached in answers.detached:
        yield from detached.strikes
    for refusal in answers.refusals:
        yield refusal.strike
    yield from answers.captured


class _Stages:
    """Where in a turn the functions of one step stand."""

    def __init__(self, q: Questions, step: Step) -> None:
        self._q, self._step = q, step
        run = step.scheduler
        self._scheduler = Order(q.steps.sites, step, run)
        self._worker = Order(q.steps.sites, step)
        takes = [f for f in run.readings if _takes(f, q)]
        self._result = self._below(run, [f for f in takes if any(c not in takes for c in self._callers(run, f))])
        self._launch = self._leading(run)
        self._after = self._below(
            run,
            [
                callee
                for caller, lines in self._launch.items()
                for call, _ in run.readings[caller].calls
                if call.line > min(lines)
                for callee, _ in q.steps.sites.called(call, caller)
                if callee in run
            ],
        )
        """What is called once the worker was, and what that calls."""

    def of(self, strike: Strike) -> tuple[str, int]:
        """The stage of a strike, and its position there."""
        function = strike.function
        if function in self._step.worker and function not in self._step.scheduler:
            return "worker", self._worker.at(function, strike.line)
        position = self._scheduler.at(function, strike.line)
        if function in self._result:
            return "result", position
        calls = self._launch.get(function)
        if calls is not None:
            return ("schedule" if strike.line < min(calls) else "launch"), position
        return ("launch" if function in self._after else "schedule"), position

    def _leading(self, run: Run) -> dict[FunctionInfo, list[int]]:
        """The functions that call a worker's step, with the lines of the calls; not those that only lead there."""
        out: dict[FunctionInfo, list[int]] = {}
        for stopped in run.stopped:
            for caller, call in self._q.steps.sites.callers.get(stopped, []):
                if caller in run and stopped in self._q.parts.all_entries:
                    out.setdefault(caller, []).append(call.line)
        return out

    def _callers(self, run: Run, function: FunctionInfo) -> list[FunctionInfo]:
        return [caller for caller, _ in self._q.steps.sites.callers.get(function, []) if caller in run]

    def _below(self, run: Run, roots: list[FunctionInfo]) -> set[FunctionInfo]:
        found, todo = set(roots), list(roots)
        while todo:
            for callee, _, _ in self._q.steps.sites.out.get(todo.pop(), ()):
                if callee in run and callee not in found:
                    found.add(callee)
                    todo.append(callee)
        return found


def _takes(function: FunctionInfo, q: Questions) -> bool:
    """Whether a function of the scheduler is handed a step's result beside the batch."""
    owner = function.owner
    scheduler = q.program.engine.classes.mro(q.parts.scheduler)
    if owner is None or owner not in scheduler:
        return False
    given = {
        value.cls
        for name, node in function.params.items()
        if name != "self"
        for value in node.values
        if isinstance(value, Instance)
    }
    return bool(given & set(q.parts.results)) and bool(given & set(q.parts.batches))
