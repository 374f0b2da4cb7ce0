"""Choices of a stage: fields of a batch that speculation's own code sets to another member of an enum."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import NONE, SOFT, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, said, slug, write
from sgltrace.coupling.offstep.questions import is_kept, is_reset
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.values import ClassRef


def points(scene: Scene) -> Iterator[Draft]:
    """One point for each enum."""
    q = scene.questions
    groups: dict[ClassInfo, list[Access]] = defaultdict(list)
    for cls in (*q.parts.batches, *q.parts.state_classes):
        for (owner, _), uses in q.flow.fields.items():
            if owner is not cls:
                continue
            for access in uses.writes:
                enum = _enum(scene, access)
                own = access.function in q.parts.own or access.function in q.parts.all_entries
                if enum is not None and own and q.on.runs(access):
                    groups[enum].append(access)
    for enum, writes in sorted(groups.items(), key=lambda item: item[0].id):
        yield from _point(scene, enum, writes)
    yield from _cleared(
        scene, [f for enum in groups if enum is not q.parts.mode for f, _ in _askers(scene, enum, set())]
    )


def _cleared(scene: Scene, askers: list[FunctionInfo]) -> Iterator[Draft]:
    """Fields of the scheduler's batch that speculation's own code clears, and nobody sets again in a step."""
    q = scene.questions
    for uses in q.flow.of_role("scheduler_batch"):
        resets = [a for a in uses.writes if is_reset(a) and a.function in q.parts.own and q.on.runs(a)]
        again = [
            a for a in uses.writes if a not in resets and a.kind != "default" and (q.on.runs(a) or q.attached.runs(a))
        ]
        reads = [a for a in uses.reads if q.attached.runs(a) and a.function not in q.parts.own]
        if not resets or [a for a in again if not is_kept(a)] or not reads or uses.field in q.parts.state_fields:
            continue
        clears = said((a.function for a in resets), "clears")
        reason = f"{clears} `{uses.name}`, and nothing in a later step sets it again"
        yield Draft(
            kind="hidden_capture" if any(a.function in askers for a in reads) else "step_state",
            slug=slug("cleared", uses.field),
            title=f"{uses.field} is cleared by speculation's own code, and stays so",
            producers=[write(a) for a in resets],
            consumers=[Spot(a.function, a.line, f"reads {a.field}") for a in reads],
            binding_time="per step",
            verdicts=scene.verdicts((SOFT, reason), (SOFT, reason), (NONE, "the step clears it itself")),
            why=[
                f"{clears} `{uses.name}`.",
                f"{said((a.function for a in reads), 'reads')} it in an off step.",
            ],
            refactor=[f"Keep what `{uses.field}` was, and set it before an off step."],
            fields=[uses.name],
            weight=3,
        )


def _enum(scene: Scene, access: Access) -> ClassInfo | None:
    """The enum whose member is written."""
    value = access.value
    if not isinstance(value, s.Attr):
        return None
    for found in scene.questions.program.types(value.value, access.function):
        if isinstance(found, ClassRef) and found.cls.is_enum:
            return found.cls
    return None


def _askers(scene: Scene, enum: ClassInfo, fields: set[str]) -> list[tuple[FunctionInfo, int]]:
    """Shared code of a step that goes by a member."""
    q = scene.questions
    methods = set(enum.functions)
    found: dict[tuple[FunctionInfo, int], None] = {}
    for function in sorted({*q.on.worker.readings, *q.on.scheduler.readings, *scene.shared}, key=lambda f: f.id):
        if function in q.parts.own:
            continue
        for node in scene.expressions(function):
            if isinstance(node, s.Attr) and (
                (node.attr in methods and isinstance(node.value, s.Attr) and node.value.attr in fields)
                or (isinstance(node.value, s.Name) and node.value.id == enum.name)
                or node.attr in fields
            ):
                found[function, s.line_of(node)] = None
    return sorted(found, key=lambda item: (item[0].id, item[1]))


def _point(scene: Scene, enum: ClassInfo, writes: list[Access]) -> Iterator[Draft]:
    q = scene.questions
    fields = {a.field for a in writes}
    askers = _askers(scene, enum, fields)
    if not askers:
        return
    is_mode = enum is q.parts.mode
    anew = [
        a
        for cls in q.parts.batches
        for name_ in fields
        if (uses := q.flow.fields.get((cls, name_))) is not None
        for a in uses.writes
        if q.attached.runs(a) and q.detached.runs(a) and a not in writes and a.kind != "default"
    ]
    members = sorted({a.value.attr for a in writes if isinstance(a.value, s.Attr)})
    listed = scene.listed(sorted(fields))
    if is_mode and anew:
        level = (NONE, f"{said((a.function for a in anew), 'sets')} it anew in an off step")
    elif is_mode:
        level = (SOFT, f"nothing in an off step sets {listed} anew")
    else:
        level = (
            SOFT,
            f"only {said((a.function for a in writes), 'sets')} {listed} to {scene.listed(members)}: an off step asks "
            "for no more than its requests do",
        )
    yield Draft(
        kind="forward_mode" if is_mode else "hidden_capture" if _keeps(scene, askers) else "step_state",
        slug=slug("chosen", enum.name),
        title=f"The stages of speculation set {listed} to {scene.listed(members)}",
        producers=[write(a) for a in writes] + [write(a) for a in anew],
        consumers=interleaved(
            [
                Spot(f, line, f"goes by {enum.name}")
                for f, line in askers
                if scene.subject(f) in ("hidden_capture", "cuda_graph")
            ],
            [
                Spot(f, line, f"goes by {enum.name}")
                for f, line in askers
                if scene.subject(f) not in ("hidden_capture", "cuda_graph")
            ],
        )
        + [write(a) for a in writes],
        binding_time="per step",
        verdicts=scene.verdicts(level, level, level if not is_mode else (NONE, "verify sets its own")),
        why=[
            f"In a step with speculation {said((a.function for a in writes), 'sets')} {listed}.",
            f"{said((f for f, _ in askers), 'goes')} by it.",
        ],
        refactor=[f"Set {listed} in the off step to what is needed of it."],
        fields=sorted({f"{a.cls.name}.{a.field}" for a in writes}),
        weight=2 if level[0] == SOFT else 0,
    )


def _keeps(scene: Scene, askers: list[tuple[FunctionInfo, int]]) -> bool:
    """Whether what is kept of a forward pass depends on it."""
    q = scene.questions
    return any(
        q.flow.role(callee) == "logits_output"
        for f, _ in askers
        for callee, _ in q.program.engine.constructed.get(f, ())
    ) or any(scene.subject(f) == "hidden_capture" for f, _ in askers)
