"""The data that passes between the parts, and the schema of ``index.json`` (``sgltrace.index/1``).

Function ids are ``module:qualname``. Files are relative to the source root, with ``/``. Lines count from 1.
Every list is sorted, so that the same input gives byte-identical output.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = "sgltrace.index/1"

Path = Literal["v1", "v2"]
Design = Literal["A", "B", "C"]
Severity = Literal["hard", "soft", "none"]
PATHS: tuple[Path, ...] = ("v1", "v2")
DESIGNS: tuple[Design, ...] = ("A", "B", "C")

PHASES = ("process start", "graph capture", "request admission", "every step")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """What was indexed, and how the user named it."""

    name: str
    """The distribution, ``sglang``."""
    version: str | None
    root: str
    """What the files are relative to, as the user named it (a folder, a wheel's file name, ``checkout@revision``)."""
    kind: str
    """``folder``, ``wheel``, ``sdist``, ``requirement`` or ``revision``."""
    requested: str
    """``SRC`` as given."""
    below: str = ""
    """In a checkout: where the files' paths begin, from the repository's root (``python``)."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A class that the speculative algorithm creates as a worker, with the role found for it."""

    cls: str
    """The class's id, ``module:Class``."""
    file: str
    line: int
    path: str | None
    """``v1``, ``v2``, or None for the others."""
    algorithms: list[str]
    """The algorithms (EAGLE, STANDALONE, NGRAM ...) under which it is created."""
    overlap: bool | None
    """Whether it is created under overlap scheduling; None where both."""


class SkippedFile(msgspec.Struct, frozen=True):
    """A file that did not parse."""

    file: str
    why: str


class Guard(msgspec.Struct, frozen=True):
    """A condition that must hold at a place: ``text`` evaluates to ``holds``.

    ``kind`` is ``if`` (an enclosing branch), ``return`` (an early exit before it that was not taken),
    ``loop``, ``try`` or ``except``.
    """

    text: str
    holds: bool
    line: int
    kind: str = "if"


class Function(msgspec.Struct, kw_only=True):
    """A function, method, lambda or nested function of the source tree."""

    id: str
    file: str
    line: int
    end_line: int
    phase: list[str]
    paths: list[str]
    component: str = ""
    """The part of the engine it belongs to (scheduler, worker, draft worker, model runner ...)."""


class CallSite(msgspec.Struct, frozen=True):
    """One place where a call edge is taken."""

    line: int
    guards: list[Guard]


class CallEdge(msgspec.Struct, kw_only=True):
    """``caller`` may run ``callee``. ``confidence`` is 1.0 for what Python's own lookup decides."""

    caller: str
    callee: str
    kind: str
    confidence: float
    virtual: bool = False
    decode: bool = True
    """Whether a decode step may take it: False where each site stands behind a condition that no such step meets."""
    sites: list[CallSite]


class Unresolved(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose target is not known, and why."""

    caller: str
    line: int
    expression: str
    why: str


class Access(msgspec.Struct, kw_only=True):
    """One write or read of a field of a tracked class."""

    function: str
    line: int
    phase: list[str]
    paths: list[str]
    guards: list[Guard] = []
    expression: str = ""
    """For a write, what is written; for a read, the expression it appears in."""
    shape: str | None = None
    kind: str = "assign"
    """Of a write: assign, constructor, default, copy, augment, in-place, kernel, delete. Of a read: read, unpack,
    pass."""


class Field(msgspec.Struct, kw_only=True):
    """Every write and read of one field of a class that carries a step's state."""

    cls: str = msgspec.field(name="class")
    field: str
    role: str = ""
    """The class's role in the vocabulary (scheduler batch, worker batch, forward batch, draft input ...)."""
    writes: list[Access]
    reads: list[Access]


class Place(msgspec.Struct, kw_only=True, frozen=True):
    """One end of a coupling point or of a tensor: a function, a line in it, and what happens there."""

    function: str
    line: int
    what: str = ""
    file: str = ""


class Tensor(msgspec.Struct, kw_only=True):
    """A tensor of a decode step at one stage of a path. ``shape`` is None where it was not derived."""

    path: str
    stage: str
    name: str
    cls: str | None = None
    field: str | None = None
    shape: str | None
    dtype: str | None
    stride: str | None = None
    why_unknown: str | None = None
    producer: Place
    consumers: list[Place]


class Verdict(msgspec.Struct, kw_only=True, frozen=True):
    """The severity of a coupling point for one path and one design, with the reason the analysis found."""

    path: str
    design: str
    severity: str
    reason: str


class CouplingPoint(msgspec.Struct, kw_only=True):
    """A place where something that speculation fixes crosses into what a plain decode step needs otherwise."""

    id: str
    title: str
    kind: str
    severity: dict[str, str | None]
    designs: list[str]
    """The designs that it blocks (hard) or burdens (soft) on some path."""
    binding_time: str
    condition: str
    producers: list[Place]
    consumers: list[Place]
    formula: str
    why_it_blocks: str
    refactor: str
    verdicts: list[Verdict] = []
    fields: list[str] = []
    """The fields (``Class.field``) through which the value crosses."""
    related: list[str] = []
    components: list[str] = []
    rule: str = ""
    rank: int = 0


class ContractField(msgspec.Struct, kw_only=True):
    """One field that an off step must produce or leave behind on a path."""

    path: str
    field: str
    shape: str | None
    dtype: str | None
    stride: str | None
    requirement: str
    """``required``, ``optional``, ``must stay unset`` or ``untouched``."""
    off_step_value: str
    writers: list[Place]
    readers: list[Place]
    why: str = ""
    supply: str = ""
    """How an off step comes by the value: ``unset``, ``state`` (as it was), ``tokens`` (a row of them for each
    request), ``width`` (of such a row), ``ones``, ``object`` (made of other rows), ``value`` (as a step with
    speculation sets it), ``advance`` (by a token for each request), ``slots``, ``newest`` (tokens), ``event``,
    ``verified`` or ``drafted`` (what the verify or the draft leaves for the next step), ``plain`` (as a plain step
    makes it, otherwise unknown), or ``leave``."""


class StepParts(msgspec.Struct, kw_only=True, frozen=True):
    """Who takes part in the steps of a path: ids of functions and classes."""

    path: str
    entry: str
    """The worker's method that the scheduler calls each step."""
    target: str
    """The same of the worker that runs the target model."""
    scheduler_batch: str
    batches: list[str]
    """The batch in every form: the scheduler's, the worker's, the model runner's."""
    results: list[str]
    states: list[str]
    """Classes of the draft's state."""
    state_fields: list[str]
    """The fields of a batch that carry it."""
    mode: str
    """The enum of a batch's modes."""
    decode: str
    """Its member for a decode step."""
    requests: list[str]
    request_pools: list[str]
    graph_runners: list[str]
    arguments: list[str]
    """Classes of a server's arguments."""
    algorithm_fields: list[str]
    """Those of their fields that ask for speculation: the algorithm, and what it is given."""
    processing: list[str]
    """The scheduler's functions that are handed a batch and its result."""


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an off step of design A or B strikes, as the code stands."""

    path: str
    order: int
    """The place in a turn of the scheduler's loop, from 1; what stands in one function has its lines' order."""
    stage: str
    """``schedule`` (before the worker is called), ``worker``, ``launch`` (what is done with the result at once), or
    ``result`` (its processing, one step later under overlap)."""
    later: bool
    """Whether it is met a step later than the one that causes it."""
    function: str
    line: int
    exception: str
    expression: str
    where: str
    """``draft state gone`` where it is met only by a batch without one; ``draft state left``; else empty."""


class Made(msgspec.Struct, frozen=True):
    """A place where an object of a class, or of one that inherits it, is made."""

    function: str
    line: int
    guards: list[Guard] = []


class Conditions(msgspec.Struct, kw_only=True):
    """What the conditions of a release hang on, so that they can be asked of one configuration."""

    meanings: dict[str, list[str]] = {}
    """What names stand for, as expressions: attributes set at process start, and small functions (``name()``)."""
    arguments: list[str] = []
    """The server's arguments."""
    defaults: dict[str, str] = {}
    """Their defaults, as expressions, where the class says one."""
    algorithms: dict[str, dict[str, bool]] = {}
    """What the predicates of the algorithm answer, by member: ``spec_algorithm.is_eagle``."""
    made: dict[str, list[Made]] = {}
    """Where objects are made of the classes of which a step chooses one."""


class OffStep(msgspec.Struct, kw_only=True):
    """An off step that the release itself already has (adaptive step 0), and the gates that remain before it."""

    path: str
    function: str
    line: int
    what: str
    gates: list[Place] = []


class Index(msgspec.Struct, kw_only=True):
    """The whole of ``index.json``."""

    schema: str = SCHEMA
    tool: str = ""
    source: Source
    entry_points: dict[str, str | None]
    """``v1`` and ``v2``: the worker method that the scheduler calls each step, or None where the path is absent."""
    unknown_paths: dict[str, str] = {}
    """A path that was not found, where that does not mean that it is absent: why nobody knows."""
    event_loops: list[str] = []
    processes: list[str] = []
    workers: list[Worker] = []
    skipped: list[SkippedFile] = []
    functions: list[Function]
    calls: list[CallEdge]
    unresolved: list[Unresolved]
    fields: list[Field] = []
    tensors: list[Tensor] = []
    coupling_points: list[CouplingPoint] = []
    contract: list[ContractField] = []
    off_steps: list[OffStep] = []
    met: list[Met] = []
    """What an off step strikes, in the order in which it comes there."""
    conditions: Conditions = msgspec.field(default_factory=Conditions)
    step_parts: list[StepParts] = []
    notes: list[str] = []
    """What the analysis could not do on this release, for the reader."""
