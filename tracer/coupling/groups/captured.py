"""Graphs captured for a stage: what an off step strikes where the captured mode, and not the batch's, decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, said, shown, slug, strike
from sgltrace.coupling.offstep.interpret import Strike


def points(scene: Scene) -> Iterator[Draft]:
    """One point for each kind of code that is struck."""
    groups: dict[str, list[Strike]] = defaultdict(list)
    for found in scene.answers.captured:
        groups[scene.subject(found.function) or "cuda_graph"].append(found)
    for kind, strikes in sorted(groups.items()):
        yield _point(scene, kind, strikes)


def _point(scene: Scene, kind: str, strikes: list[Strike]) -> Draft:
    marks = scene.marks
    fields = sorted({f"{cls.name}.{n}" for cls, n in marks.bound if n in marks.captured})
    mine = [f for f in fields if any(f == fact.name for x in strikes for fact in x.facts | x.under)]
    keys = [(cls, n) for cls, n in marks.bound if f"{cls.name}.{n}" in mine]
    binds = [b for key in keys for b in marks.bound[key]]
    first = strikes[0]
    reason = (
        f"`{mine[0]}` says the stage that graphs were captured for, and {name(first.function)} line {first.line} "
        f"raises {first.exception} for a batch without it"
    )
    handing = [
        Spot(m.function, m.line, f"hands on {shown(m.node)}")
        for key in keys
        for m in scene.by_origin(key)
        if m.function is not first.function and scene.in_off(m)
    ]
    return Draft(
        kind=kind,
        slug=slug("captured", kind),
        title=f"{first.function.name} goes by the mode that graphs were captured for",
        producers=[
            Spot(b.function, b.line, f"sets {key[1]}: {shown(b.value)}") for key in keys for b in marks.bound[key]
        ]
        + [Spot(x.function, x.line, "goes by it") for x in strikes]
        + handing,
        consumers=[strike(x) for x in strikes] + handing,
        binding_time="graph capture",
        verdicts=scene.verdicts((HARD, reason), (HARD, reason), (NONE, "a verify has what the stage needs")),
        why=[
            f"{said((b.function for b in binds), 'sets')} `{mine[0]}` when the process starts.",
            f"{said((x.function for x in strikes), 'raises')} where the batch is no verify.",
        ],
        refactor=["Capture graphs for a plain decode, too, or let an off step run without them."],
        fields=mine,
        condition="CUDA graph enabled",
        weight=6,
    )
