"""Ranks: what they tell each other in a step, and what they must decide alike without telling."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, names, said, shown, slug
from sgltrace.coupling.offstep.domain import member
from sgltrace.coupling.offstep.lookup import Lookup
from sgltrace.coupling.offstep.marks import STAGE, WIDTH, Mark
from sgltrace.coupling.offstep.scenario import Scenario
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo

COLLECTIVES = frozenset(
    ["all_gather_into_tensor", "all_gather", "all_reduce", "all_gather_object", "broadcast", "broadcast_object_list"]
)
"""What torch.distributed calls its collectives."""
IDLE = "IDLE"


def points(scene: Scene) -> Iterator[Draft]:
    """What is exchanged and scaled by a width; what idle ranks run; and the decision itself."""
    exchanges = _exchanges(scene)
    yield from _scaled(scene, exchanges)
    yield from _idle(scene)
    yield from _alike(scene, exchanges)


def _exchanges(scene: Scene) -> list[tuple[FunctionInfo, int]]:
    """Where the scheduler's half of a step exchanges something between ranks."""
    out = []
    steps = scene.questions.program.phases.of[scene.path]
    order = scene.questions.program.engine.classes.mro(scene.questions.parts.scheduler)
    loops = steps["every step"] | steps["request admission"]
    for function in sorted(loops, key=lambda f: f.id):
        if function not in scene.questions.on.worker and (
            function.owner in order
            or function in scene.questions.on.scheduler
            or scene.subject(function) == "dp_attention"
        ):
            for node in scene.expressions(function):
                if isinstance(node, s.Call):
                    called = node.func.attr if isinstance(node.func, s.Attr) else getattr(node.func, "id", "")
                    if called in COLLECTIVES or called.startswith("broadcast_"):
                        out.append((function, node.line))
    return out


def _scaled(scene: Scene, exchanges: list[tuple[FunctionInfo, int]]) -> Iterator[Draft]:
    """Fields that the functions above an exchange set, and that code of a step scales by a width."""
    q = scene.questions
    near: dict[FunctionInfo, None] = dict.fromkeys(f for f, _ in exchanges)
    for _ in range(2):
        near |= {c: None for f in list(near) for c, _ in q.steps.sites.callers.get(f, ())}
    near |= {
        c: None for f in list(near) for c, _, _ in q.steps.sites.out.get(f, ()) if scene.subject(c) == "dp_attention"
    }
    told = {
        a.field
        for f in near
        for a in q.flow.by_function.get(f, [])
        if a.is_write and a.cls in q.parts.batches and scene.subject(f) == "dp_attention"
    }
    scaled: list[Mark] = []
    reads: list[Access] = []
    for cls in q.parts.batches:
        for field in sorted(told):
            uses = q.flow.fields.get((cls, field))
            for access in uses.reads if uses is not None else ():
                marks = [m for m in scene.marks.of(access.function) if m.source in (WIDTH, STAGE)]
                if marks and access.function not in near:
                    reads.append(access)
                    scaled += marks
    coefficients = [
        f for f in scene.marks.returns if f.owner in q.parts.state_classes and _called_with(scene, f, reads)
    ]
    if not reads or not scaled:
        return
    listed = scene.listed(sorted({a.field for a in reads}))
    senders = [f for f in near if scene.subject(f) == "dp_attention"]
    says = [f for f, _ in exchanges if f in senders and _tells(scene, f)]
    widths = scene.listed(
        sorted({n for m in scaled if m.source == WIDTH for _, n in m.origins}) or ["the stage's mode"]
    )
    reason = (
        f"{said((a.function for a in reads), 'scales')} `{reads[0].field}` by {widths}, and what ranks tell each other "
        f"in {said((f for f, _ in exchanges if f in senders), 'does', 2)} not say whether a step speculates"
    )
    level = (NONE, "ranks tell each other whether a step speculates") if says else (HARD, reason)
    yield Draft(
        kind="dp_attention",
        slug=slug("scaled"),
        title=f"{listed} of all ranks is scaled by {widths}",
        producers=[Spot(f, f.line, "tells other ranks") for f in senders]
        + [Spot(f, f.line, "gives the width") for f in coefficients],
        consumers=interleaved(
            [Spot(a.function, a.line, f"reads {a.field}") for a in reads],
            [Spot(m.function, m.line, f"goes by {shown(m.node)}") for m in scaled],
        ),
        binding_time="per step",
        verdicts=scene.verdicts(level, level, level),
        why=[
            f"{said((a.function for a in reads), 'reads')} {listed} and {widths}.",
            "" if says else f"Nothing in {names(senders)} asks for the stage, or for the draft's state.",
        ],
        refactor=["Exchange with the token counts whether each rank's step speculates, and scale by the answer."],
        fields=sorted({f"{a.cls.name}.{a.field}" for a in reads}),
        weight=7,
    )


def _tells(scene: Scene, function: FunctionInfo) -> bool:
    """Whether a function asks what a step is: for its stage, or for the draft's state."""
    q = scene.questions
    fields = set(q.parts.state_fields)
    return any(m.source == STAGE for m in scene.marks.of(function)) or any(
        a.field in fields and a.cls in q.parts.batches for a in q.flow.by_function.get(function, [])
    )


