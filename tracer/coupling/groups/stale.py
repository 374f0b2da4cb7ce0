"""State that only steps with speculation keep up: after an off step it belongs to an older token, or is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, SOFT, Draft, Spot
from sgltrace.coupling.groups.kinds import kind_of
from sgltrace.coupling.groups.scene import Scene, read, said, slug, write
from sgltrace.coupling.offstep.order import NEVER
from sgltrace.coupling.offstep.questions import Stale
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """Of the draft's state a point for what the draft makes and one for what verify makes; else one for each kind."""
    groups: dict[tuple[str, str, bool], list[Stale]] = defaultdict(list)
    for found in scene.answers.stale:
        verified = found.carried and all(scene.verifies(a.function) for a in found.writes if _in_step(scene, a))
        figures = not found.carried and not found.asserted and _counter(found) and found.uses.role == "request"
        kind = "metrics" if figures else kind_of(scene, found.uses)
        groups[kind, found.uses.cls.name, verified].append(found)
    for (kind, cls, verified), members in sorted(groups.items()):
        yield _point(scene, kind, cls, verified, members)


def _in_step(scene: Scene, access: Access) -> bool:
    """Whether a write belongs to a decode step: not to the prefill that comes before."""
    q = scene.questions
    return q.order.of(access) < NEVER or q.on.scheduler.runs(access)


def _point(scene: Scene, kind: str, cls: str, verified: bool, members: list[Stale]) -> Draft:
    writes = [a for m in members for a in m.writes if _in_step(scene, a)] or [a for m in members for a in m.writes]
    reads = [a for m in members for a in m.reads]
    fields = sorted({m.uses.field for m in members})
    carried = any(m.carried for m in members)
    asserted = [a for m in members for a in m.asserted]
    level = HARD if carried or asserted or _steers(scene, members) else SOFT
    primed = carried and all(m.primed for m in members)
    listed = ", ".join(f"`{f}`" for f in fields[:4]) + (f" and {len(fields) - 4} more" if len(fields) > 4 else "")
    it = "it" if len(fields) == 1 else "them"
    only = "only " if all(m.alone for m in members) else ""
    moved = f"{only}{said((a.function for a in writes), 'moves' if asserted else 'sets')} {listed}"
    if asserted:
        reason = f"{moved} on, and {said((a.function for a in asserted), 'asserts')} on it"
    else:
        reason = f"{moved}: an off step leaves {it} at an older token, or missing"
    for_c = (
        (NONE, "verify itself sets it")
        if verified or not carried
        else (SOFT, f"where the release's own step without drafts skips the draft's extend, {reason}")
        if scene.own_off
        else (HARD, f"as long as the draft's extend is skipped, {reason}")
    )
    if primed:
        level, reason = NONE, "the next draft starts without a draft state where the batch carries none"
    why = [
        f"In a decode step {only}{said((a.function for a in writes), 'sets')} {listed}.",
        f"{said((a.function for a in reads), 'reads')} {it} in a later step.",
    ]
    if asserted:
        why.append(f"{said((a.function for a in asserted), 'raises')} AssertionError where it was not moved on.")
    return Draft(
        kind=kind,
        slug=slug("verify" if verified else "draft" if carried else "speculative", cls),
        title=f"{', '.join(fields[:3])}{' ...' if len(fields) > 3 else ''} of {cls} "
        + (
            "must be recorded before the scheduler waits for it"
            if kind == "stream_order"
            else "must be valid when the next step drafts"
            if carried
            else "only moves on in steps with speculation"
        ),
        producers=[write(a) for a in writes],
        consumers=[read(a) for a in (*asserted, *reads)]
        + ([Spot(f, line, w) for f, line, w in _sent(scene, fields)] if kind == "metrics" else []),
        binding_time="per step",
        verdicts=scene.verdicts((level, reason), (level, reason), for_c if level == HARD else (level, reason)),
        why=why,
        refactor=[f"Set {listed} in the off step for each request, or mark it and set it before the next draft."],
        fields=[f"{cls}.{f}" for f in fields],
        weight=9 if carried else 7 if asserted else 3,
    )


def _sent(scene: Scene, fields: list[str]) -> Iterator[tuple[FunctionInfo, int, str]]:
    """Who reads figures of these names outside of a step: they were sent there."""
    for field in fields:
        for function in sorted(scene.marks.loading(field), key=lambda f: f.id):
            if not scene.in_step(function) and function not in scene.questions.parts.own:
                yield function, function.line, f"reads {field} of what was sent"


def _steers(scene: Scene, members: list[Stale]) -> bool:
    """Whether what is read decides what a later step does: an allocation, or the worker's own step."""
    q = scene.questions
    return any(
        not _counter(m) and (q.on.worker.runs(a) or (scene.handles_slots(a.function) and q.attached.scheduler.runs(a)))
        for m in members
        for a in m.reads
    )


def _counter(member: Stale) -> bool:
    return all(a.kind in ("augment", "in-place") for a in member.writes)
