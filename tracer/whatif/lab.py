"""Where rungs are run: side by side, each in a process of its own; what came of them is kept in a folder, so that an
experiment whose time was over goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgltrace.model import Index
from sgltrace.whatif import bridges as b
from sgltrace.whatif.judge import GAP, Places, compare, judge, score
from sgltrace.whatif.rung import Outcome, Running, Strike, kept

Case = tuple[tuple[str, ...], str]
"""A run: the ids of its bridges, and its pattern."""
TICK_S = 0.1
LEAST_S = 15.0
"""With less time left nothing more is started."""


class Options(msgspec.Struct, kw_only=True):
    """What an experiment was asked."""

    command: list[str]
    path: str
    design: str
    pattern: str
    patterns: list[str]
    jobs: int
    budget_s: float
    rung_s: float
    folder: Path
    ablate: bool = True
    passes: int = 1
    """How often the command makes its requests where the environment asks for it."""


NEEDED = {
    "target": "no other worker was asked for a forward pass",
    "state": "no batch carried a draft's state",
    "tokens": "the contract names no field of the result that holds the tokens of a step",
    "stride": "nothing that the target was given is what the draft's state holds",
    "lengths": "the target's slots are not those of the request table at the batch's lengths",
}
"""What watching has to tell, and what it means where it does not."""


class CannotRun(Exception):
    """Why there is no experiment with this server."""


class Lab:
    """Runs cases, and judges them by a plain server and by one that takes no step off."""

    def __init__(self, index: Index, options: Options, say: Callable[[str], None]) -> None:
        self.index, self.options, self.say = index, options, say
        self.began = time.monotonic()
        self.places = Places(index)
        made = b.program(index, options.path, options.design)
        if isinstance(made, str):
            raise CannotRun(made)
        self.program = made
        self.learned: dict[str, Any] = {}
        self.watched: Outcome | None = None
        self.plain: Outcome | None = None
        self.outcomes: dict[Case, Outcome] = {}
        self.scores: dict[str, list[float]] = {}
        """Gaps of the tokens of a run, by its name."""
        self.running: list[Running] = []
        self._number = 0
        options.folder.mkdir(parents=True, exist_ok=True)
        for folder in sorted(options.folder.iterdir()):
            self._number = max(self._number, int(folder.name.partition("-")[0]))
            self._take(folder)
        self.earlier = frozenset(self.outcomes)
        """Cases of an earlier sitting."""

    @property
    def left(self) -> float:
        """Seconds of the budget."""
        return self.options.budget_s - (time.monotonic() - self.began)

    @property
    def accepted(self) -> float | None:
        """Tokens that a request gets in a step, where none is off."""
        return None if self.watched is None else self.watched.accept.get("on")

    @property
    def noise(self) -> float:
        """The worst gap of a server that takes no step off."""
        return max(self.scores.get(self.watched.name, [0.0]) or [0.0]) if self.watched else 0.0

    # --- running ---

    def _start(self, name: str, mode: str, **more: Any) -> Running:
        self._number += 1
        made = self.program
        plan = {
            "mode": mode, "parts": msgspec.to_builtins(made.parts), "rows": made.rows, "loops": made.loops,
            "writers": made.writers, "learned": self.learned, "passes": max(1, len(more.get("score", ()))), **more,
        }  # fmt: skip
        limit, left = self.options.rung_s, max(1.0, self.left)
        folder = self.options.folder / f"{self._number:03}-{name}"
        return Running(folder, plan, self.options.command, min(limit, left), whole=limit <= left)

    def _take(self, folder: Path) -> None:
        """Take in what a process left, now or in an earlier sitting."""
        found = kept(folder)
        if found is None:
            return
        plan, outcome = found
        if plan["mode"] == "watch":
            self.watched = outcome
        elif plan["mode"] == "off":
            self.outcomes[tuple(sorted(outcome.bridges)), outcome.pattern] = outcome
        elif "scores" in plan:
            for number, name in enumerate(plan["scores"]):
                if outcome.strike is None:
                    self.scores[name] = outcome.gaps.get(number, [])
        else:
            self.plain = outcome

    def _finish(self) -> None:
        """Wait for everything that runs."""
        while self.running:
            self.reap()
            time.sleep(TICK_S)

    def reap(self) -> bool:
        """Take in what has ended since the last look; whether anything has."""
        ended = [rung for rung in self.running if rung.ended()]
        for rung in ended:
            self.running.remove(rung)
            self._take(rung.folder)
        return bool(ended)

    def close(self) -> None:
        """End whatever still runs."""
        for rung in self.running:
            rung.stop()
        self.running = []

    def watch(self) -> None:
        """Watch a server that takes no step off, and build the bridges. Raises CannotRun."""
        if self.watched is None:
            self.say("watching steps with speculation")
            self.running.append(self._start("watch", "watch", pattern="never"))
            self._finish()
        watched = self.watched
        if watched is None or watched.strike is not None:
            why = "it was ended" if watched is None or watched.strike is None else watched.strike.message
            raise CannotRun(f"the command itself fails with the probe in it: {why}")
        if not watched.learned:
            entry = self.program.parts.entry
            raise CannotRun(f"no step of {entry} was seen: is this a server of path {self.program.path}?")
        self.learned = watched.learned
        lacking = [why for fact, why in NEEDED.items() if not self.learned.get(fact)]
        if lacking:
            told = "; ".join([*lacking, *watched.problems[:2]])
            raise CannotRun(f"an off step of {self.program.path} cannot be put together: {told}")
        b.build(self.index, self.program, self.learned)
        self.say(f"{len(self.program.bridges)} bridges built, {len(self.program.not_built)} rows without one")

    def fill(self, wanted: Sequence[Case], waiting: Case | None) -> None:
        """Start what is not known of these cases, the first ones first, as long as there is room and time. Tokens are
        scored by a plain server beside them, of many runs at once: once the run that the ladder is ``waiting`` for is
        among them, or nothing else is left to start."""
        self._check()
        if self.left < LEAST_S:
            return
        by_id = {x.id: x for x in self.program.bridges}
        if self.plain is None and not any(r.name.endswith("-plain") for r in self.running):
            self.running.append(self._start("plain", "plain"))
        under_way = {r.case for r in self.running}
        todo = [case for case in dict.fromkeys(wanted) if case not in self.outcomes and case not in under_way]
        self._score(waiting, nothing_else=not todo)
        for case in todo:
            if len(self.running) >= self.options.jobs:
                return
            bridges = [msgspec.to_builtins(x) for x in by_id.values() if x.id in case[0]]
            rung = self._start(f"off-{len(case[0])}", "off", bridges=bridges, pattern=case[1])
            rung.case = case
            self.running.append(rung)

    def _score(self, waiting: Case | None, nothing_else: bool) -> None:
        scoring = {name for r in self.running for name in r.plan.get("scores", ())}
        todo = [o for o in self.unscored() if o.name not in scoring]
        held_up = waiting is not None and self.outcomes.get(waiting) in todo
        alone = nothing_else and not any(r.case is not None for r in self.running)
        if not todo or self.plain is None or not (held_up or alone or len(todo) >= self.options.passes):
            return
        part = todo[: self.options.passes]
        lists = [compare(o, self.plain.requests) for o in part]
        self.running.append(self._start("score", "plain", score=lists, scores=[o.name for o in part]))

    def _check(self) -> None:
        if self.plain is not None and self.plain.strike is not None:
            raise CannotRun(f"the same command without speculation fails: {self.plain.strike.message}")
        if any(gap > GAP for gap in self.scores.get(self.watched.name if self.watched else "", ())):
            raise CannotRun("a server that takes no step off is not like a plain one: nothing could be judged by it")

    # --- judging ---

    def unscored(self) -> list[Outcome]:
        """Runs whose tokens are not a plain server's, and are not scored yet."""
        if self.plain is None:
            return []
        done = [o for o in (self.watched, *self.outcomes.values()) if o is not None and o.strike is None]
        return [o for o in done if o.name not in self.scores and compare(o, self.plain.requests)]

    def known(self, case: Case) -> bool:
        """Whether a case has been run, and its tokens looked at."""
        outcome = self.outcomes.get(case)
        if outcome is None or self.plain is None:
            return False
        return outcome.strike is not None or outcome not in self.unscored()

    def strike(self, case: Case) -> Strike | None:
        """What struck in a known case."""
        outcome = self.outcomes[case]
        assert self.plain is not None
        score(outcome, self.scores.get(outcome.name, []), self.noise)
        return judge(outcome, len(self.plain.requests), self.accepted)
