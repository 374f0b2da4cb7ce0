"""The runtime half: run a server under the probe, and read what it recorded.

This is the door for the rest of sgltrace; everything else in the package may change.

``run`` starts a launch command under the probe; ``diagnose`` says beforehand what it would do. ``read_trace`` opens a
trace, ``steps`` and ``calls`` put its records in order, ``observations``, ``rank_differences`` and ``sharing`` are what
is joined with an index, ``export_perfetto`` makes a timeline. ``register`` adds the commands.
"""

from __future__ import annotations

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
    Value,
)
from .observe import observations, rank_differences, sharing
from .perfetto import export_perfetto
from .plan import Options, Plan, Site
from .session import RunOptions, Session, run
from .show import crash
from .steps import Call, Step, calls, steps
from .trace import ProcessTrace, Trace, read_trace

__all__ = [
    "Call",
    "CallPair",
    "Diagnosis",
    "Enumerated",
    "ListValue",
    "ObjectValue",
    "Observation",
    "Opaque",
    "Options",
    "Plan",
    "ProcessTrace",
    "RankDifference",
    "RunOptions",
    "Session",
    "Sharing",
    "Site",
    "Step",
    "TensorValue",
    "Trace",
    "Value",
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
