"""What happens when a wrapped function is called: which step and phase it belongs to, and what is recorded.

Everything the server can notice is kept out: an error in here switches the site or the recording off, and the
wrapped function is called, returns and raises exactly as without.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from . import wire
from .describe import Describer, read_attribute
from .pace import COLD, COUNT, DISPLACED, FULL, LIGHT, OFF, PAUSE_NS, PREEMPTED_NS, Pace, Spent
from .recorder import Recorder, RecorderStopped
from .selectors import RETURN, Selector
from .tally import Tally, lengths_of

_LINKS = 64  # results whose step is remembered until they are processed


class ThreadState:
    """What one thread is doing: how many captures and replays it is inside of."""

    __slots__ = ("busy", "captures", "devices", "graphs", "number", "replays", "wait_ns")

    def __init__(self, number: int) -> None:
        self.number = number
        self.captures = 0  # functions around a capture, with their warm-up runs
        self.graphs = 0  # torch.cuda.graph itself
        self.replays = 0
        self.devices = 0  # functions around work for the device, in a window of --gpu-time
        self.wait_ns = 0
        self.busy = False


class Side:
    """What is recorded before or after a call: readers, the names of what they read, and a name for the whole."""

    __slots__ = ("names", "owner", "readers")

    def __init__(self, owner: str, names: tuple[str, ...] = (), readers: tuple[Selector, ...] = ()) -> None:
        self.owner = owner
        self.names = names
        self.readers = readers


class Site:
    """A function of the plan, with compiled selectors. ``on`` is cleared when it failed.

    ``sides`` are before and after the call in a step that is recorded in full, and what is read of a step's result.
    """

    __slots__ = ("flags", "ident", "number", "on", "quiet", "sides")

    def __init__(self, number: int, ident: str, flags: frozenset[str]) -> None:
        self.number = number
        self.ident = ident
        self.flags = flags
        self.quiet = "quiet" in flags
        self.on = True
        self.sides = [Side(f"{number} {name}") for name in SIDES]


SIDES = ("before", "after", "result")


class Probe:
    """Connects the wrapped functions of this process to its recorder.

    ``gate[0]`` is whether steps are recorded in full just now, ``watch[0]`` whether they are recorded at all: wrappers
    look at one of them before anything else.
    """

    def __init__(self, recorder: Recorder, describer: Describer, pace: Pace | None = None) -> None:
        self.recorder = recorder
        self.describer = describer
        self.pace = pace or Pace(None, 1)
        self.tally = Tally(recorder)
        self.width_name = self.graph_name = ""
        self.gate = [True]
        self.watch = [True]
        self.level = FULL
        self.last_step = 0
        self.wrapper_ns = self.gate_ns = 0.0
        """What a wrapper costs beside what it calls, and what one costs that goes no further than its gate."""
        self.on_step: Callable[[int, str, int], None] | None = None
        self.call_at = (1 << 32) - 1
        """The step of which ``on_step`` is to be told, beside those of a new kind and one now and then."""
        self.attentive = False
        """Whether ``on_step`` wants to know of every change of mode or batch size, though it knows the kind."""
        self.on_device: Callable[[int, bool, int], None] | None = None
        """In a window of --gpu-time: told of the site whose work is about to be queued, or has been."""
        self.on_process: Callable[[Sequence[Any]], None] | None = None
        self.on_problem: Callable[[str], None] | None = None
        self._threads: dict[int, ThreadState] = {}
        self._links: dict[int, tuple[int, int, bool]] = {}
        self._step_ns = 0
        self._check_at = 0
        self._kind: tuple[str, int] = "", -1
        self._step_thread: ThreadState | None = None
        self._steps = [0, 0, 0, 0]  # by level
        self._measured = [0, 0, 0, 0]
        self._spent_ns: list[float] = [0, 0, 0, 0]
        self._calls: list[float] = [0, 0, 0, 0]
        self._busy = [0, 0]
        self._met = 0, 0

    def entries(self, site: Site) -> tuple[Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """What a wrapper calls: before, after and when the function raised; and what it names the site there."""
        return site, self.before, self.after, self.raised

    def read_results(self, width_name: str, graph_name: str) -> None:
        """Which attributes of a step's result say how many tokens it verified for each request, and whether it was a
        graph's replay."""
        self.width_name, self.graph_name = width_name, graph_name

    def modules_loaded(self) -> None:
        """More modules were imported, torch perhaps among them."""

    # Called by the wrappers. They return what must be handed to ``after``, or None if the call is not recorded.

    def before(self, site: Site, args: Sequence[Any], kwargs: dict[str, Any]) -> ThreadState | None:
        """A wrapped function is about to be called."""
        if not site.on:
            return None
        started = time.monotonic_ns()
        try:
            thread = self._thread()
            if site.flags:
                self._enter(site, thread, args, started)
            if not site.quiet and self._wanted(site, thread):
                self._record(wire.ENTER, site, thread, site.sides[0], args, kwargs, None, started)
            if self.on_device is not None and "device" in site.flags:
                self._device(site, thread, args, begins=True)
            self._account(started)
            return thread
        except Exception as error:
            self.failed(site, error)
            return None

    def after(self, site: Site, thread: ThreadState, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """The wrapped function returned ``result``."""
        started = time.monotonic_ns()
        try:
            if self.on_device is not None and "device" in site.flags:
                self._device(site, thread, args, begins=False)
            if self._wanted(site, thread) and not (site.quiet and result is None):
                self._record(wire.EXIT, site, thread, site.sides[1], args, kwargs, result, started)
            if site.flags:
                self._leave(site, thread, args, kwargs, result, started)
                if "process" in site.flags:
                    self.process_built(args)
            self._account(started)
        except Exception as error:
            self.failed(site, error)

    def raised(self, site: Site, thread: ThreadState, error: BaseException) -> None:
        """The wrapped function raised ``error``."""
        started = time.monotonic_ns()
        try:
            if self._wanted(site, thread):
                self._record(wire.RAISE, site, thread, _RAISED, (), {}, error, started)
            if site.flags:
                self._leave(site, thread, (), {}, None, started, raised=True)
            self._account(started)
        except Exception as problem:
            self.failed(site, problem)

    def _account(self, started: int) -> None:
        """What is met for the first time costs more, once: it is no measure of the steps to come."""
        met = self.recorder.definitions, self.tally.slots.count
        if met != self._met:
            self._met = met
            return
        cost = time.monotonic_ns() - started
        if cost > PREEMPTED_NS:
            return
        self._spent_ns[self.level] += cost
        self._calls[self.level] += 1

    def failed(self, site: Site | None, error: Exception) -> None:
        """Something in the probe went wrong: that site, or the whole recording, ends here."""
        try:
            if isinstance(error, (RecorderStopped, OSError)) or site is None:
                text = str(error) if isinstance(error, RecorderStopped) else f"{type(error).__name__}: {error}"
                self.stop(text)
            else:
                site.on = False
                text = f"{site.ident}: {type(error).__name__}: {error}"[:300]
            if self.on_problem is not None:
                self.on_problem(text)
        except Exception:
            self.pace.past = 0  # nothing is left to tell it to

    def stop(self, reason: str) -> None:
        """Record nothing from now on."""
        self.pace.past = 0
        self._set_level(OFF)
        if self.recorder.stopped is None:
            self.recorder.stop(reason)

    # Steps and phases.

    def _thread(self) -> ThreadState:
        ident = threading.get_ident()
        state = self._threads.get(ident)
        if state is None:
            if len(self._threads) > 1000:
                self._threads.clear()
            state = self._threads[ident] = ThreadState(len(self._threads) & 0xFFFF)
        return state

    def _enter(self, site: Site, thread: ThreadState, args: Sequence[Any], now: int) -> None:
        flags = site.flags
        if "open" in flags:
            self.recorder.step = self.last_step + 1
            self._set_level(self.pace.level(self.recorder.step))
            self.tally.turn(now)
        elif "step" in flags:
            self._begin_step(thread, args, now)
        elif "compile" in flags:
            self.tally.compiled += 1
        if "capture" in flags:
            thread.captures += 1
        if "replay" in flags:
            thread.replays += 1
        if "graph begin" in flags:
            thread.graphs += 1
        if "wait" in flags:
            thread.wait_ns = now

    def _begin_step(self, thread: ThreadState, args: Sequence[Any], now: int) -> None:
        if 0 < now - self._step_ns < PAUSE_NS:
            self._busy[0] += now - self._step_ns
            self._busy[1] += 1
        self._step_ns = now
        self._step_thread = thread
        self.last_step = self.recorder.step = self.last_step + 1
        batch = args[1] if len(args) > 1 else None
        requests = read_attribute(batch, "reqs")
        size = len(requests) if isinstance(requests, list) else -1
        mode = read_attribute(batch, "forward_mode")
        name = str(getattr(mode, "_name_", ""))
        self.recorder.step_begun(now, size, name)
        kind, pace = (name, size), self.pace
        news = kind != self._kind and (self.attentive or not pace.settled(kind))
        self._kind = kind
        if news or self.last_step < pace.full_until or self.last_step >= self._check_at:
            self.step_begins(self.last_step, mode, size, self.spent())
            self._check_at = min(self.call_at, self.last_step + pace.check_in)
        self._set_level(self.pace.level(self.last_step))
        self._steps[self.level] += 1
        self._measured[self.level] += 1
        if self.level == OFF:
            self.tally.nothing_to_run()
            return
        self.tally.begin(now, name, size)

    def spent(self) -> Spent:
        """What the recorder took in the steps that were measured."""
        full, light, counted = (self._whole_cost(level) for level in (FULL, LIGHT, COUNT))
        steps = self._measured
        return Spent(full, steps[FULL], light, steps[LIGHT], counted, steps[COUNT], self._busy[0], self._busy[1])

    def _whole_cost(self, level: int) -> float:
        """The cost of a level's measured steps with that of the wrappers around what was measured."""
        steps, calls = self._measured[level], self._calls[level]
        if not steps:
            return 0.0
        gated = max(0.0, self._calls[FULL] / max(1, self._measured[FULL]) - calls / steps)
        cost = self._spent_ns[level] + COLD * (calls * self.wrapper_ns + gated * steps * self.gate_ns)
        return cost * DISPLACED if level == FULL else cost

    def _all_steps(self, spent: Spent) -> list[float]:
        """``spent`` as if every step had been measured, for the head."""
        found: list[float] = []
        for level, at in ((FULL, 0), (LIGHT, 2), (COUNT, 4)):
            measured, steps = spent[at + 1], self._steps[level]
            found += [spent[at] / measured * steps if measured else 0.0, steps]
        return [*found, spent.busy_ns, spent.busy_steps]

    def _device(self, site: Site, thread: ThreadState, args: Sequence[Any], begins: bool) -> None:
        """Work for the device is queued in between. Of functions inside one another the outermost is the step's."""
        if self.on_device is None or thread is not self._step_thread or thread.captures or thread.graphs:
            return
        replay = "graph" in site.flags
        if not replay:
            thread.devices += 1 if begins else -1
            if thread.devices != (1 if begins else 0):
                return
        padded = _own_int(args[0], "bs") if replay and not begins and args else -1
        self.on_device(site.number, begins, padded)

    def step_begins(self, step: int, mode: Any, size: int, spent: Spent) -> None:
        """``step`` begins with a batch of ``size`` requests in ``mode``, a member of an enumeration."""
        kind = (str(getattr(mode, "_name_", "")), size)
        self.pace.begun(step, kind, spent)
        recorder = self.recorder
        if (recorder.every, recorder.light_every) != (self.pace.every, self.pace.light_every):
            recorder.every, recorder.light_every = self.pace.every, self.pace.light_every
        recorder.spent = self._all_steps(spent)
        recorder.write_head()
        if self.on_step is not None:
            self.on_step(step, *kind)

    def process_built(self, args: Sequence[Any]) -> None:
        """The scheduler is built; ``args`` are those of its constructor."""
        if self.on_process is not None:
            self.on_process(args)

    def _leave(
        self,
        site: Site,
        thread: ThreadState,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        now: int,
        raised: bool = False,
    ) -> None:
        flags = site.flags
        if "capture" in flags:
            thread.captures -= 1
        if "replay" in flags:
            thread.replays -= 1
        if "graph end" in flags or (raised and "graph begin" in flags):
            thread.graphs -= 1
        if "graph" in flags and thread is self._step_thread and not thread.captures:
            self.tally.replays += 1
            self.tally.padded = max(self.tally.padded, _own_int(args[0], "bs") if args else -1)
        if "wait" in flags and thread is self._step_thread:
            self.tally.wait_ns += now - thread.wait_ns
        if "open" in flags and result is None and not raised:
            self.recorder.step = self.last_step  # what comes now processes what ran before
            self.tally.nothing_to_run()
        if "step" in flags:
            try:
                if self.level != OFF:
                    self._end_step(site, thread, result, now, raised)
            finally:
                self.recorder.step_ended()
        if "result" in flags and self.level != OFF and not raised:
            self._result(site, thread, args, kwargs, now)

    def _end_step(self, site: Site, thread: ThreadState, result: Any, now: int, raised: bool) -> None:
        width, graph = (_own_int(result, name) for name in (self.width_name, self.graph_name))
        ints = self.tally.end(now, width, graph, self.level >= LIGHT, self.level == FULL, raised)
        if self.level >= LIGHT:
            with self.recorder.lock:
                text = self.describer.text(self.tally.mode)
                self.recorder.record(wire.STEP, site.number, text, ints, wire.EAGER, thread.number, self.tally.began_ns)
        if result is not None:
            self._links.pop(id(result), None)
            self._links[id(result)] = self.last_step, self.tally.slot, self.level >= LIGHT
            if len(self._links) > _LINKS:
                del self._links[next(iter(self._links))]

    def _result(self, site: Site, thread: ThreadState, args: Sequence[Any], kwargs: dict[str, Any], now: int) -> None:
        """A decode step's result was processed: what it kept. Functions inside one another count it once."""
        of, *lists = site.sides[2].readers
        result = id(of(args, kwargs, None))
        step, slot, recorded = self._links.get(result, _NO_LINK)
        if not slot:
            return
        self._links[result] = step, 0, False
        lengths = next((found for read in lists if (found := lengths_of(read(args, kwargs, None)))), None)
        self.tally.result(slot, lengths)
        if lengths is not None and recorded and len(lengths) <= wire.MAX_INTS:
            with self.recorder.lock:
                at, self.recorder.step = self.recorder.step, step
                self.recorder.record(wire.ACCEPT, site.number, 0, lengths, wire.EAGER, thread.number, now)
                self.recorder.step = at

    def _wanted(self, site: Site, thread: ThreadState) -> bool:
        """Whether a call is recorded here and now: nothing is inside a capture but that it began and ended."""
        if thread.graphs or self.level != FULL or "silent" in site.flags:
            return False
        return not thread.captures or "capture" in site.flags

    def _set_level(self, level: int) -> None:
        before, self.level = self.level, OFF if self.recorder.stopped is not None else level
        self.gate[0] = self.level == FULL
        # The result of a step that is recorded may be processed in the one after it.
        self.watch[0] = self.level >= LIGHT or (self.level != OFF and before >= LIGHT)

    def set_window(self, flags: int) -> None:
        """Steps from here on lie in windows: the ``wire.FLAG_*`` of them."""
        self.tally.window = flags

    def note_record(self, kind: int, site: int, step: int, time_ns: int, ints: Sequence[int]) -> None:
        """Write a record that belongs to no call."""
        with self.recorder.lock:
            at, self.recorder.step = self.recorder.step, step
            self.recorder.record(kind, site, 0, ints, wire.EAGER, 0, time_ns)
            self.recorder.step = at

    def forked(self) -> None:
        """This is the child of a fork."""
        self.tally.slots.forget()

    def step_of(self, result: Any) -> int:
        """The step that returned ``result``; 0 if not known."""
        return self._links.get(id(result), _NO_LINK)[0]

    # Recording.

    def _record(
        self,
        kind: int,
        site: Site,
        thread: ThreadState,
        side: Side,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        time_ns: int,
    ) -> None:
        ints: list[int] = []
        if thread.busy:  # a signal handler in the middle of a record
            self.recorder.not_taken += 1
            return
        thread.busy = True
        try:
            with self.recorder.lock:
                signature = 0
                if side.names:
                    values = [
                        self.step_of(read(args, kwargs, result)) if read.is_step else read(args, kwargs, result)
                        for read in side.readers
                    ]
                    signature = self.describer.values(side.owner, side.names, values, ints)
                    if len(ints) > wire.MAX_INTS:
                        self.recorder.not_taken += 1
                        return
                if thread.captures:
                    phase = wire.CAPTURE
                elif thread.replays:
                    phase = wire.REPLAY
                else:
                    phase = wire.EAGER if self.last_step else wire.WARM_UP
                self.recorder.record(kind, site.number, signature, ints, phase, thread.number, time_ns)
        finally:
            thread.busy = False


def _own_int(value: Any, name: str) -> int:
    """An integer or a truth value among an object's own attributes; -1 where it has none of that name."""
    try:
        found = object.__getattribute__(value, "__dict__").get(name)
    except AttributeError:
        found = read_attribute(value, name)
    return int(found) if type(found) in (int, bool) else -1


_NO_LINK = (0, 0, False)
_RAISED = Side("raised", ("raised",), (Selector(RETURN),))
