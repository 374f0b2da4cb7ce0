"""The runtime half: run a server under the probe, and read what it recorded.

This is the door for the rest of sgltrace; everything else in the package may change.

``run`` starts a launch command under the probe; ``diagnose`` says beforehand what it would do. ``read_trace`` opens a
trace, ``steps`` and ``calls`` put its records in order, ``observations``, ``rank_differences`` and ``sharing`` are what
is joined with an index, ``export_perfetto`` makes a timeline. ``register`` adds the commands.
"""

from __future__ import annotations

from .aggregate import Aggregate, Aggregator, aggregate, aggregates, aggregator
from .commands import register
from .doctor import Diagnosis, diagnose
from .observations import (
    CallPair,
    Enumerated,
    ListValue,
    ObjectValue,
    Observation,
    Opaque,
    RankDifference,
    Sharing,
    TensorValue,
    Unset,
    Value,
)
from .observe import Observer, RankComparer, ShareFinder, observations, rank_differences, sharing
from .perfetto import export_perfetto
from .plan import Options, Plan, Site
from .session import RunOptions, Session, run
from .show import crash
from .step import DECODE, Call, Step
from .steps import by_step, calls, steps
from .switches import AfterSwitch
from .trace import ProcessTrace, Trace, read_trace

__all__ = [
    "DECODE",
    "AfterSwitch",
    "Aggregate",
    "Aggregator",
    "Call",
    "CallPair",
    "Diagnosis",
    "Enumerated",
    "ListValue",
    "ObjectValue",
    "Observation",
    "Observer",
    "Opaque",
    "Options",
    "Plan",
    "ProcessTrace",
    "RankComparer",
    "RankDifference",
    "RunOptions",
    "Session",
    "ShareFinder",
    "Sharing",
    "Site",
    "Step",
    "TensorValue",
    "Trace",
    "Unset",
    "Value",
    "aggregate",
    "aggregates",
    "aggregator",
    "by_step",
    "calls",
    "crash",
    "diagnose",
    "export_perfetto",
    "observations",
    "rank_differences",
    "read_trace",
    "register",
    "run",
    "sharing",
    "steps",
]
