"""State that a plain step and one with speculation each keep up by code of their own: an off step runs neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, SOFT, Draft, interleaved
from sgltrace.coupling.groups.kinds import kind_of
from sgltrace.coupling.groups.scene import Scene, names, read, said, slug, write
from sgltrace.coupling.offstep.questions import Split
from sgltrace.index.fields import Access


def points(scene: Scene) -> Iterator[Draft]:
    """A point for each kind of state of a class."""
    groups: dict[tuple[str, str], list[Split]] = defaultdict(list)
    for found in scene.answers.split:
        if (
            found.plain[0].function is not found.on[0].function
            or len({a.function for a in (*found.plain, *found.on)}) > 1
        ):
            groups[kind_of(scene, found.uses), found.uses.cls.name].append(found)
    for (kind, cls), members in sorted(groups.items()):
        yield _point(scene, kind, cls, members)


def _point(scene: Scene, kind: str, cls: str, members: list[Split]) -> Draft:
    q = scene.questions
    plain = [a for m in members for a in m.plain]
    on = [a for m in members for a in m.on]
    reads = [a for m in members for a in (*m.reads, *_of_copies(scene, m))]
    fields = sorted(m.uses.field for m in members)
    listed = ", ".join(f"`{f}`" for f in fields[:4]) + (f" and {len(fields) - 4} more" if len(fields) > 4 else "")
    writers = {a.function for a in (*plain, *on)}
    outside = [a for a in reads if a.function not in writers]
    always = [a for a in outside if q.attached.worker.runs(a) or scene.handles_slots(a.function) or _always(scene, a)]
    level = (
        HARD
        if always and kind not in ("sampling", "metrics", "logprob", "request_state")
        else SOFT
        if outside
        else NONE
    )
    shared = [a for m in members for a in m.kept if q.attached.scheduler.always(a)]
    reason = (
        f"in an off step neither {names((a.function for a in plain), 2)} nor {names((a.function for a in on), 2)} "
        f"sets {listed} as its own step does"
    )
    why = [
        f"In a plain step {said((a.function for a in plain), 'sets')} {listed}.",
        f"In a step with speculation {said((a.function for a in on), 'does')}.",
    ]
    if outside:
        why.append(f"{said((a.function for a in outside), 'reads')} {'it' if len(fields) == 1 else 'them'} in either.")
    if shared:
        why.append(f"Leave alone what {said((a.function for a in shared), 'sets')}: that runs in an off step, too.")
    return Draft(
        kind=kind,
        slug=slug("regimes", cls),
        title=f"{_head(fields)} of {cls} {'is' if len(fields) == 1 else 'are'} kept up by each regime on its own",
        producers=[write(a) for pair in zip(on, plain, strict=False) for a in pair] + [write(a) for a in (*on, *plain)],
        consumers=interleaved(
            [read(a) for a in (*always, *outside)] or [read(a) for a in reads], [write(a) for a in plain]
        ),
        binding_time="per step",
        verdicts=scene.verdicts(
            (level, reason), (level, reason), (NONE, "the speculative step's own code keeps it up")
        ),
        why=why,
        refactor=[f"Do in the off step what {said((a.function for a in plain), 'does')} for {listed}."],
        fields=[f"{cls}.{f}" for f in fields],
        weight=8 if level == HARD else 4,
    )


def _of_copies(scene: Scene, member: Split) -> list[Access]:
    """The reads of the batch's copies, where the field is one of a batch."""
    q = scene.questions
    if member.uses.cls not in q.parts.batches:
        return []
    copies = [
        u
        for cls in q.parts.batches
        if (u := q.flow.fields.get((cls, member.uses.field))) and cls is not member.uses.cls
    ]
    return [a for u in copies for a in u.reads if q.attached.worker.runs(a)]


def _always(scene: Scene, access: Access) -> bool:
    q = scene.questions
    return any(run.runs(access) and run.always(access) for run in q.attached.runs_)


def _head(fields: list[str]) -> str:
    return ", ".join(fields[:3]) + (f" and {len(fields) - 3} more" if len(fields) > 3 else "")
