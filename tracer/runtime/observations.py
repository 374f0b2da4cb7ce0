"""What was observed: the values that a trace holds, and what is made of them for joining with the index."""

from __future__ import annotations

from typing import Union

import msgspec


class TensorValue(msgspec.Struct, frozen=True):
    """A tensor's metadata: ``stride`` in elements, None if sparse; ``address`` only with ``--pointers``."""

    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    dtype: str
    device: str
    address: int | None = None

    def text(self) -> str:
        """``int64[8, 3] cuda:0``, with the stride where it is not the usual one."""
        usual: list[int] = []
        step = 1
        for size in reversed(self.shape):
            usual.insert(0, step)
            step *= max(size, 1)
        stride = "" if self.stride is None or list(self.stride) == usual else f" stride {list(self.stride)}"
        return f"{self.dtype}{list(self.shape)} {self.device}{stride}"


class Enumerated(msgspec.Struct, frozen=True):
    """A member of an enumeration."""

    cls: str
    name: str


class ObjectValue(msgspec.Struct, frozen=True):
    """The fields of an object of a tracked class, or the elements of a tuple (called ``0``, ``1`` ...)."""

    cls: str
    fields: dict[str, Value]


class ListValue(msgspec.Struct, frozen=True):
    """A list. ``values`` where they were recorded, ``elements`` where it holds tensors or tracked objects."""

    length: int
    values: tuple[int, ...] | None = None
    elements: ObjectValue | None = None


class Opaque(msgspec.Struct, frozen=True):
    """A value of which only the type is recorded (``unread`` for an attribute that is not there)."""

    type: str


Value = Union[TensorValue, Enumerated, ObjectValue, ListValue, Opaque, bool, int, None]  # noqa: UP007 (3.10 runs it)


class Observation(msgspec.Struct, kw_only=True, frozen=True):
    """A tensor seen at one stage: the distinct ways it looked, over all steps of a trace.

    ``batch_size`` is the number of requests of the step, ``padded`` that of the CUDA graph that was replayed, None
    where none was.
    """

    stage: str
    role: str
    function: str
    side: str
    """``before`` or ``after`` the call."""
    path: str
    """Where in the call's values: ``arg.batch.spec_info.hidden_states``, ``return.next_token_ids``."""
    cls: str | None
    """The class that holds the field, ``module:Class``; None for a value that is no field."""
    field: str
    mode: str
    """The step's forward mode, ``DECODE``, ``EXTEND`` ..., or ``""`` outside of steps."""
    speculation: str = ""
    """``on``, ``off`` or ``plain``, of a step that decodes."""
    batch_size: int | None
    padded: int | None
    phase: str
    """``replay`` in and around the replay of a graph, else ``eager``, ``capture`` or ``warm-up``."""
    shape: tuple[int, ...]
    stride: tuple[int, ...] | None
    dtype: str
    device: str
    count: int
    first_step: int
    last_step: int
    ranks: tuple[str, ...]


class Unset(msgspec.Struct, kw_only=True, frozen=True):
    """A field that was None at a stage, so many times."""

    function: str
    path: str
    cls: str | None
    field: str
    mode: str
    speculation: str
    count: int


class RankDifference(msgspec.Struct, kw_only=True, frozen=True):
    """One value that the ranks of a step did not agree on."""

    step: int
    function: str
    side: str
    path: str
    seen: dict[str, str]
    """Rank to what it recorded."""


class Sharing(msgspec.Struct, kw_only=True, frozen=True):
    """Two fields whose memory overlapped in the same record (``--pointers``)."""

    function: str
    side: str
    first: str
    second: str
    same_start: bool
    count: int


class CallPair(msgspec.Struct, kw_only=True, frozen=True):
    """A caller and a callee that ran (``--calls``), as function ids where Python knows the qualified name."""

    caller: str
    callee: str
    caller_line: int
    """First line of the caller's definition."""
    callee_line: int
    count: int
