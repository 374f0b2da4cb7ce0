"""Run the off steps over a program, and hand over ranked coupling points, the contract and the off steps it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sgltrace.coupling.algorithms import algorithm_answers
from sgltrace.coupling.groups import Scene, drafts
from sgltrace.coupling.groups.contract import contract
from sgltrace.coupling.groups.met import meets
from sgltrace.coupling.groups.taking_part import step_parts
from sgltrace.coupling.offstep.lookup import Sites
from sgltrace.coupling.offstep.own import off_steps
from sgltrace.coupling.offstep.parts import Parts, find_parts
from sgltrace.coupling.offstep.questions import Questions
from sgltrace.coupling.offstep.steps import Steps
from sgltrace.coupling.rank import ranked
from sgltrace.coupling.vocabulary import Vocabulary, load
from sgltrace.index import Program
from sgltrace.index.fields import FieldFlow
from sgltrace.index.fields.tracked import roles as tracked_roles
from sgltrace.index.program.vocabulary import roles
from sgltrace.model import ContractField, CouplingPoint, Met, OffStep, StepParts, Tensor


@dataclass
class Coupling:
    """What the coupling analysis found. ``timings`` are seconds for each part, for whoever looks for a slow one."""

    points: list[CouplingPoint]
    contract: list[ContractField] = field(default_factory=list)
    off_steps: list[OffStep] = field(default_factory=list)
    step_parts: list[StepParts] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    algorithms: dict[str, dict[str, bool]] = field(default_factory=dict)
    """What the algorithm's predicates answer for each of its members."""
    met: list[Met] = field(default_factory=list)
    """What an off step strikes, in order."""


def derive(
    program: Program,
    flow: FieldFlow,
    tensors: Callable[[], Sequence[Tensor]] = tuple,
    vocabulary: Vocabulary | None = None,
) -> Coupling:
    """The coupling points, the contract and the off steps of a resolved program.

    ``tensors`` gives what the shape interpreter derived, for the shapes of the contract; it is asked last.
    """
    words = vocabulary or load()
    timings: dict[str, float] = {}
    began = time.perf_counter()
    sites = Sites(program)
    parts = find_parts(program, flow, sites, roles(), words)
    steps = Steps(program, flow, sites, parts, words)
    asked = [Questions(steps, path) for path in steps.paths] if parts.target is not None else []
    own = off_steps(steps)
    done = {step.path for step in own}
    scenes = [Scene(questions, questions.answers(), questions.path in done) for questions in asked]
    timings["off steps"] = time.perf_counter() - began
    began = time.perf_counter()
    points = ranked([(draft.weight, draft.point()) for draft in drafts(scenes)])
    timings["points"] = time.perf_counter() - began
    notes = [*_notes(parts, own), *_parts(parts, flow)]
    answers = algorithm_answers(program, flow, sites, parts)
    struck = [met for scene in scenes for met in meets(scene)]
    taking_part = step_parts(scenes, words)
    return Coupling(points, contract(scenes, tensors()), own, taking_part, notes, timings, answers, struck)


def _parts(parts: Parts, flow: FieldFlow) -> list[str]:
    """Which parts were not found, and which under names that are new."""
    notes = [f"{note[0].upper()}{note[1:]}." for note in parts.notes]
    known = tracked_roles()
    for cls, role in sorted(flow.tracked.derived.items(), key=lambda item: item[0].id):
        if role == "draft_input" and cls not in parts.state_classes:
            continue
        notes.append(f"{cls.name} is taken for the {known[role].title}: no class has one of its known names.")
    return notes


def _notes(parts: Parts, own: list[OffStep]) -> list[str]:
    """What the coupling analysis could not do on this tree."""
    notes = []
    if parts.algorithm is None:
        notes.append("No class of speculative algorithms was found: conditions on the algorithm are not told apart.")
    for path in sorted({step.path for step in own}):
        gates = max(len(step.gates) for step in own if step.path == path)
        notes.append(
            f"This release has an off step of its own on {path}, design C, behind {gates} gates: "
            "what is hard for C is taken care of there."
        )
    return notes
