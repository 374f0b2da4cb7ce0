"""What a recorded run says of an index: the join of a trace with it, as the report shows it.

Times are milliseconds. Batch sizes count requests; ``padded`` is the size of the graph that was replayed.
"""

from __future__ import annotations

import msgspec

from sgltrace.insight.figures import RunFigures

CONFIRMED, REFUTED, SEEN, NOT_EXERCISED = "confirmed", "refuted", "seen, not judged", "not exercised"
"""Verdicts. They are on formulas: a shape that was seen agrees with one, or differs from it; a blocker is not
demonstrated by that."""


class Step(msgspec.Struct, kw_only=True, frozen=True):
    """One turn of the event loop on one rank. What was not recorded is None."""

    number: int
    rank: int = 0
    mode: str = ""
    """``decode``, ``extend``, ``verify`` ... as the engine calls it."""
    speculation: str = ""
    """``on``, ``off`` or ``plain``, of a step that decodes."""
    how: str = ""
    """``eager`` or ``replay``: the target's forward pass; empty where that was not recorded."""
    start_ms: float | None = None
    period_ms: float | None = None
    """From the step's start to the next one's."""
    host_ms: float | None = None
    """The part of it inside ``run_batch``."""
    gpu_ms: float | None = None
    """How long its work took on the device, where ``--gpu-time`` measured that."""
    window: str = ""
    """What slowed the step down for being recorded: ``calls``, ``timeline``, ``gpu``."""
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
    """``replay`` in and around the replay of a graph, else ``eager``, ``capture`` or ``warm-up``."""
    function: str = ""
    """The function at which it was recorded; its row may be of another one, which hands the tensor on."""
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
    verdict: str = NOT_EXERCISED
    shapes: list[Shape] = []
    changing: int = 0
    """How many of them had the rows of the batch before or after, in steps in which requests finished or joined."""
    one_token: bool = False
    """Whether the formula, which is of on steps, was held against steps with one token for each request."""
    why: str = ""
    """What else is to be said of the verdict."""


class PointEvidence(msgspec.Struct, kw_only=True, frozen=True):
    """What a run says about one coupling point."""

    point: str
    verdict: str
    observed: list[Observed] = []


class ContractEvidence(msgspec.Struct, kw_only=True, frozen=True):
    """What a run says about one field of the contract."""

    path: str
    field: str
    design: str = ""
    verdict: str
    why: str = ""
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
    about: dict[str, str] = {}
    """What a reader of a verdict must know: release, GPU, model, weights; ``not recorded`` where that is so."""
    command: str = ""
    path: str = ""
    kinds: list[str] = []
    """How its decode steps took speculation: ``on``, ``off``, ``plain``."""
    config: dict[str, int | str | None] = {}
    ranks: list[int] = []
    steps: list[Step] = []
    left_out: int = 0
    """One in so many steps is in ``steps``; 0 where all are."""
    figures: RunFigures | None = None
    tensors: list[Observed] = []
    unmatched: list[Observed] = []
    """Tensors that were recorded and for which the index has no formula."""
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
