"""Shared code that goes by the stage of speculation: a decode goes its own way there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import NONE, SOFT, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, names, said, shown, slug
from sgltrace.coupling.offstep.marks import STAGE, WIDTH, Mark
from sgltrace.index.facts import syntax as s


def points(scene: Scene) -> Iterator[Draft]:
    """One point for each kind of code."""
    q = scene.questions
    runs = q.program.phases.of[scene.path]["every step"]
    groups: dict[str, list[Mark]] = defaultdict(list)
    for function in sorted(runs, key=lambda f: f.id):
        if function in q.parts.own or function.module.is_outline:
            continue
        for mark in scene.marks.of(function):
            kind = scene.subject(function)
            if mark.source == STAGE or (kind in ("tbo", "disaggregation") and mark.source != WIDTH):
                groups[kind].append(mark)
    for kind, marks in sorted(groups.items()):
        wide = any(m.source == WIDTH for f in {m.function for m in marks} for m in scene.marks.of(f))
        if kind not in ("dp_attention", "") and (wide or any(scene.in_off(m) for m in marks)):
            yield _point(scene, kind, marks)


def _point(scene: Scene, kind: str, marks: list[Mark]) -> Draft:
    q = scene.questions
    functions = list({m.function: None for m in marks})
    wide = [m for f in functions for m in scene.marks.of(f) if m.source == WIDTH and scene.marks.alive(q.on.worker, m)]
    asking = scene.listed([f.name for f in functions], 2)
    met = [m for m in marks if scene.in_off(m)]
    first = marks[0]
    reason = (
        f"{names([first.function])} line {first.line} asks `{shown(first.whole)}`, and a decode goes its own way there"
    )
    stages = [
        a
        for cls in q.parts.batches
        for (c, _), uses in q.flow.fields.items()
        if c is cls
        for a in uses.writes
        if a.function in q.parts.own and q.on.runs(a) and _names_stage(scene, a.value)
    ]
    return Draft(
        kind=kind,
        slug=slug("stages"),
        title=f"{asking} {'goes' if len(functions) == 1 else 'go'} by the stage of speculation",
        producers=[Spot(a.function, a.line, f"sets {a.field}: {shown(a.value)}") for a in stages]
        + [Spot(m.function, m.line, f"takes {shown(m.node)}") for m in wide],
        consumers=[Spot(m.function, m.line, f"asks {shown(m.whole)}") for m in marks],
        binding_time="per step",
        verdicts=scene.verdicts(
            (NONE, reason),
            (NONE, reason),
            (SOFT, f"{names([wide[0].function])} line {wide[0].line} lays it out by `{shown(wide[0].node)}`")
            if wide and not scene.own_off
            else (NONE, "a verify of any width goes the same way"),
        ),
        why=[
            f"{said(functions, 'asks')} for the stage.",
            f"An off step comes to {names(m.function for m in met)}, too." if met else "",
        ],
        refactor=["Nothing for an off step that is a decode."],
        fields=[],
        weight=0,
    )


def _names_stage(scene: Scene, value: s.Expr | None) -> bool:
    return value is not None and any(
        isinstance(part, s.Attr) and part.attr in scene.marks.stages for part in s.descend(value)
    )
