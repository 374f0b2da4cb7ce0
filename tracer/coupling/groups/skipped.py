"""Preparation that a plain step gets and an off step does not: what stands past one condition on the process."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, SOFT, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, name, negated, said, shown, slug, write
from sgltrace.coupling.offstep.domain import PROCESS
from sgltrace.coupling.offstep.questions import Skipped
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo

STEP_BATCH = frozenset({"worker_batch", "forward_batch"})


def points(scene: Scene) -> Iterator[Draft]:
    """A point for each condition that keeps an off step from what a plain step does."""
    for found in scene.answers.skipped:
        lost = [a for a in found.unwritten if _read_in_off(scene, a)]
        if lost or _hands_over(scene, found):
            yield _point(scene, found, lost)


def _hands_over(scene: Scene, found: Skipped) -> bool:
    """Whether a batch of another class is made there for the worker."""
    return any(a.kind == "constructor" and scene.questions.flow.role(a.cls) in STEP_BATCH for a in found.writes)


def _read_in_off(scene: Scene, access: Access) -> bool:
    q = scene.questions
    uses = q.flow.fields[access.cls, access.field]
    return any((q.attached.runs(r) or q.detached.runs(r)) and r.function is not access.function for r in uses.reads)


def _kind(scene: Scene, found: Skipped) -> str:
    if _hands_over(scene, found):
        return "worker_dispatch"
    roles = {scene.questions.flow.role(a.cls) for a in found.writes}
    touched = {scene.subject(c) for c, _, _ in scene.questions.steps.sites.out.get(found.function, ())}
    if "scheduler_batch" not in roles and "mamba_state" in touched:
        return "mamba_state"
    if "scheduler_batch" not in roles and roles & {"request", "logits_output"}:
        return "result_format"
    return "kv_alloc" if scene.allocates(found.functions) else "step_preparation"


def _point(scene: Scene, found: Skipped, lost: list[Access]) -> Draft:
    q = scene.questions
    condition = shown(found.condition.test)
    needed = condition if found.condition.holds else negated(condition)
    fields = sorted({f"{a.cls.name}.{a.field}" for a in (lost or found.writes)})
    listed = ", ".join(f"`{f}`" for f in fields[:6]) + (f" and {len(fields) - 6} more" if len(fields) > 6 else "")
    facts = sorted({f.name for f in found.facts})
    kind = _kind(scene, found)
    if found.attached_only:
        state = ", ".join(f"{field}" for field in q.parts.state_fields)
        reason = f"the condition asks the batch: it lets an off step through once {state} is taken off"
        level = NONE
    elif kind == "worker_dispatch":
        reason = f"{name(found.function)} makes {listed.split('.')[0].strip('`')} for a worker only where `{needed}`"
        level = HARD
    else:
        reason = f"nothing else in the off step sets {listed}, and `{needed}` never holds in a speculative process"
        level = HARD if kind == "kv_alloc" or _feeds_forward(scene, lost) else SOFT
    spots = [write(a) for a in (lost or found.writes)]
    calls = [Spot(f, f.line, "runs there in a plain step") for f in found.functions if f.name != "__init__"]
    readers = [r for a in lost for r in q.flow.fields[a.cls, a.field].reads if q.attached.worker.runs(r)]
    why = [
        f"{name(found.function)} line {found.condition.line} decides by `{condition}`.",
        f"Only where `{needed}` does it set {listed}.",
    ]
    there = [f for f in found.functions if f.name != "__init__" and not q.attached.reaches(f)]
    if there:
        why.append(f"{said(there, 'runs')} there, and nowhere in an off step.")
    if readers:
        why.append(f"{said((r.function for r in readers), 'reads')} what is set there.")
    plain_b = (level, reason) if kind != "worker_dispatch" else (NONE, "the worker makes what it runs")
    return Draft(
        kind=kind,
        slug=slug("plain", found.function.qualname.rpartition(".")[0], found.function.name),
        title=_title(scene, found, kind),
        producers=[Spot(found.function, found.condition.line, f"decides by {condition}")]
        + (scene.binders("mamba_state") if kind == "mamba_state" else []),
        consumers=interleaved(spots, calls) + [Spot(r.function, r.line, f"reads {r.field}") for r in readers[:6]]
        if kind != "worker_dispatch"
        else [Spot(f, f.line, "takes the batch") for f in _takers(scene)] + spots,
        binding_time="per step",
        verdicts=scene.verdicts((level, reason), plain_b, (NONE, "the speculative worker prepares its own step")),
        why=why,
        refactor=[
            f"Let `{condition}` ask the batch instead of {', '.join(facts)}, or repeat in the off step what follows."
        ],
        fields=fields,
        weight=9,
    )


def _title(scene: Scene, found: Skipped, kind: str) -> str:
    """What the condition's facts say of it: whether it asks the process, or the batch."""
    function = found.function.name
    if kind == "worker_dispatch":
        return f"{function} hands workers another class of batch in a plain process"
    asks_process = any(fact.scope == PROCESS for fact in found.facts)
    state = " or ".join(scene.questions.parts.state_fields)
    where = "the process does not speculate" if asks_process else f"the batch carries no {state}"
    does = "does its part of" if kind == "result_format" else "prepares"
    return f"{function} {does} a plain step only where {where}"


def _feeds_forward(scene: Scene, lost: list[Access]) -> bool:
    """Whether the target's forward pass, or a later allocation, reads what is lost."""
    q = scene.questions
    return any(
        q.attached.worker.runs(r) or (q.attached.scheduler.runs(r) and scene.allocates([r.function]))
        for a in lost
        for r in q.flow.fields[a.cls, a.field].reads
    )


def _takers(scene: Scene) -> list[FunctionInfo]:
    """The steps of the path's worker and of the target's."""
    parts = scene.questions.parts
    return [parts.entries[scene.path], *([parts.target] if parts.target is not None else [])]
