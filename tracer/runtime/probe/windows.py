"""Bounded windows of steady decode steps that are looked at more closely: with VizTracer (``--timeline``), and for who
calls whom (``--calls``). Each is recorded once, saved from within the process, and then left alone.
"""

# As in the rest of the probe, no pathlib.
# ruff: noqa: PTH105, PTH118, PTH123
from __future__ import annotations

import json
import os
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from .recorder import Recorder

STEADY = 5  # steps alike in mode and batch size before a window opens
MAX_PAIRS = 200_000
MAX_ENTRIES = 500_000  # of VizTracer's ring, about 50 MB while it records


class Windows:
    """Opens and closes the windows; told of each step as it begins."""

    def __init__(self, folder: str, recorder: Recorder, plan: dict[str, Any], note: Callable[[str], None]) -> None:
        self.folder = folder
        self.recorder = recorder
        self.note = note
        self.package = str(plan["package"])
        self.waiting: list[tuple[str, int]] = [
            (name, int(plan["options"].get(name) or 0)) for name in ("timeline", "calls") if plan["options"].get(name)
        ]
        self.open: Timeline | Calls | None = None
        self.left = 0
        self._alike = 0
        self._last: tuple[str, int] | None = None

    def on_step(self, step: int, mode: str, batch_size: int) -> None:
        """A step begins."""
        if self.open is None and not self.waiting:
            return
        now = (mode, batch_size)
        self._alike = self._alike + 1 if now == self._last else 0
        self._last = now
        if self.open is not None:
            self.left -= 1
            if self.left <= 0:
                self._close()
            else:
                self.open.step(step, now[1])
        elif self._alike >= STEADY and "DECODE" in mode:
            self._open(step, now[1])

    def _open(self, step: int, batch_size: int) -> None:
        name, count = self.waiting.pop(0)
        try:
            window = (
                Timeline(self.folder, self.recorder.name)
                if name == "timeline"
                else Calls(self.folder, self.recorder.name, self.package)
            )
            window.start()
            window.step(step, batch_size)
            self.open, self.left = window, count
        except Exception as error:
            self.note(f"--{name}: {type(error).__name__}: {error}")

    def _close(self) -> None:
        window, self.open = self.open, None
        assert window is not None
        try:
            self.note(window.stop())
        except Exception as error:
            self.note(f"{type(window).__name__.lower()}: {type(error).__name__}: {error}")


class Timeline:
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


class Calls:
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
        if self._known(frame) is None:
            return
        outer = frame.f_back
        while outer is not None and outer.f_code.co_name == "sgltrace_wrapper":
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
