"""The draft's state left on the batch: conditions of the target's forward pass that then take a draft's way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot, component, interleaved
from sgltrace.coupling.groups.scene import Scene, name, said, shown, slug, write
from sgltrace.coupling.offstep.domain import BATCH
from sgltrace.coupling.offstep.questions import Taken


def points(scene: Scene) -> Iterator[Draft]:
    """One point for the target's forward pass, by whether a batch is made there."""
    groups: dict[str, list[Taken]] = defaultdict(list)
    for found in scene.answers.taken:
        run = scene.questions.attached.worker
        if found.attached_only and found.function in run and any(f.scope == BATCH for f in found.facts):
            owner = found.function.owner
            groups["batch" if owner in scene.questions.parts.batches else "forward"].append(found)
    for where, members in sorted(groups.items()):
        yield _point(scene, where, members)


def _point(scene: Scene, where: str, members: list[Taken]) -> Draft:
    q = scene.questions
    fields = sorted({f.name for m in members for f in m.facts if f.scope == BATCH})
    first = members[0]
    reason = (
        f"with `{fields[0]}` left in place, {name(first.function)} line {first.line} takes the way of a draft step "
        f"(`{shown(first.test)}`)"
    )
    writers = [
        a
        for cls in q.parts.batches
        for f in q.parts.state_fields
        if (cls, f) in q.flow.fields
        for a in q.flow.fields[cls, f].writes
        if a.kind != "default" and (q.on.runs(a) or q.attached.runs(a)) and q.attached.runs(a)
    ]
    return Draft(
        kind="attn_metadata",
        slug=slug("attached", where),
        title="A decode with the draft's state attached is taken for a draft step"
        if where == "forward"
        else "The batch of a forward pass is made from the draft's state where one is attached",
        producers=interleaved(
            [Spot(a.function, a.line, f"hands on {a.field}") for a in writers], _sources(scene, members)
        )
        or [Spot(first.function, first.line, "decides by it")],
        consumers=[Spot(m.function, m.line, f"decides by {shown(m.test)}") for m in members],
        binding_time="per step",
        verdicts=scene.verdicts((HARD, reason), (HARD, reason), (NONE, "verify replaces the draft's state by its own")),
        why=[
            f"{said((m.function for m in members), 'asks')} for the draft's state: an off step goes another way there.",
            f"Components: {', '.join(sorted({component(m.function) for m in members} - {''}))}.",
        ],
        refactor=["Take the draft's state off the batch that the target runs on, and keep it on the scheduler's."],
        fields=fields,
        condition="where the batch that runs carries the draft's state",
        weight=8,
    )


def _sources(scene: Scene, members: list[Taken]) -> list[Spot]:
    """Who sets, in a step with speculation, what these functions then take from the draft's state."""
    q = scene.questions
    taken = {
        (a.cls, a.field)
        for m in members
        for a in q.flow.by_function.get(m.function, [])
        if not a.is_write and a.cls in q.parts.state_classes
    }
    return [
        write(a)
        for key in sorted(taken, key=lambda key: (key[0].id, key[1]))
        for a in q.flow.fields[key].writes
        if a.function in q.parts.own and q.on.worker.runs(a)
    ]
