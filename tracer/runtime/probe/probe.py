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
from .pace import FULL, OFF, Pace
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


class Site:
    """A function of the plan, with compiled selectors. ``on`` is cleared when it failed."""

    __slots__ = (
        "after",
        "after_names",
        "after_owner",
        "before",
        "before_names",
        "before_owner",
        "flags",
        "ident",
        "number",
        "on",
        "quiet",
        "why_off",
    )

    def __init__(self, number: int, ident: str, flags: frozenset[str]) -> None:
        self.number = number
        self.ident = ident
        self.flags = flags
        self.quiet = "quiet" in flags
        self.on = True
        self.why_off: str | None = None
        self.before: tuple[Selector, ...] = ()
        self.after: tuple[Selector, ...] = ()
        self.before_names: tuple[str, ...] = ()
        self.after_names: tuple[str, ...] = ()
        self.before_owner = f"{number} before"
        self.after_owner = f"{number} after"


class Probe:
    """Connects the wrapped functions of this process to its recorder."""

    def __init__(
        self,
        recorder: Recorder,
        describer: Describer,
        pace: Pace | None = None,
    ) -> None:
        self.recorder = recorder
        self.describer = describer
        self.pace = pace or Pace(None, 1)
        self.level = FULL
        self.on_step: Callable[[int, str, int], None] | None = None
        self.on_process: Callable[[Sequence[Any]], None] | None = None
        self.on_problem: Callable[[str], None] | None = None
        self._threads: dict[int, ThreadState] = {}
        self._links: dict[int, int] = {}
        self.last_step = 0

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
                self._note_flags(site, thread, args)
            if not site.quiet and self._wanted(site, thread):
                self._record(
                    wire.ENTER, site, thread, site.before, site.before_names, site.before_owner, args, kwargs, None
                )
            return thread
        except Exception as error:
            self.failed(site, error)
            return None

    def after(self, site: Site, thread: ThreadState, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """The wrapped function returned ``result``."""
        try:
            if self._wanted(site, thread) and not (site.quiet and result is None):
                self._record(
                    wire.EXIT, site, thread, site.after, site.after_names, site.after_owner, args, kwargs, result
                )
            if site.flags:
                self._leave(site, thread, raised=False)
                self.returned(site, args, result)
        except Exception as error:
            self.failed(site, error)

    def raised(self, site: Site, thread: ThreadState, error: BaseException) -> None:
        """The wrapped function raised ``error``."""
        try:
            if self._wanted(site, thread):
                self._record(wire.RAISE, site, thread, _RESULT, ("raised",), "raised", (), {}, error)
            if site.flags:
                self._leave(site, thread, raised=True)
        except Exception as problem:
            self.failed(site, problem)

    def failed(self, site: Site | None, error: Exception) -> None:
        """Something in the probe went wrong: that site, or the whole recording, ends here."""
        try:
            if isinstance(error, (RecorderStopped, OSError)) or site is None:
                text = str(error) if isinstance(error, RecorderStopped) else f"{type(error).__name__}: {error}"
                self._set_level(OFF)
                if self.recorder.stopped is None:
                    self.recorder.stop(text)
            else:
                site.on = False
                site.why_off = f"{type(error).__name__}: {error}"[:200]
                text = f"{site.ident}: {site.why_off}"
            if self.on_problem is not None:
                self.on_problem(text)
        except Exception:
            self.level = OFF  # nothing is left to tell it to

    # Steps and phases.

    def _thread(self) -> ThreadState:
        ident = threading.get_ident()
        state = self._threads.get(ident)
        if state is None:
            if len(self._threads) > 1000:
                self._threads.clear()
            state = self._threads[ident] = ThreadState(len(self._threads) & 0xFFFF)
        return state

    def _note_flags(self, site: Site, thread: ThreadState, args: Sequence[Any]) -> None:
        flags = site.flags
        self.turn(site, args)
        if "capture" in flags:
            thread.captures += 1
        if "replay" in flags:
            thread.replays += 1
        if "graph begin" in flags:
            thread.graphs += 1

    def turn(self, site: Site, args: Sequence[Any]) -> None:
        """Begin a turn or a step, if the site is where that happens."""
        if "open" in site.flags:
            self.recorder.step = self.last_step + 1
            self._set_level(self.pace.opened(self.recorder.step))
        elif "step" in site.flags:
            self.last_step = self.recorder.step = self.last_step + 1
            batch = args[1] if len(args) > 1 else None
            requests = read_attribute(batch, "reqs")
            kind = (
                str(getattr(read_attribute(batch, "forward_mode"), "_name_", "")),
                len(requests) if isinstance(requests, list) else -1,
            )
            self._set_level(self.pace.begun(self.last_step, kind, time.monotonic_ns(), self.recorder.spent))
            if self.on_step is not None:
                self.on_step(self.last_step, *kind)

    def returned(self, site: Site, args: Sequence[Any], result: Any) -> None:
        """Remember the step of a result, or learn what process this is, if the site is where that happens."""
        if "step" in site.flags and result is not None:
            self._link(result)
        if "process" in site.flags and self.on_process is not None:
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
        if self.recorder.every != self.pace.every:
            self.recorder.every = self.pace.every
            self.recorder.write_head()

    def _link(self, result: Any) -> None:
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
        readers: tuple[Selector, ...],
        names: tuple[str, ...],
        owner: str,
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
                if names:
                    values = [read(args, kwargs, result) for read in readers]
                    signature = self.describer.values(owner, names, values, ints)
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


_RESULT = (Selector(RETURN),)
