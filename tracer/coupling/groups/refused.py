"""Refusals: what raises in an off step, and neither in a plain step nor in one with speculation."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, shown, slug, strike
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """A point for each ``raise`` or assertion."""
    for found in scene.answers.refusals:
        x = found.strike
        facts = sorted({f.name for f in x.facts})
        chain = scene.questions.program.guards(x.function).at(x.node)
        tests = [c for c in chain if c.test is not None]
        when = (
            ""
            if found.detached and found.attached
            else (
                "where the batch carries no draft state"
                if found.detached
                else "where the batch carries the draft's state"
            )
        )
        asked = f" by `{shown(tests[-1].test)}`" if tests else ""
        reason = f"{name(x.function)} line {x.line} raises {x.exception}{asked}" + (f", {when}" if when else "")
        yield Draft(
            kind="refusal",
            slug=slug(x.function.qualname, x.exception),
            title=f"{x.function.name} refuses a step without a draft",
            producers=[
                *([Spot(x.function, c.line, f"asks {shown(c.test)}") for c in tests] or [strike(x)]),
                *(Spot(f, line, f"calls {x.function.name}") for f, line in _callers(scene, x.function)),
            ],
            consumers=[strike(x)],
            binding_time="per step",
            verdicts=scene.verdicts((HARD, reason), (HARD, reason), (NONE, "a step with speculation does not meet it")),
            why=[f"{reason[0].upper()}{reason[1:]}.", f"It follows from {', '.join(f'`{f}`' for f in facts)}."],
            refactor=["Let it ask whether this step speculates."],
            fields=[f for f in facts if "." in f],
            condition=when or "always",
            weight=8,
        )


def _callers(scene: Scene, function: FunctionInfo) -> list[tuple[FunctionInfo, int]]:
    """Where the off step calls a function."""
    q = scene.questions
    return [
        (caller, call.line)
        for caller, call in q.steps.sites.callers.get(function, [])
        if q.detached.reaches(caller) or q.attached.reaches(caller)
    ]
