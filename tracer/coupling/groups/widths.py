"""Widths bound at the start: what sizes, cuts or counts in an off step by the width of a step with speculation."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, names, shown, slug, write
from sgltrace.coupling.offstep.widths import Bound, bound_widths

KINDS = {"graph_runner": "cuda_graph", "graph_buffers": "cuda_graph"}


def points(scene: Scene) -> Iterator[Draft]:
    """A point for each field that holds such a width."""
    for found in bound_widths(scene.questions):
        yield _point(scene, found)


def _point(scene: Scene, found: Bound) -> Draft:
    field = f"{found.cls.name}.{found.field}"
    function, line, _ = found.uses[0]
    reason = (
        f"{name(function)} line {line} sizes by `{field}`, which is fixed when the process starts: an off step has one "
        f"token for each request"
    )
    narrow = (HARD, f"a verify of width one meets {name(function)} line {line}, too")
    role = scene.questions.flow.role(found.cls)
    return Draft(
        kind=KINDS.get(role or "", "bound_width"),
        slug=slug("width", found.cls.name, found.field),
        title=f"{found.field} of {found.cls.name} holds a speculative width that an off step is sized by",
        producers=[write(a) for a in found.writes],
        consumers=[Spot(f, at, f"sizes by it: {shown(e)}") for f, at, e in found.uses],
        binding_time="process start",
        verdicts=scene.verdicts(
            (HARD, reason),
            (HARD, reason),
            narrow if found.in_verify else (NONE, "only a decode of the target comes there"),
        ),
        why=[
            f"{names(a.function for a in found.writes)} sets `{field}` from a width of speculation.",
            f"{names(f for f, _, _ in found.uses)} takes it for a size in an off step.",
        ],
        refactor=[f"Take the width from the step: 1 where it does not speculate, `{field}` where it does."],
        fields=[field],
        weight=6,
    )
