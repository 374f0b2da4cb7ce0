"""Who decides beside the pace what is recorded: windows that were asked for, the batch sizes of interest (``--when``),
and the control file that ``sgltrace ctl`` writes into the trace folder. No port, no signal: the file is looked at now
and then, as steps begin.
"""

# As in the rest of the probe, no pathlib.
# ruff: noqa: PTH116, PTH118, PTH123
from __future__ import annotations

import json
import operator
import os
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import wire
from .pace import FULL, LIGHT, OFF

if TYPE_CHECKING:
    from .probe import Probe
    from .windows import Window

CONTROL = "ctl.json"
LEVELS = {"auto": None, "full": FULL, "light": LIGHT, "off": OFF}
"""What ``sgltrace ctl`` may say beside ``window``."""
STEADY = 5  # steps alike in mode and batch size before a window opens
NEVER = (1 << 32) - 1
_FLAGS = {"timeline": wire.FLAG_TIMELINE, "calls": wire.FLAG_CALLS, "gpu-time": wire.FLAG_GPU, "full": 0}
_TEST = re.compile(r"\s*(batch)\s*(>=|<=|==|=|>|<)\s*(\d+)\s*$")
_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


class Condition:
    """``batch>=8``, or several of that kind with ``and`` in between. Raises ``ValueError`` for what is neither."""

    def __init__(self, text: str) -> None:
        self.tests: list[tuple[Callable[[int, int], bool], int]] = []
        for part in re.split(r"\band\b|,|&&?", text) if text.strip() else ():
            found = _TEST.match(part)
            if found is None:
                raise ValueError(f"'{part.strip()}' is not a condition; write one such as batch>=8 or batch==4")
            self.tests.append((_OPERATORS[found.group(2)], int(found.group(3))))

    def holds(self, size: int) -> bool:
        """Whether a batch of ``size`` requests is meant."""
        return all(test(size, number) for test, number in self.tests)


class Control:
    """Told of steps as they begin; opens and closes windows and says at which level steps are recorded."""

    def __init__(self, folder: str, probe: Probe, plan: dict[str, Any], note: Callable[[str], None]) -> None:
        self.folder = folder
        self.probe = probe
        self.package = str(plan["package"])
        self.note = note
        options = plan["options"]
        self.when = Condition(str(options.get("when") or ""))
        names = (("timeline", "timeline"), ("calls", "calls"), ("gpu-time", "gpu_time"))
        self.waiting = [(name, int(options[option])) for name, option in names if options.get(option)]
        self.only_when = bool(self.when.tests) and not self.waiting
        self.said: int | None = None
        """The level that the control file asks for."""
        self.acknowledged: Callable[[int], None] = lambda number: None
        self.open: tuple[str, Window | None, int] | None = None  # name, window, the step that is past it
        self.reading: list[Window] = []  # closed windows that have something to read yet
        self._file: tuple[int, int] | None = None
        self._kind: tuple[str, int] | None = None
        self._since = 0

    def on_step(self, step: int, mode: str, size: int) -> None:
        """A step begins. Called for each of a new kind, now and then, and at ``probe.call_at``."""
        self._look()
        if (mode, size) != self._kind:
            self._kind, self._since = (mode, size), step
        if self.open is not None:
            self._go_on(step, size)
        meant = self.when.holds(size)
        if self.open is None and self.waiting and meant:
            steady = step - self._since >= STEADY and "DECODE" in mode
            if steady or self.waiting[0][0] == "full":
                self._open(step, size)
        for window in list(self.reading):
            if not window.read_more():
                self.reading.remove(window)
        self._decide(step, meant)

    def _decide(self, step: int, meant: bool) -> None:
        pace = self.probe.pace
        if self.open is not None:
            pace.forced = FULL
        elif self.said is not None:
            pace.forced = self.said
        else:
            pace.forced = LIGHT if self.only_when and not meant else None
        self.probe.attentive = bool(self.waiting or self.only_when)
        if self.open is not None or self.reading:
            self.probe.call_at = step + 1
        elif self.waiting and meant:
            self.probe.call_at = max(step + 1, self._since + STEADY)
        else:
            self.probe.call_at = NEVER

    # The control file.

    def _look(self) -> None:
        path = os.path.join(self.folder, CONTROL)
        try:
            stat = os.stat(path)
        except OSError:
            return
        now = stat.st_mtime_ns, stat.st_ino
        if now == self._file:
            return
        self._file = now
        try:
            with open(path, encoding="utf-8") as file:
                asked = json.loads(file.read(4096))
            self._obey(str(asked["command"]), asked)
            self.acknowledged(int(asked["number"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.note(f"{CONTROL}: {type(error).__name__}: {error}")

    def _obey(self, command: str, asked: dict[str, Any]) -> None:
        if command == "window":
            if asked.get("when") is not None:
                self.when = Condition(str(asked["when"]))
            self.waiting.append(("full", int(asked["steps"])))
        else:
            self.said = LEVELS[command]
            if command == "off":
                self.waiting.clear()

    # Windows.

    def _open(self, step: int, size: int) -> None:
        from .windows import make_window

        name, count = self.waiting.pop(0)
        try:
            window = make_window(name, self.folder, self.probe, self.package)
            if window is not None:
                window.start()
                window.step(step, size)
            self.open = name, window, step + count
            self.probe.set_window(_FLAGS[name])
            self._mark(name, step, 1)
        except Exception as error:
            self.note(f"--{name}: {type(error).__name__}: {error}")

    def _go_on(self, step: int, size: int) -> None:
        assert self.open is not None
        name, window, past = self.open
        if step < past:
            if window is not None:
                window.step(step, size)
            return
        self.open = None
        self.probe.set_window(0)
        try:
            self._mark(name, step, 0)
            if window is not None:
                told = window.stop()
                if told:
                    self.note(told)
                self.reading.append(window)
        except Exception as error:
            self.note(f"--{name}: {type(error).__name__}: {error}")

    def _mark(self, name: str, step: int, opens: int) -> None:
        flag = _FLAGS[name] or wire.FLAG_FULL
        self.probe.note_record(wire.MARK, 0, step, time.monotonic_ns(), (flag, opens))


def device_module() -> Any:
    """``torch.cuda`` of a process that uses it; None where there is none. Asks nothing of the device."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None