def _called_with(scene: Scene, function: FunctionInfo, reads: list[Access]) -> bool:
    readers = {a.function for a in reads}
    return any(c in readers for c, _ in scene.questions.steps.sites.callers.get(function, ()))


def _idle(scene: Scene) -> Iterator[Draft]:
    """Ranks without requests run each stage, so that collectives have a partner."""
    q = scene.questions
    mode = q.parts.mode
    if mode is None or IDLE not in q.steps.sites.members(mode):
        return
    lookup = Lookup(q.program, q.flow, q.steps.sites, Scenario("idle"))
    asked = {
        name_
        for name_, functions in mode.functions.items()
        for f in functions
        if (v := lookup.apply(f, member(mode, [IDLE]), [], 0)) is not None
        and v.truth
        and (w := lookup.apply(f, member(mode, [q.steps.words.decode]), [], 0)) is not None
        and w.truth is False
    }
    tests = [
        (f, s.line_of(node))
        for f in sorted(q.on.worker.readings, key=lambda f: f.id)
        if f in q.parts.own or f is q.parts.entries[scene.path]
        for node in scene.expressions(f)
        if isinstance(node, s.Attr) and node.attr in asked
    ]
    makers = [
        (a.function, a.line)
        for cls in q.parts.batches
        for (c, _), uses in q.flow.fields.items()
        if c is cls
        for a in uses.writes
        if isinstance(a.value, s.Attr) and a.value.attr == IDLE and a.function not in q.parts.own
    ]
    if not tests or not makers:
        return
    reason = (
        f"an idle rank runs what {said((f for f, _ in tests), 'runs')} for it; where another rank's step does not, its "
        "collectives have no partner"
    )
    yield Draft(
        kind="dp_attention",
        slug=slug("idle"),
        title=f"Idle ranks run the stages of {names((f for f, _ in tests), 2).replace('`', '')}",
        producers=[Spot(f, line, "makes a batch idle") for f, line in makers]
        + [Spot(f, line, f"calls {c.name}") for c, _ in makers for f, line in _callers(scene, c)],
        consumers=[Spot(f, line, "asks whether the batch is idle") for f, line in tests]
        + [Spot(q.parts.entries[scene.path], q.parts.entries[scene.path].line, "runs the stages")],
        binding_time="per step",
        verdicts=scene.verdicts((HARD, reason), (HARD, reason), (HARD, reason)),
        why=[
            f"{said((f for f, _ in makers), 'makes')} a batch without requests.",
            f"{said((f for f, _ in tests), 'asks')} whether a batch is idle.",
        ],
        refactor=["Let an idle rank run what the others run: the decision must be theirs, too."],
        fields=[],
        weight=6,
    )


def _callers(scene: Scene, function: FunctionInfo) -> list[tuple[FunctionInfo, int]]:
    found = [(c, call.line) for c, call in scene.questions.steps.sites.callers.get(function, ())]
    return found + [(c, call.line) for f, _ in found for c, call in scene.questions.steps.sites.callers.get(f, ())]


def _alike(scene: Scene, exchanges: list[tuple[FunctionInfo, int]]) -> Iterator[Draft]:
    """The decision of a step is each rank's own: what ranks exchange says nothing of it."""
    q = scene.questions
    told = [(f, line) for f, line in exchanges if _tells(scene, f)]
    entry = q.parts.entries[scene.path]
    launchers = [f for f in q.parts.launchers if f in q.on.scheduler]
    if not exchanges or not launchers:
        return
    reason = (
        f"ranks exchange something at {names((f for f, _ in exchanges), 3)} only, and none of it says whether a step "
        "speculates: ranks that decide otherwise call other collectives, and hang"
    )
    level = (NONE, f"{said((f for f, _ in told), 'exchanges')} what depends on speculation") if told else (HARD, reason)
    loops = [f for f in q.parts.loops if f in q.on.scheduler]
    yield Draft(
        kind="tp_agreement",
        slug=slug("alike"),
        title=f"Each rank decides on its own what {entry.name} runs",
        producers=[Spot(f, line, "exchanges between ranks") for f, line in exchanges]
        + [Spot(f, line, w) for f, line, w in scene.above(launchers)]
        + [Spot(c, call.line, "asks for the next batch") for f in loops for c, call in _next(scene, f)],
        consumers=[Spot(f, f.line, "launches the step") for f in launchers] + [Spot(entry, entry.line, "runs it")],
        binding_time="per step",
        verdicts=scene.verdicts(level, level, level),
        why=[
            f"In a decode step {said((f for f, _ in exchanges), 'exchanges')} something between ranks.",
            "" if told else "None of them asks for the stage, or for the draft's state.",
        ],
        refactor=["Decide from what all ranks know, or broadcast the decision with the requests."],
        fields=[],
        weight=6,
    )


def _next(scene: Scene, loop: FunctionInfo) -> list[tuple[FunctionInfo, s.Call]]:
    """What an event loop calls for a batch to run."""
    q = scene.questions
    batch = q.parts.scheduler_batch
    return [
        (callee, node)
        for node in scene.expressions(loop)
        if isinstance(node, s.Call)
        for callee, _ in q.steps.sites.called(node, loop)
        if batch is not None and batch in {getattr(v, "cls", None) for v in callee.result.values}
    ]
