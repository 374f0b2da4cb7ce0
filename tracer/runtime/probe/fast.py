"""The same probe with its hot path in C, where the C part could be built and loaded."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import wire
from .describe import MAX_HELD, ORDINALS, UNREAD, Describer, read_attribute
from .pace import COUNT, Pace, Spent
from .probe import Probe, Site
from .recorder import Recorder
from .selectors import EVERY

# As in _fast_state.c.
_FLAGS = {
    "capture": 1,
    "replay": 2,
    "graph begin": 4,
    "graph end": 8,
    "open": 16,
    "step": 32,
    "process": 64,
    "quiet": 128,
    "silent": 256,
    "graph": 512,
    "result": 1024,
    "wait": 2048,
    "compile": 4096,
    "device": 8192,
    "watch": 0,
    "traceable": 0,
}
_FAR = (1 << 63) - 1
_NEVER = (1 << 32) - 1
_COUNTERS = (
    *("records", "definitions", "last_step", "not_taken", "warm_ns", "warm", "cold_ns", "cold"),
    *("inside", "began_ns", "size", "mode_0"),
)


def load() -> Any:
    """The C part; None where there is none for this Python."""
    if getattr(sys, "_is_gil_enabled", None) is not None and not sys._is_gil_enabled():  # type: ignore[attr-defined]
        return None
    try:
        from . import _fast  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _fast


class FastProbe(Probe):
    """Wrappers call C; Python is called for what is new, for new kinds of steps, and for failures."""

    def __init__(self, fast: Any, recorder: Recorder, describer: Describer, pace: Pace | None = None) -> None:
        super().__init__(recorder, describer, pace)
        self.fast = fast
        self.dlpack = False
        self._handles: dict[int, int] = {}
        self._torch: Any = None
        self._set_up()
        recorder.fast = fast
        self._tell_pace(0)

    def read_results(self, width_name: str, graph_name: str) -> None:
        """As ``Probe.read_results``."""
        super().read_results(width_name, graph_name)
        self._set_up()

    def modules_loaded(self) -> None:
        """As ``Probe.modules_loaded``: tensors are read through torch's C interface as soon as it is there."""
        if self._torch is None and hasattr(sys.modules.get("torch"), "Tensor"):
            self._set_up()

    def _set_up(self) -> None:
        self._torch = torch = sys.modules.get("torch")
        tensor: Any = getattr(torch, "Tensor", None)
        self.dlpack = self.fast.setup(
            (
                self._layout,
                self._text,
                self._object,
                self.describer.listed,
                self.recorder.ensure,
                self.recorder.rotate,
                self._step,
                self.process_built,
                self.failed,
                read_attribute,
                self.describer.forget,
                self._slot,
                self.gate,
                self.watch,
                UNREAD,
                ORDINALS,
                EVERY,
                self.on_device,
                self.width_name,
                self.graph_name,
            ),
            getattr(tensor, "__dlpack_c_exchange_api__", None),
            getattr(torch, "_C", None),
            self.describer.pointers,
            ("raised",),
            _counter_places(),
        )

    # Called by C.

    def _layout(
        self, owner: str | type, names: Sequence[str], values: Sequence[Any]
    ) -> tuple[int, tuple[tuple[int, int, bool], ...]]:
        layout = self.describer.layout(owner, names, values)
        return layout.number, layout.steps

    def _text(self, value: Any, what: str | None) -> int:
        """The text for a tensor's ``what`` (``dtype`` or ``device``), or for a member of an enumeration."""
        if what is None:
            return self.describer.text(str(value._name_))
        return self.describer.text(str(getattr(value, what)).removeprefix("torch."))

    def _object(self, value: Any, ints: list[int], depth: int) -> int:
        if self.recorder.definitions > MAX_HELD:
            self.fast.forget()
        return self.describer.nested(value, ints, depth)

    def _step(self, site: Site, step: int, mode: Any, size: int) -> bool:
        self.recorder.step = self.last_step = step
        name = str(getattr(mode, "_name_", ""))
        self.recorder.tell_mode(name)
        self.step_begins(step, mode, size, self.spent())
        self._tell_pace(step)
        return self.pace.settled((name, size))

    def _slot(self, mode: Any, size: int, width: int) -> tuple[int, bool]:
        slots = self.tally.slots
        offset, new = slots.slot(str(getattr(mode, "_name_", "")), size, width)
        assert slots.mapping is not None
        return slots.mapping.address() + offset, new

    def spent(self) -> Spent:
        """As ``Probe.spent``."""
        levels, busy_ns, busy_steps = self.fast.spent()
        for level, (spent_ns, calls, measured, steps) in enumerate(levels, COUNT):
            self._spent_ns[level], self._calls[level], self._measured[level] = spent_ns, calls, measured
            self._steps[level] = steps
        self._busy = [busy_ns, busy_steps]
        return super().spent()

    # Called by Python.

    def entries(self, site: Site) -> tuple[Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """As ``Probe.entries``, with the C functions."""
        flags = sum(_FLAGS[flag] for flag in site.flags)
        sides = tuple(
            (side.owner, side.names, tuple((s.root, s.position, s.name, s.parts, s.is_step) for s in side.readers))
            for side in site.sides
        )
        handle = self._handles[site.number] = self.fast.site(site, site.number, flags, sides)
        return handle, self.fast.before, self.fast.after, self.fast.raised

    def failed(self, site: Site | None, error: Exception) -> None:
        """As ``Probe.failed``."""
        super().failed(site, error)
        if site is not None and not site.on:
            self.fast.switch_off(self._handles[site.number])

    def stop(self, reason: str) -> None:
        """As ``Probe.stop``."""
        super().stop(reason)
        self._tell_pace(0)

    def set_window(self, flags: int) -> None:
        """As ``Probe.set_window``."""
        super().set_window(flags)
        self.fast.window(flags, self.on_device)

    def note_record(self, kind: int, site: int, step: int, time_ns: int, ints: Sequence[int]) -> None:
        """As ``Probe.note_record``."""
        self.fast.note(kind, site, step, time_ns, tuple(ints))

    def _tell_pace(self, step: int) -> None:
        """Hand the pace over; windows that wait for steps are told of every one."""
        pace = self.pace
        past = _FAR if pace.past is None else pace.past
        check = min(_NEVER, self.call_at, step + pace.check_in)
        forced = -1 if pace.forced is None else pace.forced
        self.fast.pace(pace.first, past, pace.every, pace.light_every, pace.full_until, check, forced, self.attentive)


def _counter_places() -> tuple[int, ...]:
    """Where in the head the counters lie that C keeps."""
    start = struct.calcsize("<8sII")
    return tuple(start + 8 * wire.HEAD_COUNTERS.index(name) for name in _COUNTERS)
