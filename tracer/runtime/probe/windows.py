"""Bounded windows of steps that are looked at more closely: with VizTracer (``--timeline``), for who calls whom
(``--calls``), and with CUDA events for the time on the device (``--gpu-time``). ``control.py`` opens and closes them.
"""

# As in the rest of the probe, no pathlib.
# ruff: noqa: PTH105, PTH118, PTH123
from __future__ import annotations

import json
import os
import sys
import time
import types
from collections import deque
from typing import TYPE_CHECKING, Any

from . import wire
from .control import device_module

if TYPE_CHECKING:
    from .probe import Probe

MAX_PAIRS = 200_000
MAX_ENTRIES = 500_000  # of VizTracer's ring, about 50 MB while it records


class Window:
    """What is done in a window, beside recording its steps in full."""

    def start(self) -> None:
        """Begin."""

    def step(self, step: int, batch_size: int) -> None:
        """A step begins in the window."""

    def stop(self) -> str:
        """End; returns what to tell the user."""
        return ""

    def read_more(self) -> bool:
        """After the end, as steps begin: read what is there by now. False when nothing is left to read."""
        return False


def make_window(name: str, folder: str, probe: Probe, package: str) -> Window | None:
    """The window of that name; None where its steps are recorded in full and nothing else."""
    if name == "timeline":
        return Timeline(folder, probe.recorder.name)
    if name == "calls":
        return Calls(folder, probe.recorder.name, package)
    return GpuTime(probe) if name == "gpu-time" else None


class Timeline(Window):
    """A window under VizTracer."""

    def __init__(self, folder: str, name: str) -> None:
        from viztracer import VizTracer

        self.path = os.path.join(folder, f"{name}.timeline.json")
        self.tracer = VizTracer(
            tracer_entries=MAX_ENTRIES,
            verbose=0,
            ignore_c_function=True,
            max_stack_depth=40,
            log_async=False,
            ignore_frozen=True,
        )
        self.steps: list[tuple[int, int]] = []

    def start(self) -> None:
        """Begin."""
        self.tracer.start()

    def step(self, step: int, batch_size: int) -> None:
        """A step begins in the window."""
        self.steps.append((step, batch_size))
        # The clock of our own records beside VizTracer's, so that the two can be laid over one another.
        self.tracer.log_instant("sgltrace step", args={"step": step, "monotonic_ns": time.monotonic_ns()})

    def stop(self) -> str:
        """End and save; returns what to tell the user."""
        self.tracer.stop()
        unfinished = self.path.removesuffix(".json") + ".new.json"
        self.tracer.save(unfinished)
        os.replace(unfinished, self.path)
        return f"--timeline: {len(self.steps)} steps recorded"


class Calls(Window):
    """Pairs of caller and callee inside the package, in the thread that runs the steps."""

    def __init__(self, folder: str, name: str, package: str) -> None:
        self.path = os.path.join(folder, f"{name}.calls.json")
        self.package = package
        self.pairs: dict[tuple[types.CodeType, types.CodeType], int] = {}
        self.names: dict[types.CodeType, str | None] = {}
        self.steps = 0

    def start(self) -> None:
        """Begin."""
        if sys.getprofile() is not None:
            raise RuntimeError("another profiler is at work in this process")
        sys.setprofile(self._event)

    def step(self, step: int, batch_size: int) -> None:
        """A step begins in the window."""
        self.steps += 1

    def stop(self) -> str:
        """End and save; returns what to tell the user."""
        if sys.getprofile() is not None:
            sys.setprofile(None)
        rows = sorted(
            [self._name(caller), caller.co_firstlineno, self._name(callee), callee.co_firstlineno, count]
            for (caller, callee), count in self.pairs.items()
        )
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(rows, file)
        os.replace(self.path + ".new", self.path)
        return f"--calls: {len(rows)} pairs of caller and callee in {self.steps} steps"

    def _event(self, frame: types.FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        callee = frame.f_code
        if is_generated(callee) or self._known(frame) is None:
            return
        outer = frame.f_back
        while outer is not None and is_generated(outer.f_code):  # our wrappers; a dataclass's own constructor
            outer = outer.f_back
        if outer is None or self._known(outer) is None:
            return
        key = (outer.f_code, callee)
        count = self.pairs.get(key)
        if count is not None:
            self.pairs[key] = count + 1
        elif len(self.pairs) < MAX_PAIRS:
            self.pairs[key] = 1

    def _known(self, frame: types.FrameType) -> str | None:
        """The module of a frame inside the package; None for what lies outside."""
        code = frame.f_code
        if code not in self.names:
            module = frame.f_globals.get("__name__")
            inside = isinstance(module, str) and module.partition(".")[0] == self.package
            self.names[code] = module if inside and isinstance(module, str) else None
        return self.names[code]

    def _name(self, code: types.CodeType) -> str:
        """The function id; before Python 3.11 a method's class is not known, and the line must tell."""
        return f"{self.names[code]}:{getattr(code, 'co_qualname', code.co_name)}"


def is_generated(code: types.CodeType) -> bool:
    """Whether a function has no source: what ``dataclasses`` and others make with ``exec`` (``<string>``)."""
    return code.co_filename.startswith("<")


class GpuTime(Window):
    """Time on the device, by CUDA events around the step's work and around each graph's replay.

    The events are recorded on the stream that is current there, and read once the device has passed them: nothing
    waits for it.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.cuda = device_module()
        self.now = 0
        self.steps = 0
        self.base: Any = None
        self._begun: list[tuple[int, Any]] = []
        self._waiting: deque[tuple[int, int, int, int, Any, Any]] = deque()

    def start(self) -> None:
        """Begin."""
        if self.cuda is None:
            raise RuntimeError("no CUDA device is in use in this process")
        self.probe.on_device = self._device
        self.probe.set_window(wire.FLAG_GPU)

    def step(self, step: int, batch_size: int) -> None:
        """A step begins in the window."""
        self.now = step
        self.steps += 1
        self.read_more()

    def stop(self) -> str:
        """End; what is on the device still is read later."""
        self.probe.on_device = None
        self.probe.set_window(0)
        return f"--gpu-time: {self.steps} steps measured"

    def _device(self, site: int, begins: bool, padded: int) -> None:
        event = self.cuda.Event(enable_timing=True)
        event.record()
        if begins:
            if self.base is None:
                self.base = event
            self._begun.append((time.monotonic_ns(), event))
        elif self._begun:
            host_ns, start = self._begun.pop()
            self._waiting.append((site, self.now, host_ns, padded, start, event))

    def read_more(self) -> bool:
        """Read the events that the device has passed, in order. Nothing waits: ``query`` only asks."""
        while self._waiting and self._waiting[0][5].query():
            site, step, host_ns, padded, start, end = self._waiting.popleft()
            offset, elapsed = self.base.elapsed_time(start), start.elapsed_time(end)
            ints = (int(offset * 1e6), int(elapsed * 1e6), padded)
            self.probe.note_record(wire.GPU, site, step, host_ns, ints)
        return bool(self._waiting)
