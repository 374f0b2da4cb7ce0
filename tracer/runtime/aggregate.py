"""A run in figures: for each rank, mode and batch size how long steps took and what they yielded.

One pass over the steps in memory that does not grow with them. What would spoil a mean is counted apart and said:
steps during a one-off compilation, steps of a window that slows them down, and steps with no step of the same mode
after them, whose period may hold a wait for requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from .counted import counted, with_counted
from .distribution import Histogram, Rate
from .histogram import Kind
from .step import DECODE, OFF, PLAIN, Step
from .steps import steps
from .switches import Stays, Switches
from .trace import ProcessTrace, Trace

EARLY = 4
"""The first steps of a kind may compile; of more than these it is not supposed."""
ONE_OFF = 3.0
"""Times the typical period from which an early step counts as a one-off."""
_ENOUGH = 3  # periods from which a median says something
_MAX_KINDS = 10_000


class Aggregate(msgspec.Struct, kw_only=True):
    """What steps of one rank, mode, kind and batch size have in common. None is what was not recorded.

    ``speculation`` is ``on``, ``off`` (a step that a speculative run took without drafts), ``plain`` (a run without
    speculation), or empty where steps do not decode.
    """

    rank: str
    mode: str
    batch: int | None
    speculation: str
    steps: int
    timed: int
    """Steps whose period counts."""
    one_off: int
    """Steps in which something was compiled, or early ones of a kind that took three times the typical period."""
    one_off_ms: float
    windowed: int
    """Steps that ``--calls`` or ``--timeline`` slowed down."""
    last_of_mode: int
    """Steps after which another mode, or a wait, followed."""
    period_ms: dict[str, float | None]
    """From start to start: ``p50``, ``p99``, ``mean``."""
    host_ms: dict[str, float | None]
    """Time inside ``run_batch``."""
    host_share: float | None
    """Part of the period that is inside ``run_batch``."""
    waiting: float | None
    """Part of the period in which the host waited for the device in an event; it is idle then."""
    gpu_ms: float | None
    """Time of the step's work on the device, where ``--gpu-time`` measured it; the median."""
    tokens_per_s: float | None
    tokens_per_s_error: float | None
    """Standard error, relative."""
    accept_length: float | None
    """Tokens that a request kept of one verify, the bonus token included."""
    accept_histogram: dict[int, int]
    tokens_per_verify: float | None
    """Tokens that the whole batch kept of one verify."""
    slots_per_token: float | None
    """KV slots asked for, for each token that was kept."""
    replayed: float | None
    """Share of the steps, of those of which it is recorded, whose forward pass was a graph's replay."""
    told_how: int
    """Steps of which it is recorded."""
    padded: float | None
    """Mean size of the graph, of replayed steps."""
    context: float | None
    """Mean tokens of a request that were in the KV cache."""
    counted: bool = False
    """Whether steps are missing in the trace, so that times and acceptance are what the process counted of all."""


