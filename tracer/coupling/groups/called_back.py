"""Callbacks: what the scheduler hands to the speculative worker, and nothing calls in an off step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, said, shown, slug
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo

Call = tuple[FunctionInfo, s.Call]


def points(scene: Scene) -> Iterator[Draft]:
    """One point for each function that is called back."""
    q = scene.questions
    found: dict[FunctionInfo, list[Call]] = defaultdict(list)
    for (caller, callee, _), uses in q.program.engine.edges.items():
        if caller not in q.on.worker or not _is_of_scheduler(scene, callee):
            continue
        given = {p.name for p in caller.parameters}
        if caller not in q.parts.own and caller is not q.parts.entries[scene.path]:
            continue
        for use in uses:
            for e in use.expressions:
                if (
                    isinstance(e, s.Call)
                    and scene.runs_on(caller, e)
                    and isinstance(e.func, s.Name)
                    and e.func.id in given
                ):
                    found[callee].append((caller, e))
    for callee, calls in sorted(found.items(), key=lambda item: item[0].id):
        if callee.owner is not None and not callee.module.is_outline and not callee.is_kernel:
            yield from _point(scene, callee, calls)


def _point(scene: Scene, callee: FunctionInfo, calls: list[Call]) -> Iterator[Draft]:
    q = scene.questions
    handing = [(f, line) for f, line in _handing(scene, callee) if f in q.parts.launchers or f in q.on.scheduler]
    off = [
        (f, call)
        for f, call in q.steps.sites.callers.get(callee, ())
        if _names(call, callee) and scene.runs_off(f, call) and _in_plain(scene, f, call)
    ]
    if not handing or off:
        return
    plain = [
        (f, call)
        for f, call in q.steps.sites.callers.get(callee, ())
        if _names(call, callee) and _in_plain(scene, f, call)
    ]
    readers = [
        r
        for a in q.flow.by_function.get(callee, [])
        if a.is_write
        for r in q.flow.fields[a.cls, a.field].reads
        if q.on.scheduler.runs(r) or q.attached.scheduler.runs(r)
    ]
    reason = f"only {said((f for f, _ in calls), 'calls')} {name(callee)}: an off step does not"
    kind = scene.subject(calls[0][0]) or scene.subject(callee) or "step_state"
    kind = (
        "grammar" if "grammar" in callee.name.lower() else "stream_order" if kind == "future_map" or readers else kind
    )
    yield Draft(
        kind=kind,
        slug=slug("called", callee.qualname),
        title=f"The speculative worker calls {callee.name} for the scheduler",
        producers=[Spot(f, line, f"hands {callee.name} on") for f, line in handing]
        + [Spot(f, call.line, f"calls {shown(call.func)}, which is {callee.name}") for f, call in calls],
        consumers=[Spot(callee, callee.line, "is not run in an off step")]
        + [Spot(r.function, r.line, f"reads {r.field}") for r in readers]
        + [Spot(c, c.line, "is run by it") for c, _, _ in q.steps.sites.out.get(callee, ())]
        + [Spot(f, call.line, f"calls {shown(call.func)}") for f, call in calls],
        binding_time="per step",
        verdicts=scene.verdicts((HARD, reason), (HARD, reason), (NONE, "the speculative worker calls it")),
        why=[
            f"{said((f for f, _ in handing), 'hands')} {name(callee)} to the worker.",
            f"{said((f for f, _ in plain), 'calls')} it in a plain step, and not in an off step." if plain else "",
            f"{said((r.function for r in readers), 'reads')} what it writes." if readers else "",
        ],
        refactor=[f"Call {name(callee)} in the off step, once its lengths and tokens are known."],
        fields=sorted({f"{r.cls.name}.{r.field}" for r in readers}),
        weight=8,
    )


def _is_of_scheduler(scene: Scene, function: FunctionInfo) -> bool:
    """Whether a function belongs to the scheduler, or to what it keeps between steps."""
    q = scene.questions
    owner = function.owner
    if owner is None:
        return False
    return owner in q.program.engine.classes.mro(q.parts.scheduler) or q.flow.role(owner) in (
        "future_map",
        "future_indices",
    )


def _names(call: s.Call, callee: FunctionInfo) -> bool:
    """Whether a call is of the function itself: not one that hands it on."""
    return isinstance(call.func, s.Attr) and call.func.attr == callee.name


def _in_plain(scene: Scene, function: FunctionInfo, call: s.Call) -> bool:
    reading = scene.questions.plain.scheduler.readings.get(function)
    return reading is not None and id(call) in reading.seen


def _handing(scene: Scene, callee: FunctionInfo) -> list[tuple[FunctionInfo, int]]:
    """Where a function is named without being called."""
    out = []
    for function in scene.questions.parts.launchers:
        for node in scene.expressions(function):
            if isinstance(node, s.Attr) and node.attr == callee.name:
                out.append((function, s.line_of(node)))
    return out
