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
from .pace import FULL, LIGHT, OFF, PAUSE_NS, Pace, Spent
from .recorder import Recorder, RecorderStopped
from .selectors import RETURN, Selector

_LINKS = 64  # results whose step is remembered until they are processed


class ThreadState:
    """What one thread is doing: how many captures and replays it is inside of."""

    __slots__ = ("busy", "captures", "graphs", "number", "replays")

    def __init__(self, number: int) -> None:
        self.number = number
        self.captures = 0  # functions around a capture, with their warm-up runs
        self.graphs = 0  # torch.cuda.graph itself
        self.replays = 0
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

    ``sides`` are before and after the call in a step that is recorded in full, and in one that is recorded lightly.
    """

    __slots__ = ("flags", "ident", "number", "on", "quiet", "sides")

    def __init__(self, number: int, ident: str, flags: frozenset[str]) -> None:
        self.number = number
        self.ident = ident
        self.flags = flags
        self.quiet = "quiet" in flags
        self.on = True
        self.sides = [Side(f"{number} {name}") for name in SIDES]


SIDES = ("before", "after", "light before", "light after")


class Probe:
    """Connects the wrapped functions of this process to its recorder.

    ``gate[0]`` is whether steps are recorded in full just now: wrappers look at it before anything else.
    """

    def __init__(self, recorder: Recorder, describer: Describer, pace: Pace | None = None) -> None:
        self.recorder = recorder
        self.describer = describer
        self.pace = pace or Pace(None, 1)
        self.gate = [True]
        self.level = FULL
        self.last_step = 0
        self.on_step: Callable[[int, str, int], None] | None = None
        self.on_process: Callable[[Sequence[Any]], None] | None = None
        self.on_problem: Callable[[str], None] | None = None
        self._threads: dict[int, ThreadState] = {}
        self._links: dict[int, int] = {}
        self._step_ns = 0
        self._steps = [0, 0, 0]  # by level
        self._spent_ns = [0, 0, 0]
        self._busy = [0, 0]

    def entries(self, site: Site) -> tuple[Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """What a wrapper calls: before, after and when the function raised; and what it names the site there."""
        return site, self.before, self.after, self.raised

    def modules_loaded(self) -> None:
        """More modules were imported, torch perhaps among them."""

    # Called by the wrappers. They return what must be handed to ``after``, or None if the call is not recorded.

    def before(self, site: Site, args: Sequence[Any], kwargs: dict[str, Any]) -> ThreadState | None:
        """A wrapped function is about to be called."""
        if not site.on:
            return None
        try:
            thread = self._thread()
            if site.flags:
                self._enter(site, thread, args)
            if not site.quiet and self._wanted(site, thread):
                self._record(wire.ENTER, site, thread, site.sides[self._side], args, kwargs, None)
            return thread
        except Exception as error:
            self.failed(site, error)
            return None

    def after(self, site: Site, thread: ThreadState, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """The wrapped function returned ``result``."""
        try:
            if self._wanted(site, thread) and not (site.quiet and result is None):
                self._record(wire.EXIT, site, thread, site.sides[self._side + 1], args, kwargs, result)
            if site.flags:
                self._leave(site, thread, raised=False)
                if "step" in site.flags and result is not None:
                    self._link(result)
                if "process" in site.flags:
                    self.process_built(args)
        except Exception as error:
            self.failed(site, error)

    def raised(self, site: Site, thread: ThreadState, error: BaseException) -> None:
        """The wrapped function raised ``error``."""
        try:
            if self._wanted(site, thread):
                self._record(wire.RAISE, site, thread, _RAISED, (), {}, error)
            if site.flags:
                self._leave(site, thread, raised=True)
        except Exception as problem:
            self.failed(site, problem)

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

    def _enter(self, site: Site, thread: ThreadState, args: Sequence[Any]) -> None:
        flags = site.flags
        if "open" in flags:
            self.recorder.step = self.last_step + 1
            self._set_level(self.pace.level(self.recorder.step))
        elif "step" in flags:
            self._begin_step(args)
        if "capture" in flags:
            thread.captures += 1
        if "replay" in flags:
            thread.replays += 1
        if "graph begin" in flags:
            thread.graphs += 1

    def _begin_step(self, args: Sequence[Any]) -> None:
        now = time.monotonic_ns()
        if 0 < now - self._step_ns < PAUSE_NS:
            self._busy[0] += now - self._step_ns
            self._busy[1] += 1
        self._step_ns = now
        self.last_step = self.recorder.step = self.last_step + 1
        batch = args[1] if len(args) > 1 else None
        requests = read_attribute(batch, "reqs")
        size = len(requests) if isinstance(requests, list) else -1
        spent = Spent(
            self._spent_ns[FULL],
            self._steps[FULL],
            self._spent_ns[LIGHT],
            self._steps[LIGHT],
            self._busy[0],
            self._busy[1],
        )
        self.step_begins(self.last_step, read_attribute(batch, "forward_mode"), size, spent)
        self._set_level(self.pace.level(self.last_step))
        self._steps[self.level] += 1

    def step_begins(self, step: int, mode: Any, size: int, spent: Spent) -> None:
        """``step`` begins with a batch of ``size`` requests in ``mode``, a member of an enumeration."""
        kind = (str(getattr(mode, "_name_", "")), size)
        self.pace.begun(step, kind, spent)
        if self.recorder.every != self.pace.every:
            self.recorder.every = self.pace.every
            self.recorder.write_head()
        if self.on_step is not None:
            self.on_step(step, *kind)

    def process_built(self, args: Sequence[Any]) -> None:
        """The scheduler is built; ``args`` are those of its constructor."""
        if self.on_process is not None:
            self.on_process(args)

    def _leave(self, site: Site, thread: ThreadState, raised: bool) -> None:
        flags = site.flags
        if "capture" in flags:
            thread.captures -= 1
        if "replay" in flags:
            thread.replays -= 1
        if "graph end" in flags or (raised and "graph begin" in flags):
            thread.graphs -= 1

    def _wanted(self, site: Site, thread: ThreadState) -> bool:
        """Whether a call is recorded here and now: nothing is inside a capture but that it began and ended."""
        if thread.graphs or (self.level != FULL and (self.level == OFF or "light" not in site.flags)):
            return False
        return not thread.captures or "capture" in site.flags

    def _set_level(self, level: int) -> None:
        self.level = OFF if self.recorder.stopped is not None else level
        self.gate[0] = self.level == FULL

    @property
    def _side(self) -> int:
        """Where a site's sides for the level of now begin."""
        return 0 if self.level == FULL else 2

    def _link(self, result: Any) -> None:
        self._links.pop(id(result), None)
        self._links[id(result)] = self.last_step
        if len(self._links) > _LINKS:
            del self._links[next(iter(self._links))]

    def step_of(self, result: Any) -> int:
        """The step that returned ``result``; 0 if not known."""
        return self._links.get(id(result), 0)

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
    ) -> None:
        time_ns = time.monotonic_ns()
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
                self._spent_ns[self.level] += time.monotonic_ns() - time_ns
        finally:
            thread.busy = False


_RAISED = Side("raised", ("raised",), (Selector(RETURN),))