class _Kind:
    """Sums over the steps of one mode, speculation and batch size."""

    def __init__(self) -> None:
        self.steps = self.windowed = self.last_of_mode = self.verifies = self.counted_host = 0
        self.periods, self.hosts, self.one_off = Histogram(), Histogram(), Histogram()
        self.rate = Rate()
        self.lengths: dict[int, int] = {}
        self.slots, self.replayed, self.padded, self.context = [0, 0], [0, 0], [0, 0], [0, 0]
        self.waits = [0, 0]
        self.gpu = Histogram()
        self.early: dict[int | None, list[_Timed]] = {}

    def note(self, step: Step) -> None:
        """Count what does not depend on time."""
        self.steps += 1
        if step.accept_lens:
            self.verifies += 1
            for length in step.accept_lens:
                self.lengths[length] = self.lengths.get(length, 0) + 1
        if step.committed:
            self.context[0] += sum(step.committed)
            self.context[1] += len(step.committed)
        tokens = kept(step)
        if step.slots is not None and tokens:
            self.slots[0] += step.slots
            self.slots[1] += tokens
        if step.graph is not None:
            self.replayed[0] += step.graph
            self.replayed[1] += 1
            if step.graph and step.padded is not None:
                self.padded[0] += step.padded
                self.padded[1] += 1

    def time(self, following: int | None, timed: _Timed) -> None:
        """Count a period, or keep it until the typical one is known."""
        early = self.early.setdefault(following, [])
        if len(early) < EARLY:
            early.append(timed)
        else:
            self.count(timed)

    def merge(self, other: _Kind) -> None:
        """Take in the steps of another kind, which come in beside this one's."""
        self.steps += other.steps
        self.windowed += other.windowed
        self.last_of_mode += other.last_of_mode
        self.verifies += other.verifies
        self.counted_host += other.counted_host
        self.periods.merge(other.periods)
        self.hosts.merge(other.hosts)
        self.rate.merge(other.rate)
        for length, times in other.lengths.items():
            self.lengths[length] = self.lengths.get(length, 0) + times
        self.gpu.merge(other.gpu)
        self.one_off.merge(other.one_off)
        for name in ("slots", "replayed", "padded", "context", "waits"):
            mine, others = getattr(self, name), getattr(other, name)
            mine[0] += others[0]
            mine[1] += others[1]
        for following, early in other.early.items():
            self.early.setdefault(following, []).extend(early)

    def count(self, timed: _Timed) -> None:
        """Count a period that is no one-off."""
        self.periods.add(timed.period)
        if timed.waited is not None:
            self.waits[0] += min(timed.waited, timed.period)
            self.waits[1] += timed.period
        if timed.host is not None:
            self.hosts.add(timed.host)
            self.counted_host += min(timed.host, timed.period)
        if timed.tokens is not None:
            self.rate.add(timed.tokens, timed.period)

    def typical(self) -> float | None:
        """The median period; None where too few steps were timed to know one."""
        later = [t.period for early in self.early.values() for t in early]
        if self.periods.count + len(later) < _ENOUGH:
            return None
        together = Histogram(later)
        together.merge(self.periods)
        return together.quantile(0.5)

    def settle(self, typical: float | None) -> None:
        """Take the early periods in, the one-offs apart."""
        for early in self.early.values():
            for timed in early:
                if typical is not None and timed.period > ONE_OFF * typical:
                    self.one_off.add(timed.period)
                else:
                    self.count(timed)
        self.early.clear()


class _Timed(NamedTuple):
    """What is counted of a step's time, in nanoseconds."""

    period: int
    host: int | None
    tokens: int | None
    waited: int | None = None


