"""Tokens: a plain step's sampler and speculation's own code each turn logits into tokens, by what they read."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import NONE, SOFT, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, said, slug
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo

ROLE = "sampling_info"


def points(scene: Scene) -> Iterator[Draft]:
    """One point: the parameters that only one of the two applies, or that both apply by code of their own."""
    plain = _reads(scene, only_plain=True)
    on = _reads(scene, only_plain=False)
    if not plain or not on:
        return
    lost = sorted({a.field for a in plain} - {a.field for a in on})
    shared = sorted({a.field for a in plain} & {a.field for a in on})
    listed = scene.listed(f"`{f}`" for f in lost)
    if lost:
        does = said((a.function for a in on), "does")
        level, reason = SOFT, f"{does} not read {listed}, and an off step applies them"
    else:
        level, reason = NONE, f"{said((a.function for a in on), 'applies')} the same parameters"
    applied = scene.listed(f"`{f}`" for f in (lost or shared))
    alike = f" by {scene.listed(f'`{f}`' for f in shared)}" if shared else ""
    why = [
        f"In an off step {said((a.function for a in plain), 'samples')} by {applied}.",
        f"In a step with speculation {said((a.function for a in on), 'samples')}{alike}.",
    ]
    if lost:
        why.append(f"{listed}: read in an off step only.")
    yield Draft(
        kind="sampling",
        slug=slug("sampled"),
        title=f"Speculation samples without {scene.listed(lost)}" if lost else "Speculation samples by code of its own",
        producers=[Spot(a.function, a.line, f"reads {a.field}") for a in on],
        consumers=interleaved(
            [Spot(a.function, a.line, f"reads {a.field}") for a in plain if a.field in lost],
            [Spot(a.function, a.line, f"reads {a.field}") for a in plain if a.field not in lost],
        ),
        binding_time="per step",
        verdicts=scene.verdicts(
            (level, reason), (level, reason), (NONE, "verify samples as in each step with speculation")
        ),
        why=why,
        refactor=["Apply the same parameters in both kinds of step, or say that a request's distribution changes."],
        fields=[f"{a.cls.name}.{a.field}" for a in plain if a.field in (lost or shared)],
        condition="sampling other than greedy",
        weight=3,
    )


def _reads(scene: Scene, only_plain: bool) -> list[Access]:
    """The reads of sampling parameters by the sampler of an off step, and by speculation's own code."""
    q = scene.questions
    called: set[FunctionInfo] = set()
    if not only_plain:
        level = {f for f in q.on.worker.readings if f in q.parts.own}
        for _ in range(2):
            level = {c for f in level for c, _, _ in q.steps.sites.out.get(f, ()) if scene.subject(c) == "sampling"}
            called |= level
    found = []
    for uses in q.flow.of_role(ROLE):
        for access in uses.reads:
            own = access.function in q.parts.own or access.function in called
            sampler = scene.subject(access.function) == "sampling" and q.attached.worker.runs(access)
            if (sampler and not own) if only_plain else (own and q.on.worker.runs(access)):
                found.append(access)
    return found
