"""KV slots: what speculation's own code takes and gives back within a step, and what is taken twice."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, SOFT, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, read, said, slug, write
from sgltrace.coupling.groups.waits import WAITS
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """Slots within a step, figures that two would move on, state sent to another process, and streams of verify."""
    yield from _within(scene)
    yield from _twice(scene)
    yield from _sent(scene)
    yield from _streams(scene)


def _within(scene: Scene) -> Iterator[Draft]:
    q = scene.questions
    takes: list[Spot] = []
    gives: list[Spot] = []
    for function in scene.own:
        alone = {id(call) for call in scene.marks.effects(function)}
        for callee, _, places in q.steps.sites.out.get(function, ()):
            near = callee.owner is not None and q.flow.role(callee.owner) == "kv_allocator"
            if not near and not (callee.owner is None and scene.handles_slots(callee)):
                continue
            for place in places:
                if isinstance(place, s.Call) and scene.runs_on(function, place) and callee.name != "__init__":
                    spot = Spot(function, place.line, f"calls {callee.name}")
                    (gives if id(place) in alone else takes).append(spot)
    if not takes or not gives:
        return
    reason = (
        f"{said((x.function for x in takes), 'takes')} slots and {said((x.function for x in gives), 'gives')} back in "
        "a step with speculation: between two steps nothing of it is outstanding"
    )
    yield Draft(
        kind="kv_alloc",
        slug=slug("within"),
        title="Speculation takes and gives back slots within its step",
        producers=takes,
        consumers=gives,
        binding_time="per step",
        verdicts=scene.verdicts((NONE, reason), (NONE, reason), (NONE, reason)),
        why=[
            f"{said((x.function for x in takes), 'takes')} slots.",
            f"{said((x.function for x in gives), 'gives')} some back.",
        ],
        refactor=["Nothing: an off step takes its own."],
        fields=[],
        weight=1,
    )


def _twice(scene: Scene) -> Iterator[Draft]:
    """Figures of a request that preparation moves on in an off step, and a plain step's code would move on, too."""
    q = scene.questions
    prepared = {c for d in scene.answers.detached for c in d.callees}
    prepared |= {c for f in prepared for c, _, _ in q.steps.sites.out.get(f, ())}
    for uses in q.flow.of_role("request"):
        plain = [a for a in uses.writes if a.kind == "augment" and q.plain.runs(a) and not q.attached.runs(a)]
        kept = [a for a in uses.writes if a.kind == "augment" and a.function in prepared and q.attached.runs(a)]
        if not plain or not kept:
            continue
        reads = [
            a for a in uses.reads if q.attached.runs(a) and a.function not in {w.function for w in (*plain, *kept)}
        ]
        reason = (
            f"{said((a.function for a in kept), 'has')} moved `{uses.name}` on before an off step: what "
            f"{said((a.function for a in plain), 'does')} would count the token twice"
        )
        counted = [a for a in reads if not isinstance(a.statement, (s.If, s.Assert))]
        level = (HARD if scene.allocates(a.function for a in counted) else SOFT, reason)
        yield Draft(
            kind="kv_bookkeeping",
            slug=slug("twice", uses.field),
            title=f"{uses.field} has been moved on before an off step",
            producers=interleaved([write(a) for a in kept], [write(a) for a in plain]),
            consumers=[read(a) for a in reads],
            binding_time="per step (schedule time)",
            verdicts=scene.verdicts(level, level, (NONE, "a step with speculation counts on it")),
            why=[
                f"{said((a.function for a in kept), 'adds')} to `{uses.name}` with speculation, and in an off step.",
                f"{said((a.function for a in plain), 'adds')} to it in a plain step.",
            ],
            refactor=[f"Leave `{uses.name}` alone in an off step."],
            fields=[uses.name],
            weight=7,
        )