class Aggregator:
    """Takes the steps of one rank in, in order."""

    def __init__(self, rank: str, counts: Sequence[Kind] = (), speculates: bool = True) -> None:
        self.rank = rank
        self._counts = counts
        self._speculates = speculates
        self.stays = Stays()
        self.switches = Switches()
        self._kinds: dict[tuple[str, str, int | None], _Kind] = {}
        self._before: Step | None = None

    def add(self, step: Step) -> None:
        """Take a step in; the next one tells what followed on it."""
        if not step.number or not step.ran:
            return
        if self._before is not None:
            self._take(self._before, step)
        self._before = step

    def aggregates(self) -> list[Aggregate]:
        """The figures, by mode and batch size. Nothing can be added afterwards."""
        if self._before is not None:
            self._take(self._before, None)
            self._before = None
        kinds = self._told()
        by_mode: dict[str, list[float]] = {}
        typical = {key: kind.typical() for key, kind in kinds.items()}
        for (mode, _, _), found in typical.items():
            if found is not None:
                by_mode.setdefault(mode, []).append(found)
        rows = []
        for key, kind in sorted(kinds.items(), key=lambda item: (item[0][0], item[0][2] or 0, item[0][1])):
            usual = by_mode.get(key[0])
            kind.settle(typical[key] if typical[key] is not None or not usual else sorted(usual)[len(usual) // 2])
            rows.append(self._row(key, kind))
        return with_counted(rows, self._counts, self._speculates) if self._counts else rows

    def _take(self, step: Step, following: Step | None) -> None:
        if step.batch_size is not None and DECODE in step.mode:
            self.stays.add(step.batch_size)
        key = (step.mode, step.speculation, step.batch_size)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                return
            kind = self._kinds[key] = _Kind()
        kind.note(step)
        period = step.period_ns
        steady = following is not None and following.number == step.number + 1 and following.mode == step.mode
        if step.gpu_ns is not None:
            kind.gpu.add(step.gpu_ns)
        if step.window:
            kind.windowed += 1
        elif step.compiled and period:
            kind.one_off.add(period)
        elif not steady or period is None or period <= 0:
            kind.last_of_mode += 1
        else:
            kind.time(
                following.batch_size if following else None, _Timed(period, step.host_ns, kept(step), step.wait_ns)
            )
            self.switches.add(step, period)

    def _told(self) -> dict[tuple[str, str, int | None], _Kind]:
        """The kinds; light steps that do not say whether they speculated are of the one kind that others show."""
        kinds = dict(self._kinds)
        for mode, told, batch in list(kinds):
            others = [s for m, s, b in kinds if m == mode and b == batch and s]
            if not told and len(others) == 1:
                kinds[mode, others[0], batch].merge(kinds.pop((mode, told, batch)))
        return kinds

    def _row(self, key: tuple[str, str, int | None], kind: _Kind) -> Aggregate:
        mode, speculation, batch = key
        counted = sum(kind.lengths.values())
        tokens = sum(length * times for length, times in kind.lengths.items())
        return Aggregate(
            rank=self.rank,
            mode=mode,
            batch=batch,
            speculation=speculation,
            steps=kind.steps,
            timed=kind.periods.count,
            one_off=kind.one_off.count,
            one_off_ms=kind.one_off.total / 1e6,
            windowed=kind.windowed,
            last_of_mode=kind.last_of_mode,
            period_ms=_quantiles(kind.periods),
            host_ms=_quantiles(kind.hosts),
            host_share=kind.counted_host / kind.periods.total if kind.hosts.count and kind.periods.total else None,
            waiting=_mean(kind.waits),
            gpu_ms=None if not kind.gpu.count else (kind.gpu.quantile(0.5) or 0) / 1e6,
            tokens_per_s=kind.rate.per_second,
            tokens_per_s_error=kind.rate.relative_error,
            accept_length=tokens / counted if counted else None,
            accept_histogram=dict(sorted(kind.lengths.items())),
            tokens_per_verify=tokens / kind.verifies if kind.verifies else None,
            slots_per_token=_mean(kind.slots),
            replayed=_mean(kind.replayed),
            told_how=kind.replayed[1],
            padded=_mean(kind.padded),
            context=_mean(kind.context),
        )


def _mean(total: list[int]) -> float | None:
    return total[0] / total[1] if total[1] else None


def _quantiles(times: Histogram) -> dict[str, float | None]:
    found = {"p50": times.quantile(0.5), "p99": times.quantile(0.99), "mean": times.mean}
    return {name: None if value is None else value / 1e6 for name, value in found.items()}


def kept(step: Step) -> int | None:
    """Tokens that the step's requests kept; None where that was not recorded."""
    if step.accept_lens is not None:
        return sum(step.accept_lens)
    return step.batch_size if step.speculation in (PLAIN, OFF) else None


def aggregate(trace: Trace, process: ProcessTrace) -> Aggregator:
    """One rank's steps, taken in."""
    taken = aggregator(process)
    for step in steps(trace, process, detail=False):
        taken.add(step)
    return taken


def aggregator(process: ProcessTrace) -> Aggregator:
    """One that takes all steps of a rank, and knows what the process counted of those that are not in the trace."""
    algorithm = process.info.config.get("speculative_algorithm")
    return Aggregator(process.rank, counted(process), isinstance(algorithm, str) and algorithm.upper() != "NONE")


def aggregates(trace: Trace) -> list[Aggregate]:
    """The figures of every rank of a trace, each from one pass over its records."""
    return [row for process in trace.recording() for row in aggregate(trace, process).aggregates()]
