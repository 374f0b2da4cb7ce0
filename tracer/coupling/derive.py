"""Run every rule over a program, and hand over ranked coupling points."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from sgltrace.coupling.point import Finding, build
from sgltrace.coupling.rank import ranked
from sgltrace.coupling.rules import all_rules
from sgltrace.coupling.source import universe_of
from sgltrace.coupling.universe import Universe
from sgltrace.coupling.vocabulary import Vocabulary, load
from sgltrace.index import Program
from sgltrace.model import ContractField, CouplingPoint, OffStep


@dataclass
class Coupling:
    """What the coupling analysis found. ``timings`` are seconds for each rule, for whoever looks for a slow one."""

    points: list[CouplingPoint]
    contract: list[ContractField] = field(default_factory=list)
    off_steps: list[OffStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)


def derive(program: Program, vocabulary: Vocabulary | None = None) -> Coupling:
    """The coupling points of a resolved program."""
    return from_universe(universe_of(program, vocabulary or load()))


def from_universe(universe: Universe) -> Coupling:
    """The coupling points of a universe that is already made."""
    findings: list[Finding] = []
    timings: dict[str, float] = {}
    for rule in all_rules():
        began = time.perf_counter()
        name = type(rule).__name__
        findings += [dataclasses.replace(f, rule=name) for f in rule.find(universe)]
        timings[name] = time.perf_counter() - began
    built = [(finding, point) for finding in findings if (point := build(universe, finding)) is not None]
    return Coupling(ranked(built), timings=timings)