def _sent(scene: Scene) -> Iterator[Draft]:
    """The draft's state between processes that prefill and processes that decode."""
    q = scene.questions
    steps = q.program.phases.of[scene.path]["every step"]
    fields = set(q.parts.state_fields)
    reads: list[Access] = []
    makes: list[Spot] = []
    for function in sorted(steps, key=lambda f: f.id):
        if scene.subject(function) != "disaggregation" or function.module.is_outline:
            continue
        for access in q.flow.by_function.get(function, []):
            state = access.cls in q.parts.state_classes or (access.field in fields and access.cls in q.parts.batches)
            if state and access.is_write:
                makes.append(Spot(function, access.line, f"makes {access.cls.name}.{access.field}"))
            elif state or (access.is_write and any(o.cls in q.parts.state_classes for o in q.flow.origins(access))):
                reads.append(access)
    near = [
        Spot(c, call.line, f"calls {x.function.name}")
        for x in makes
        for c, call in q.steps.sites.callers.get(x.function, ())
    ]
    copies = [
        Spot(f, f.line, "takes it over")
        for f in sorted(steps, key=lambda f: f.id)
        if scene.subject(f) == "disaggregation"
        and any(a.is_write and a.field in {r.field for r in reads} for a in q.flow.by_function.get(f, []))
    ]
    if not reads or not makes:
        return
    reason = (
        f"{said((a.function for a in reads), 'sends')} what the draft made of a prefill, and "
        f"{said((x.function for x in makes), 'starts')} from it: a prefill by the target alone sends what an older one "
        "left"
    )
    yield Draft(
        kind="disaggregation",
        slug=slug("sent"),
        title="A process that prefills sends the draft's state to one that decodes",
        producers=[Spot(a.function, a.line, f"takes {a.field}") for a in reads] + makes,
        consumers=[*makes, *copies, *near],
        binding_time="request admission",
        verdicts={
            (scene.path, "A"): (SOFT, reason),
            (scene.path, "B"): (NONE, "the speculative worker runs the prefill"),
            (scene.path, "C"): (NONE, "the speculative worker runs the prefill"),
        },
        why=[
            f"{said((a.function for a in reads), 'takes')} it from the batch.",
            f"{said((x.function for x in makes), 'makes')} a state of what came.",
        ],
        refactor=["Keep the draft's part of a prefill, whatever its decodes do."],
        fields=sorted({f"{a.cls.name}.{a.field}" for a in reads}),
        weight=2,
    )


def _streams(scene: Scene) -> Iterator[Draft]:
    """Streams that verify enters and joins within its step."""
    q = scene.questions
    found: list[tuple[FunctionInfo, int, str]] = []
    for function in scene.own:
        if not scene.verifies(function):
            continue
        for node in scene.expressions(function):
            if isinstance(node, s.Call) and isinstance(node.func, s.Attr) and scene.runs_on(function, node):
                given = [a.value.attr for a in node.args if isinstance(a.value, s.Attr) and "stream" in a.value.attr]
                if given and node.func.attr in WAITS | {"wait_stream"}:
                    found.append((function, node.line, given[0]))
    if not found:
        return
    fields = sorted({f for _, _, f in found})
    makers = [
        Spot(f, s.line_of(node) or f.line, f"makes {getattr(node, 'attr', '')}")
        for f in sorted(q.program.phases.of[scene.path]["process start"], key=lambda f: f.id)
        if f in scene.speculative
        for node in scene.expressions(f)
        if isinstance(node, s.Attr) and node.attr in fields
    ]
    called = [
        Spot(c, call.line, f"calls {f.name}") for f, _, _ in found for c, call in q.steps.sites.callers.get(f, ())
    ]
    inner = [
        Spot(c, c.line, "runs there")
        for f, _, _ in found
        for c, _, _ in q.steps.sites.out.get(f, ())
        if scene.subject(c) == "attn_metadata"
    ]
    reason = f"{said((f for f, _, _ in found), 'enters and joins')} {scene.listed(fields)} within its step"
    yield Draft(
        kind="stream_order",
        slug=slug("streams"),
        title=f"Verify plans on {scene.listed(fields)}, and joins it",
        producers=makers + [Spot(f, line, f"joins {n}") for f, line, n in found] + called,
        consumers=[Spot(f, line, f"joins {n}") for f, line, n in found] + inner,
        binding_time="per step",
        verdicts=scene.verdicts((NONE, reason), (NONE, reason), (NONE, reason)),
        why=[f"{reason[0].upper()}{reason[1:]}."],
        refactor=["Nothing: a step that does not verify does not enter it."],
        fields=[],
        weight=0,
    )
