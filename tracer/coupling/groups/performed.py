"""Effects that a plain step and one with speculation each have by code of their own: an off step has neither."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import ALWAYS, NONE, SOFT, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, names, said, slug
from sgltrace.coupling.offstep.run import Run
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo

Places = dict[FunctionInfo, list[tuple[FunctionInfo, s.Call]]]
ON_ITS_OWN = {"request": "request_state", "scheduler_batch": "kv_bookkeeping", "sampling_info": "sampling"}


def points(scene: Scene) -> Iterator[Draft]:
    """One point for the effects on one class."""
    q = scene.questions
    plain, on = _effects(scene, q.plain.scheduler), _effects(scene, q.on.scheduler, q.on.worker)
    off = {callee for step in scene.off for callee in _effects(scene, *step.runs_, completed=True)}
    groups: dict[str, list[FunctionInfo]] = defaultdict(list)
    missing = {f for f in plain.keys() - off if f in on or _lasts(scene, f)}
    missing = {f for f in missing if _changes(scene, f)}
    inner = {f for f in missing if all(caller in missing for caller, _ in plain[f])}
    for callee in sorted(missing - inner, key=lambda f: f.id):
        if callee.owner is None or callee in q.parts.own or callee.is_abstract or callee.name == "__init__":
            continue
        if q.flow.role(callee.owner) in ("scheduler", "kv_allocator", "request_pool", "server_args"):
            continue  # who takes and frees slots is asked by field
        order = q.program.engine.classes.mro(callee.owner)
        root = next((c for c in reversed(order) if callee.name in c.functions), callee.owner)
        groups[root.name].append(callee)
    for cls, callees in sorted(groups.items()):
        yield _point(scene, cls, callees, plain, on)


def _effects(scene: Scene, *runs: Run, completed: bool = False) -> Places:
    out: Places = defaultdict(list)
    for run in runs:
        for function, reading in run.readings.items():
            for call in scene.marks.effects(function):
                if id(call) in reading.seen and not (completed and id(call) in reading.behind):
                    for callee, _ in scene.questions.steps.sites.called(call, function):
                        out[callee].append((function, call))
    return out


def _lasts(scene: Scene, function: FunctionInfo) -> bool:
    """Whether a function keeps something for what a request samples, besides what fields tell."""
    return scene.subject(function) in ("sampling", "grammar")


def _changes(scene: Scene, function: FunctionInfo, depth: int = 2) -> bool:
    """Whether a function changes something, itself or through what it calls."""
    if any(a.is_write for a in scene.questions.flow.by_function.get(function, [])):
        return True
    for statement in s.nested(function.body):
        targets = statement.targets if isinstance(statement, s.Assign) else []
        if isinstance(statement, s.AugAssign):
            targets = [statement.target]
        if any(isinstance(x, (s.Attr, s.Sub)) for x in targets):
            return True
    out = scene.questions.steps.sites.out.get(function, ())
    return depth > 0 and any(_changes(scene, c, depth - 1) for c, _, _ in out)


def _point(scene: Scene, cls: str, callees: list[FunctionInfo], plain: Places, on: Places) -> Draft:
    q = scene.questions
    by_plain = [(f, call, c) for c in callees for f, call in plain[c]]
    by_on = [(f, call, c) for c in callees for f, call in on.get(c, ())]
    owner, one = callees[0].owner, len({c.name for c in callees}) == 1
    kind = scene.subject(callees[0]) or ""
    kind = ON_ITS_OWN.get(q.flow.role(owner) or "" if owner else "", kind) or "step_state"
    listed = scene.listed(c.name for c in callees)
    plainly = f"{said((f for f, _, _ in by_plain), 'calls', 2)} {listed} in a plain step"
    reason = (
        f"in an off step neither {names((f for f, _, _ in by_plain), 2)} nor {names((f for f, _, _ in by_on), 2)} "
        f"calls {listed}"
        if by_on
        else f"{plainly}, and nothing does in a step with speculation, or in an off step"
    )
    return Draft(
        kind=kind,
        slug=slug("performed", cls),
        title=f"{listed} of {cls} {'is' if one else 'are'} called by each regime on its own"
        if by_on
        else f"{listed} of {cls} {'is' if one else 'are'} called in plain steps only",
        producers=interleaved(
            [Spot(f, call.line, f"calls {c.name} in a step with speculation") for f, call, c in by_on],
            [Spot(f, call.line, f"calls {c.name} in a plain step") for f, call, c in by_plain],
        ),
        consumers=[Spot(c, c.line, "is not run in an off step") for c in callees]
        + [Spot(f, line, f"reads {field}") for f, line, field in _readers(scene, callees)],
        binding_time="per step",
        verdicts=scene.verdicts((SOFT, reason), (SOFT, reason), (NONE, "the step is one with speculation")),
        why=[
            f"In a plain step {said((f for f, _, _ in by_plain), 'calls')} {listed}.",
            f"In a step with speculation {said((f for f, _, _ in by_on), 'does')}."
            if by_on
            else "In a step with speculation nothing does.",
        ],
        refactor=[f"Call {listed} in the off step, once."],
        fields=[],
        condition="penalties in use" if kind == "sampling" else ALWAYS,
        weight=4,
    )


def _readers(scene: Scene, callees: list[FunctionInfo]) -> Iterator[tuple[FunctionInfo, int, str]]:
    """Who reads in an off step what these functions write."""
    q = scene.questions
    for callee in callees:
        for access in q.flow.by_function.get(callee, []):
            if access.is_write:
                for read in q.flow.fields[access.cls, access.field].reads:
                    if (q.attached.runs(read) or q.detached.runs(read)) and read.function is not callee:
                        yield read.function, read.line, read.field
        owner = callee.owner
        for functions in owner.functions.values() if owner is not None else ():
            for function in functions:
                if function is not callee and any(step.reaches(function) for step in scene.off):
                    yield function, function.line, "its state"
