"""What a recorded run says of an index: the join of a trace with it, as the report shows it.

Times are milliseconds. Batch sizes count requests; ``padded`` is the size of the graph that was replayed.
"""

from __future__ import annotations

import msgspec


class Step(msgspec.Struct, kw_only=True, frozen=True):
    """One turn of the event loop on one rank. What was not recorded is None."""

    number: int
    rank: int = 0
    mode: str = ""
    """``decode``, ``extend``, ``verify`` ... as the engine calls it."""
    how: str = ""
    """``eager``, ``replay``, ``capture`` or ``warm-up``."""
    start_ms: float | None = None
    duration_ms: float | None = None
    batch: int | None = None
    padded: int | None = None
    accept_lens: list[int] | None = None
    allocated: int | None = None
    """KV slots given to the batch's requests so far."""
    committed: int | None = None
    """KV slots that hold tokens that were kept."""


class Shape(msgspec.Struct, kw_only=True, frozen=True):
    """A shape of one tensor, as it was seen ``count`` times at a batch size."""

    batch: int | None
    shape: list[int]
    dtype: str = ""
    how: str = ""
    count: int = 1
    first_step: int | None = None
    last_step: int | None = None


class Observed(msgspec.Struct, kw_only=True, frozen=True):
    """The shapes of a tensor at a site (``function`` and ``line``), and how they stand to its formula."""

    name: str
    function: str
    line: int
    path: str = ""
    formula: str | None = None
    verdict: str = "not exercised"
    """``confirmed``, ``refuted`` or ``not exercised``."""
    shapes: list[Shape] = []
    changing: int = 0
    """How many of them had the rows of the batch before or after, in steps in which requests finished or joined."""


class PointEvidence(msgspec.Struct, kw_only=True, frozen=True):
    """What a run says about one coupling point."""

    point: str
    verdict: str
    observed: list[Observed] = []


class ContractEvidence(msgspec.Struct, kw_only=True, frozen=True):
    """What a run says about one field of the contract."""

    path: str
    field: str
    verdict: str
    observed: list[Observed] = []


class Shared(msgspec.Struct, kw_only=True, frozen=True):
    """Two fields that held the same memory in a function, ``count`` times."""

    function: str
    first: str
    second: str
    count: int


class Crash(msgspec.Struct, kw_only=True, frozen=True):
    """How a process of the run ended that should not have."""

    rank: int
    why: str
    last_steps: list[str] = []
    """The last recorded calls, oldest first."""


class Run(msgspec.Struct, kw_only=True):
    """One run of a server under the probe."""

    name: str
    version: str | None = None
    command: str = ""
    path: str = ""
    config: dict[str, int | str | None] = {}
    ranks: list[int] = []
    steps: list[Step] = []
    tensors: list[Observed] = []
    points: list[PointEvidence] = []
    contract: list[ContractEvidence] = []
    edges: list[tuple[str, str, int]] = []
    """Caller, callee and how often, of calls that ran."""
    missing_edges: list[tuple[str, str, int]] = []
    """Of those, the ones that the static graph lacks."""
    sharing: list[Shared] = []
    crashes: list[Crash] = []
    unattached: list[str] = []
    """Processes that the probe did not get into, and why."""
    notes: list[str] = []
