"""Run every rule over a program, and hand over ranked coupling points."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sgltrace.coupling.contract import contract
from sgltrace.coupling.offsteps import off_steps
from sgltrace.coupling.point import Finding, build
from sgltrace.coupling.rank import ranked
from sgltrace.coupling.rules import all_rules
from sgltrace.coupling.source import universe_of
from sgltrace.coupling.universe import Universe
from sgltrace.coupling.vocabulary import Vocabulary, load
from sgltrace.index import Program
from sgltrace.model import ContractField, CouplingPoint, OffStep, Tensor


@dataclass
class Coupling:
    """What the coupling analysis found. ``timings`` are seconds for each rule, for whoever looks for a slow one."""

    points: list[CouplingPoint]
    contract: list[ContractField] = field(default_factory=list)
    off_steps: list[OffStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)


def derive(
    program: Program, tensors: Callable[[], Sequence[Tensor]] = tuple, vocabulary: Vocabulary | None = None
) -> Coupling:
    """The coupling points, the contract and the off steps of a resolved program.

    ``tensors`` gives what the shape interpreter derived, for the shapes of the contract; it is asked last.
    """
    return from_universe(universe_of(program, vocabulary or load()), tensors)


def from_universe(universe: Universe, tensors: Callable[[], Sequence[Tensor]] = tuple) -> Coupling:
    """The same of a universe that is already made."""
    findings: list[Finding] = []
    timings: dict[str, float] = {}
    for rule in all_rules():
        began = time.perf_counter()
        name = type(rule).__name__
        findings += [dataclasses.replace(f, rule=name) for f in rule.find(universe)]
        timings[name] = time.perf_counter() - began
    own = off_steps(universe)
    done = frozenset(step.path for step in own)
    built = [(finding, point) for finding in findings if (point := build(universe, finding, done)) is not None]
    return Coupling(ranked(built), contract(universe, tensors()), own, _notes(universe, own), timings)


def _notes(universe: Universe, own: list[OffStep]) -> list[str]:
    """What the coupling analysis could not do on this tree."""
    notes = []
    if not universe.predicates.algorithm:
        notes.append("No class of speculative algorithms was found: conditions on the algorithm are not told apart.")
    for path in sorted({step.path for step in own}):
        gates = max(len(step.gates) for step in own if step.path == path)
        notes.append(
            f"This release has an off step of its own on {path}, design C, behind {gates} gates: "
            "what is hard for C is taken care of there."
        )
    return notes
