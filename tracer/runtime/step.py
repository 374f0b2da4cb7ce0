"""A step of a rank, and a recorded call in it: what is known of each."""

from __future__ import annotations

import msgspec

from .decode import Record
from .probe import wire

DECODE = "DECODE"
ON, OFF, PLAIN = "on", "off", "plain"


class Call(msgspec.Struct):
    """A recorded call. Either end may be missing: the process ended inside, or the record is lost."""

    site: int
    step: int
    thread: int
    phase: int
    start_ns: int
    end_ns: int | None = None
    before: Record | None = None
    after: Record | None = None
    raised: str | None = None
    depth: int = 0
    padded: int | None = None
    """Batch size of the CUDA graph that was replayed in this call; of the largest, where several were."""
    raw: int | None = None
    replayed: bool = False
    """Whether a CUDA graph was replayed inside."""
    forwarded: bool = False
    """Whether a model's forward pass ran inside without one."""

    @property
    def how(self) -> str:
        """``capture`` and ``warm-up`` before the first step; ``replay`` for a replay and what is around one; ``eager``
        around a forward pass that ran without; ``host`` for all else, which queues no forward pass."""
        if self.phase in (wire.CAPTURE, wire.WARM_UP):
            return wire.PHASE_NAMES[self.phase]
        if self.replayed or self.padded is not None or self.phase == wire.REPLAY:
            return wire.PHASE_NAMES[wire.REPLAY]
        return wire.PHASE_NAMES[wire.EAGER] if self.forwarded else "host"


class GpuSpan(msgspec.Struct, frozen=True):
    """A span on the device (``--gpu-time``): a step's work, or a graph's replay. Nanoseconds."""

    site: int
    queued_ns: int
    """When the host recorded its first event; monotonic."""
    offset_ns: int
    """From the window's first event, by the device's clock."""
    elapsed_ns: int
    padded: int | None
    """Batch size of the graph that was replayed; None for a step."""


class Step(msgspec.Struct, kw_only=True):
    """A step of one rank. What is not known is None; times are monotonic nanoseconds."""

    number: int
    rank: str
    mode: str = ""
    batch_size: int | None = None
    padded: int | None = None
    """Batch size of the CUDA graph that was replayed; of the largest, where several were."""
    graph: bool | None = None
    """Whether the target's forward pass was a replay of a CUDA graph."""
    start_ns: int | None = None
    end_ns: int | None = None
    next_start_ns: int | None = None
    """When the step of the next number began on this rank; None where the loop was idle in between."""
    wait_ns: int | None = None
    """How long of the period the host waited for device events."""
    turn_ns: int | None = None
    """From the start of the scheduler's turn to the step's."""
    replays: int | None = None
    """CUDA graphs replayed in it: the target's, the draft's."""
    compiled: int = 0
    """Kernels compiled in it: it took longer, once."""
    flags: int = 0
    """``wire.FLAG_*``: recorded in full, raised, the first of its kind, in a window."""
    gpu: list[GpuSpan] = []
    """What ``--gpu-time`` measured of it."""
    verified: int | None = None
    """Tokens verified for each request, where the engine says so of a step."""
    accept_lens: list[int] | None = None
    """Tokens accepted for each request, the bonus token included."""
    accept_again: list[int] | None = None
    """The same, where a second place has them too."""
    allocated: list[int] | None = None
    """KV slots allocated to each request, after the step was prepared."""
    committed: list[int] | None = None
    slots: int | None = None
    """KV slots that the step asked the allocator for."""
    rows: int | None = None
    """Rows of ``next_token_ids``, as the step returned them."""
    speculation: str = ""
    """``on``, ``off`` (a speculative run's step without drafts), ``plain`` (a run that does not speculate); empty where
    the step does not decode, or nothing that tells was recorded."""
    window: str = ""
    """What else was recorded in it, and slowed it: ``calls``, ``timeline``, ``gpu``."""
    complete: bool = False
    """Whether the step's call returned."""
    calls: list[Call] = []

    @property
    def ran(self) -> bool:
        """Whether a batch ran: what is recorded after the last batch is of no step."""
        return self.start_ns is not None

    @property
    def host_ns(self) -> int | None:
        """Time inside the step's own call on the host, which waits for the GPU or not."""
        return None if self.start_ns is None or self.end_ns is None else self.end_ns - self.start_ns

    @property
    def period_ns(self) -> int | None:
        """From the step's start to the next one's, whatever the rank did in between."""
        return None if self.start_ns is None or self.next_start_ns is None else self.next_start_ns - self.start_ns

    @property
    def width(self) -> int | None:
        """Tokens that the step verified, or returned, for each request."""
        if self.verified is not None:
            return self.verified
        if not self.rows or not self.batch_size or self.rows % self.batch_size:
            return None
        return self.rows // self.batch_size

    @property
    def gpu_ns(self) -> int | None:
        """How long its work took on the device, where ``--gpu-time`` measured that."""
        return next((span.elapsed_ns for span in self.gpu if span.padded is None), None)

    @property
    def how(self) -> str:
        """``replay``, ``eager``, or empty where that is not recorded."""
        return {True: "replay", False: "eager", None: ""}[self.graph]
