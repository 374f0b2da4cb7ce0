"""The same probe with its hot path in C, where the C part could be built and loaded."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import wire
from .describe import ORDINALS, UNREAD, Describer, read_attribute
from .pace import FULL, Pace
from .probe import Probe, Site
from .recorder import Recorder
from .selectors import EVERY, Selector

# As in _fast.c.
_FLAGS = {
    "capture": 1,
    "replay": 2,
    "graph begin": 4,
    "graph end": 8,
    "open": 16,
    "step": 16 | 32,
    "process": 32,
    "quiet": 64,
    "traceable": 0,
    "light": 128,
}


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
    """Wrappers call C; Python is called for what is new, for steps, and for failures."""

    def __init__(self, fast: Any, recorder: Recorder, describer: Describer, pace: Pace | None = None) -> None:
        super().__init__(recorder, describer, pace)
        self.fast = fast
        self._handles: dict[int, int] = {}
        self._torch: Any = None
        self._set_up()
        recorder.fast = fast
        fast.set_step(0, FULL, False)

    def modules_loaded(self) -> None:
        """As ``Probe.modules_loaded``: tensors are read through torch's C interface as soon as it is there."""
        if self._torch is None and hasattr(sys.modules.get("torch"), "Tensor"):
            self._set_up()

    def _set_up(self) -> None:
        describer, recorder = self.describer, self.recorder
        self._torch = torch = sys.modules.get("torch")
        tensor: Any = getattr(torch, "Tensor", None)
        self.dlpack = self.fast.setup(
            self._layout,
            describer.describe,
            describer.nested,
            self._listed,
            recorder.make_ready,
            self.turn,
            self.returned,
            self.failed,
            read_attribute,
            describer.forget,
            UNREAD,
            ORDINALS,
            EVERY,
            getattr(tensor, "__dlpack_c_exchange_api__", None),
            getattr(torch, "_C", None),
            describer.pointers,
            ("raised",),
            _counter_places(),
        )

    def _layout(
        self, owner: str | type, names: Sequence[str], values: Sequence[Any], depth: int
    ) -> tuple[int, tuple[tuple[int, int, bool], ...]]:
        layout = self.describer.layout(owner, names, values)
        return layout.number, layout.steps

    def _listed(self, value: list[Any], ints: list[int], keep: bool, depth: int) -> int:
        return self.describer.listed(value, ints, keep, depth)

    def entries(self, site: Site) -> tuple[Any, Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """As ``Probe.entries``, with the C functions."""
        flags = 0
        for flag in site.flags:
            flags |= _FLAGS[flag]
        handle = self.fast.site(
            site,
            site.number,
            flags,
            _side(site.before_owner, site.before_names, site.before),
            _side(site.after_owner, site.after_names, site.after),
        )
        self._handles[site.number] = handle
        return handle, self.fast.before, self.fast.after, self.fast.raised

    def failed(self, site: Site | None, error: Exception) -> None:
        """As ``Probe.failed``."""
        super().failed(site, error)
        if site is not None and not site.on:
            self.fast.switch_off(self._handles[site.number])

    def _set_level(self, level: int) -> None:
        super()._set_level(level)
        self.fast.set_step(self.recorder.step, self.level, self.last_step > 0)


def _side(owner: str, names: tuple[str, ...], selectors: tuple[Selector, ...]) -> tuple[Any, ...]:
    return owner, names, tuple((s.root, s.position, s.name, s.parts, s.call) for s in selectors)


def _counter_places() -> tuple[int, ...]:
    """Where in the head the counters lie that C keeps: records, last step, not taken, cost, samples."""
    start = struct.calcsize("<8sII")
    places = {name: start + 8 * at for at, name in enumerate(wire.HEAD_COUNTERS)}
    return tuple(places[name] for name in ("records", "last_step", "not_taken", "warm_ns", "warm", "cold_ns", "cold"))
