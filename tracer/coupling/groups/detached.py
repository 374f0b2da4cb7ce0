"""The draft's state: what is called on a batch's draft state without asking whether the batch has one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, names, said, shown, slug, strike
from sgltrace.coupling.groups.waits import waits_for
from sgltrace.coupling.offstep.bodies import expressions_in
from sgltrace.coupling.offstep.questions import Detached
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """A point for each method or field that is asked of a state that an off step may have taken off."""
    alike: dict[tuple[str, tuple[str, ...]], list[Detached]] = defaultdict(list)
    for found in scene.answers.detached:
        kind = _kind(scene, found)
        apart = found.attr if kind != "draft_state" else ""
        alike[kind + apart, tuple(sorted({x.function.id for x in found.strikes}))].append(found)
    for members in alike.values():
        yield _point(scene, _joined(members))


def _joined(members: list[Detached]) -> Detached:
    """What the same functions ask, as one."""
    first = members[0]
    if len(members) == 1:
        return first
    strikes = sorted((x for m in members for x in m.strikes), key=lambda x: (x.function.id, x.line))
    return Detached(
        first.path,
        ", ".join(m.attr for m in members[:3]) + (f" and {len(members) - 3} more" if len(members) > 3 else ""),
        strikes,
        [c for m in members for c in m.callees],
    )


def _kind(scene: Scene, found: Detached) -> str:
    if found.callees:
        return "kv_alloc" if scene.allocates(found.callees) else "batch_filter_merge"
    fields = scene.questions.flow.fields
    uses = [u for cls in scene.questions.parts.state_classes if (u := fields.get((cls, found.attr))) is not None]
    return "stream_order" if any(waits_for(access) for u in uses for access in u.reads) else "draft_state"


def _point(scene: Scene, found: Detached) -> Draft:
    fields = sorted({f.name for x in found.strikes for f in x.facts if f.scope == "batch"})
    first = found.strikes[0]
    state = fields[0] if fields else "the draft's state"
    reason = f"without `{state}` {name(first.function)} line {first.line} raises {first.exception}"
    callees = [Spot(c, c.line, f"runs on the draft's state ({scene.path})") for c in found.callees]
    why = [
        f"{name(x.function)} line {x.line} asks `{found.attr}` of `{shown(x.expression)}`, whatever the batch carries."
        for x in found.strikes[:3]
    ]
    effects = _effects(scene, found)
    if effects:
        why.append(f"{names(found.callees)} there does what no other code does for the step: {effects}.")
    return Draft(
        kind=_kind(scene, found),
        slug=slug("state", found.attr if "," not in found.attr else first.function.qualname),
        title=f"Each decode step asks {found.attr} of the batch's draft state"
        if any(x.certain and x.function in scene.questions.detached.scheduler for x in found.strikes)
        else f"{first.function.name} asks {found.attr} of the batch's draft state",
        producers=[strike(x) for x in found.strikes] + callees,
        consumers=callees
        + [Spot(f, line, what) for f, line, what in _touched(scene, found)]
        + [strike(x) for x in found.strikes],
        binding_time="per step (schedule time)",
        verdicts=scene.verdicts((HARD, reason), (HARD, reason), _for_c(scene, found)),
        why=why,
        refactor=["Keep the draft state on the scheduler's batch during an off step, or ask for it at these places."],
        fields=fields,
        condition=f"where the batch carries no {state.rpartition('.')[2]}",
        weight=7,
    )


def _writes(scene: Scene, found: Detached) -> list:  # type: ignore[type-arg]
    q = scene.questions
    below = set(found.callees)
    for callee in found.callees:
        below |= {c for c, _, _ in q.steps.sites.out.get(callee, ()) if c in q.on.scheduler}
    return [
        a
        for f in sorted(below, key=lambda f: f.id)
        for a in q.flow.by_function.get(f, [])
        if a.is_write
        and q.on.scheduler.runs(a)
        and q.flow.role(a.cls) in ("request", "scheduler_batch", "request_pool", "kv_allocator")
    ]


def _effects(scene: Scene, found: Detached) -> str:
    fields = sorted({f"`{a.cls.name}.{a.field}`" for a in _writes(scene, found)})
    listed = ", ".join(fields[:4])
    return f"it sets {listed}" if fields else ""


def _touched(scene: Scene, found: Detached) -> Iterator[tuple]:  # type: ignore[type-arg]
    q = scene.questions
    for access in _writes(scene, found):
        yield access.function, access.line, f"sets {access.field}"
    for callee in found.callees:
        for below, _, _places in q.steps.sites.out.get(callee, ()):
            if below in q.on.scheduler and scene.allocates([below]):
                yield below, below.line, "takes KV slots"


BOUNDS = frozenset({"max", "maximum", "clamp", "clamp_", "clamp_min", "clip"})


def _for_c(scene: Scene, found: Detached) -> tuple[str, str]:
    """What is reserved ahead for the widest step may come out negative for a narrower one, unless it is bounded."""
    if not found.callees or not scene.allocates(found.callees) or scene.own_off:
        return NONE, "the batch keeps its draft state"
    bounded = [f for f in _below(scene, found.callees) if _bounds(f)]
    if bounded:
        return NONE, f"{said(bounded, 'keeps')} the amount from falling below what is reserved"
    differing = [f for f in _below(scene, found.callees) if _subtracts(scene, f)]
    if not differing:
        return NONE, "the batch keeps its draft state"
    return (
        HARD,
        f"{said(differing, 'takes')} what is reserved from what the widest step needs: a narrower step makes it "
        "negative",
    )


def _below(scene: Scene, functions: list[FunctionInfo]) -> list[FunctionInfo]:
    q = scene.questions
    found = dict.fromkeys(functions)
    for function in functions:
        found |= dict.fromkeys(c for c, _, _ in q.steps.sites.out.get(function, ()) if c in q.on.scheduler)
    return list(found)


def _calls(body: list[s.Stmt]) -> Iterator[s.Call]:
    for node in expressions_in(body):
        if isinstance(node, s.Call):
            yield node


def _bounds(function: FunctionInfo) -> bool:
    """Whether a function takes the greater of two amounts of which one is a request's own."""
    return any(
        (call.func.attr if isinstance(call.func, s.Attr) else getattr(call.func, "id", "")) in BOUNDS
        and any(isinstance(part, s.Attr) for arg in call.args for part in s.descend(arg.value))
        for call in _calls(function.body)
    )


def _subtracts(scene: Scene, function: FunctionInfo) -> bool:
    """Whether a function takes a request's own amount from another."""

    def own(node: s.Expr) -> bool:
        return any(
            isinstance(part, s.Attr)
            and any(scene.questions.flow.role(a.cls) == "request" for a in scene.questions.flow.at(part))
            for part in s.descend(node)
        )

    return any(isinstance(node, s.Bin) and node.op == "-" and own(node.right) for node in expressions_in(function.body))
