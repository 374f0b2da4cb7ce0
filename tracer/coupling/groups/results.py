"""Results: what the scheduler asks of a step's result, and a plain step of the target does not set.

An off step that hands back the target's own result strikes there; one that makes a result of its own must fill it in.
"""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, names, said, shown, slug, strike, write
from sgltrace.coupling.offstep.interpret import Strike
from sgltrace.coupling.offstep.questions import Unset
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import ClassInfo


def points(scene: Scene) -> Iterator[Draft]:
    """A point for each field of the result; apart where a relay between steps takes the result, and the scheduler."""
    for found in scene.answers.unset:
        if found.strikes:
            relay = [x for x in found.strikes if _is_relay(scene, x.function.owner)]
            other = [x for x in found.strikes if x not in relay]
            if other:
                yield _point(scene, found, "result_format", "result", other)
            if relay:
                yield _point(scene, found, "future_map", "relay", relay)
        if found.strided:
            yield _strided(scene, found)


def _further(scene: Scene, found: Unset) -> list[Access]:
    """The reads of the field by the scheduler, and what takes apart the object that it holds."""
    q = scene.questions
    uses = q.flow.fields.get((found.cls, found.name))
    reads = [a for a in uses.reads if q.on.scheduler.runs(a)] if uses is not None else []
    states = set(q.parts.state_classes)
    held = {
        c for w in found.writes if w.value is not None for c in q.program.classes_of(w.value, w.function) if c in states
    }
    own = [
        a
        for (cls, _), fields in sorted(q.flow.fields.items(), key=lambda item: (item[0][0].id, item[0][1]))
        if any(cls in q.program.engine.classes.mro(c) for c in held)
        for a in fields.reads
        if q.on.scheduler.runs(a) and (a.function.owner is None or a.function.owner not in states)
    ]
    return [*own, *reads]


def _is_relay(scene: Scene, owner: ClassInfo | None) -> bool:
    """Whether a class is neither the scheduler nor a batch nor the result: it stands between two steps."""
    return owner is not None and scene.questions.flow.role(owner) in ("future_map", "future_indices")


def _point(scene: Scene, found: Unset, kind: str, where: str, strikes: list[Strike]) -> Draft:
    field = f"{found.cls.name}.{found.name}"
    first = strikes[0]
    writers = [w.function for w in found.writes]
    reason = (
        f"the target's result leaves `{field}` at {found.value!r}, and {name(first.function)} line {first.line} "
        f"raises {first.exception} for it"
    )
    by_verify = (
        "the speculative step's own result sets it" if writers else "nothing sets it in a speculative step either"
    )
    why = [f"A plain step of the target leaves `{field}` at {found.value!r}."]
    if writers:
        why.append(f"In a step with speculation {said(writers, 'sets')} it.")
    why += [
        f"{name(x.function)} uses it without asking (line {x.line}): {x.exception} at `{shown(x.expression)}`."
        for x in strikes[:2]
    ]
    return Draft(
        kind=kind,
        slug=slug(where, found.name),
        title=f"{found.name} must be set on a step's result"
        if where == "result"
        else f"The relay between steps takes {found.name} apart",
        producers=[write(w) for w in found.writes],
        consumers=[strike(x) for x in strikes]
        + [Spot(a.function, a.line, f"takes {a.field} further") for a in _further(scene, found)],
        binding_time="per step",
        verdicts=scene.verdicts((HARD, reason), (HARD, reason), (NONE, by_verify)),
        why=why,
        refactor=[
            f"Set `{found.name}` on the off step's result, or let {names(x.function for x in strikes)} ask first."
        ],
        fields=[field],
        weight=8,
    )


def _strided(scene: Scene, found: Unset) -> Draft:
    field = f"{found.cls.name}.{found.name}"
    read = found.strided[0]
    width = shown(read.stride)
    held = sorted({f"{a.cls.name}.{a.field}" for r in found.strided for a in r.stride_from})
    reason = f"{name(read.function)} cuts `{found.name}` into rows of `{width}`; an off step has one token a request"
    late = (
        f"the width is read from {', '.join(f'`{h}`' for h in held)} when the result is processed, not from the result"
    )
    carried = "the result carries the width of its own step"
    return Draft(
        kind="result_format",
        slug=slug("stride", found.name),
        title=f"{found.name} is cut into rows of a speculative width",
        producers=[
            write(w)
            for w in found.writes
            if w.function in scene.questions.parts.own or w.function.owner in scene.questions.parts.workers.values()
        ]
        or [write(w) for w in found.writes],
        consumers=[Spot(r.function, r.line, f"cuts {found.name} by {shown(r.stride)}") for r in found.strided],
        binding_time="per step",
        verdicts=scene.verdicts((HARD, reason), (HARD, reason), (HARD, late) if found.late else (NONE, carried)),
        why=[
            f"{name(r.function)} reads row `i` of `{found.name}` at `i * {shown(r.stride)}` (line {r.line})."
            for r in found.strided
        ]
        + ([f"The width comes from {', '.join(f'`{h}`' for h in held)}."] if held else []),
        refactor=[f"Pad `{found.name}` to rows of `{width}`, or carry a width of 1 on the off step's result."],
        fields=[field, *held],
        formula=f"row i at i * {width}",
        weight=8,
    )
