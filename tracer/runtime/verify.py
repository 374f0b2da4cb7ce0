"""Whether a recorded server was healthy: invariants held against every step, and the first step that breaks one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from .invariants import TESTS, Learned, View, captured_sizes, learn_draft_rows
from .probe import wire
from .show import step_text
from .step import DECODE, ON, Call, Step
from .steps import by_step, steps
from .trace import Trace

BEFORE = 3
"""Steps shown before the one that breaks an invariant."""


class Broken(msgspec.Struct, kw_only=True, frozen=True):
    """The first step at which an invariant does not hold."""

    step: int
    rank: str
    what: str
    before: list[str]
    """The steps up to it, oldest first, as `show` prints them."""


class Held(msgspec.Struct, kw_only=True):
    """One invariant: at how many steps it was checked, at how many it was broken, and where first."""

    name: str
    says: str
    checked: int = 0
    broken: int = 0
    first: Broken | None = None


class Verified(msgspec.Struct, kw_only=True):
    """All invariants of a trace."""

    steps: int
    invariants: list[Held]

    @property
    def healthy(self) -> bool:
        """Whether none was broken."""
        return not any(held.broken for held in self.invariants)


def verify(trace: Trace) -> Verified:
    """Hold every invariant against every step that was recorded. A step that did not finish is not held to any."""
    configs = {process.rank: process.info.config for process in trace.recording()}
    runners = {
        number: site.qualname.rpartition(".")[0]
        for number, site in enumerate(trace.plan.sites, 1)
        if site.role in ("replay", "prepare replay")
    }
    captured, draft_rows = _learn(trace)
    found = Verified(steps=0, invariants=[Held(name=test.__name__, says=_says(test.__doc__)) for test in TESTS])
    history: dict[str, deque[Step]] = {process.rank: deque(maxlen=BEFORE + 1) for process in trace.recording()}
    for together, following in _with_next(trace):
        for step in together:
            mine = history[step.rank]
            before = mine[-1] if mine and mine[-1].number == step.number - 1 else None
            two = mine[-2] if before is not None and len(mine) > 1 and mine[-2].number == step.number - 2 else None
            mine.append(step)
            if not step.complete:
                continue
            found.steps += 1
            view = View(
                step=step,
                before=before,
                two_before=two,
                after=next((s for s in following if s.rank == step.rank and s.number == step.number + 1), None),
                others=[other for other in together if other is not step and other.complete],
                config=configs[step.rank],
                captured=captured,
                runners=runners,
                draft_rows=draft_rows,
            )
            _check(trace, found, view, mine)
    return found


def _check(trace: Trace, found: Verified, view: View, history: deque[Step]) -> None:
    for test, held in zip(TESTS, found.invariants, strict=True):
        told = test(view)
        if told is None:
            continue
        held.checked += 1
        if told:
            held.broken += 1
            if held.first is None:
                texts = [step_text(step) for step in history]
                held.first = Broken(step=view.step.number, rank=view.step.rank, what=told, before=texts)


def _with_next(trace: Trace) -> Iterator[tuple[list[Step], list[Step]]]:
    """The steps of each number on all ranks, with those of the next one."""
    held: list[Step] | None = None
    for number, together in by_step(trace):
        if not number:
            continue
        ran = [step for step in together if step.ran]
        if held:
            yield held, ran
        held = ran
    if held:
        yield held, []


def _learn(trace: Trace) -> tuple[dict[str, frozenset[int]], frozenset[Learned]]:
    """What was captured, and which tensors of the draft's state have a row for each request."""
    entries = {
        number for number, site in enumerate(trace.plan.sites, 1) if site.role in ("worker step", "resolve future")
    }
    captures = {
        number: site.qualname.rpartition(".")[0]
        for number, site in enumerate(trace.plan.sites, 1)
        if site.role == "capture"
    }
    sizes: list[tuple[str, int]] = []
    counts: dict[Learned, list[int]] = {}
    for process in trace.recording():
        for step in steps(trace, process):
            for call in step.calls:
                if call.site in captures and call.phase == wire.CAPTURE:
                    sizes += [(captures[call.site], size) for size in _captured(call)]
                elif call.site in entries and DECODE in step.mode and step.speculation == ON:
                    _count_rows(counts, step, call)
    return captured_sizes(sizes), learn_draft_rows(counts)


def _captured(call: Call) -> Iterator[int]:
    values: dict[str, Any] = dict(call.before.values()) if call.before is not None else {}
    size = values.get("arg.bs")
    if isinstance(size, int) and not isinstance(size, bool):
        yield size


def _count_rows(counts: dict[Learned, list[int]], step: Step, call: Call) -> None:
    for side, record in (("before", call.before), ("after", call.after)):
        if record is None or record.signature is None:
            continue
        for at in record.signature.tensors():
            # What the worker returns is the next step's state, with the rows of whoever is left.
            draft = "Draft" in (at.cls or "").rpartition(":")[2] and not at.path.startswith("return")
            if draft and at.tensor.shape:
                entry = counts.setdefault((call.site, side, at.path), [0, 0])
                entry[0] += at.tensor.shape[0] == step.batch_size
                entry[1] += 1


def _says(doc: str | None) -> str:
    return " ".join((doc or "").replace("``", "").split())
