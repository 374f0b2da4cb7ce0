"""The off step that a release has itself: what refuses it, what chooses it, and what it leaves to the next draft."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import SOFT, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, said, slug
from sgltrace.coupling.offstep.marks import WIDTH
from sgltrace.coupling.offstep.own import asking, gates_of
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """Its gates, and who changes its widths while the server runs."""
    if scene.own_off:
        yield from _gated(scene)
    yield from _changing(scene)


def _gated(scene: Scene) -> Iterator[Draft]:
    q = scene.questions
    gates = gates_of(q.steps)
    if not gates:
        return
    functions = q.program.functions
    asks = [f for f in asking(q.steps) if f.id not in {g.function for g in gates}]
    asks = [f for f in asks if f in q.program.phases.of[scene.path]["process start"] or scene.in_step(f)]
    swaps = _swapping(scene)
    entry = q.parts.entries[scene.path]
    reason = f"{said((functions[g.function] for g in gates), 'refuses')} it in {len(gates)} cases"
    yield Draft(
        kind="config_gate",
        slug=slug("gates"),
        title=f"The release's own step without drafts is refused in {len(gates)} cases",
        producers=[Spot(functions[g.function], g.line, g.what) for g in gates],
        consumers=[
            Spot(f, f.line, "asks for it")
            for f in asks
            if f.owner is not None and q.flow.role(f.owner) in ("spec_worker", "draft_worker")
        ]
        + [Spot(f, f.line, "changes the widths") for f in swaps]
        + [Spot(entry, entry.line, "runs without drafts")],
        binding_time="process start",
        verdicts={(scene.path, "C"): (SOFT, reason)},
        why=[f"{reason[0].upper()}{reason[1:]}."],
        refactor=["Lift the refusal whose reason you take care of."],
        fields=[],
        condition="adaptive speculation",
        weight=2,
    )


def _swapping(scene: Scene) -> list[FunctionInfo]:
    """Functions of the speculative worker that change a width while the server runs."""
    q = scene.questions
    spec = q.steps.words.spec
    found = {
        b.function
        for (_, name_), binds in scene.marks.bound.items()
        if name_ in spec.widths or name_ in scene.marks.widths
        for b in binds
        if b.source == WIDTH
        and b.function in q.program.phases.of[scene.path]["every step"]
        and b.function.name != "__init__"
    }
    roles = {"spec_worker", "draft_worker"}
    return sorted((f for f in found if f.owner is not None and q.flow.role(f.owner) in roles), key=lambda f: f.id)


def _changing(scene: Scene) -> Iterator[Draft]:
    """Who chooses the widths of a step while the server runs, and by what."""
    q = scene.questions
    swaps = _swapping(scene)
    if not swaps:
        return
    above: dict[FunctionInfo, int] = {}
    level = list(swaps)
    for _ in range(4):
        calls = [(c, call.line) for f in level for c, call in q.steps.sites.callers.get(f, ()) if c not in above]
        above |= dict(calls)
        level = [c for c, _ in calls]
    steps = q.program.phases.of[scene.path]["every step"]
    choosers = [f for f in above if f in steps and scene.subject(f) == "config_gate"]
    if not choosers:
        return
    called = {c for f in choosers for c, _, _ in q.steps.sites.out.get(f, ())}
    called |= {c for f in called for c, _, _ in q.steps.sites.out.get(f, ())}
    mine = sorted((f for f in called & steps if f.owner is not None and scene.subject(f) == "config_gate"), key=_id)
    admits = sorted(q.program.phases.of[scene.path]["request admission"], key=_id)
    requests = [f for f in admits if _names_widths(scene, f)]
    reason = f"{said(choosers, 'chooses')} the widths from what it has seen, and no request holds them"
    yield Draft(
        kind="control_surface",
        slug=slug("chosen"),
        title=f"{choosers[0].name} chooses the widths while the server runs",
        producers=[Spot(f, f.line, "keeps what it chooses by") for f in mine]
        + [Spot(f, f.line, "takes a request") for f in requests],
        consumers=[Spot(f, above[f], "chooses") for f in choosers]
        + [Spot(f, f.line, "changes the widths") for f in swaps]
        + [Spot(f, line, "asks it") for f, line in above.items() if f not in choosers and f in steps]
        + [Spot(f, f.line, "takes a request") for f in requests],
        binding_time="per step",
        verdicts={(scene.path, d): (SOFT, reason) for d in "C"},
        why=[f"{said(choosers, 'chooses')} the widths, and {said(swaps, 'changes')} them."],
        refactor=["Give the choice a state that a request can hold."],
        fields=[],
        weight=1,
    )


def _id(function: FunctionInfo) -> str:
    return function.id


def _names_widths(scene: Scene, function: FunctionInfo) -> bool:
    return bool(scene.config_names(function))
