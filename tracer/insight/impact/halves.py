"""Half repairs: points that an edit puts a condition around, and that stay as bad as they were."""

from __future__ import annotations

from sgltrace.insight.changes.model import Change, Step, designs_of
from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.points import match_points, told_severity
from sgltrace.insight.changes.sides import Side, listed, short
from sgltrace.insight.impact.edits import Edits
from sgltrace.insight.impact.flags import Dead
from sgltrace.insight.impact.model import Impact
from sgltrace.model import CouplingPoint


def half_repairs(before: Side, after: Side, names: Names, edits: Edits, dead: list[Dead], out: Impact) -> list[Change]:
    """Points that are as hard as before, though edited functions now ask a condition where they meet them."""
    told = {change.point for change in (*out.resolves, *out.partly, *out.adds)}
    found = []
    for old, now in match_points(before, after, names)[0]:
        if now.id in told or "hard" not in now.severity.values() or _levels(old) != _levels(now):
            continue
        guards = _new_guards(old, now, before, after, names, edits)
        if guards:
            found.append(_half(now, guards, dead))
    return found


def _levels(point: CouplingPoint) -> dict[tuple[str, str], str]:
    return {(v.path, v.design): v.severity for v in point.verdicts}


def _new_guards(
    old: CouplingPoint, now: CouplingPoint, before: Side, after: Side, names: Names, edits: Edits
) -> dict[str, list[str]]:
    """Conditions that are new around accesses of a point's fields in edited functions at its ends, by function.

    Only of functions by which the point says why it is hard: one may edit much that a point is near.
    """
    said = " ".join([now.why_it_blocks, *(v.reason for v in now.verdicts if v.severity == "hard")])
    ends = {place.function for place in (*now.producers, *now.consumers)} & set(edits.edited)
    ends = {function for function in ends if short(function) in said}
    out: dict[str, list[str]] = {}
    back = {names.field(name): name for name in old.fields}
    for name in now.fields:
        for function in sorted(ends):
            was = _guards(before, back.get(name, name), edits.names.get(function, function), names)
            new = _guards(after, name, function, None)
            fresh = sorted(new - was)
            if fresh:
                out[function] = list(dict.fromkeys([*out.get(function, []), *fresh]))
    return out


def _guards(side: Side, field: str, function: str, names: Names | None) -> set[str]:
    return {
        f"{'' if guard.holds else 'not '}`{names.text(guard.text) if names else guard.text}`"
        for entry in side.fields.get(field, [])
        for access in (*entry.writes, *entry.reads)
        if access.function == function
        for guard in access.guards
        if guard.kind in ("if", "return")
    }


def _half(point: CouplingPoint, guards: dict[str, list[str]], dead: list[Dead]) -> Change:
    steps = [
        Step(path=v.path, design=v.design, before=v.severity, after=v.severity, reason=v.reason) for v in point.verdicts
    ]
    unset = [d for d in dead if d.function in guards]
    why = [f"{short(function)} asks {listed(found, 2)} now." for function, found in guards.items()]
    why += [f"But nobody sets `{d.name}`." for d in unset]
    reasons = dict.fromkeys(step.reason for step in steps if step.after == "hard" and step.reason)
    why.append(f"It is as hard as before{': ' + listed(reasons, 1) if reasons else ''}.")
    return Change(
        of="point", change="changed", title=point.title, designs=designs_of(steps), fields=list(point.fields),
        functions=list(dict.fromkeys(p.function for p in (*point.producers, *point.consumers))),
        before=told_severity(steps, "before"), after=told_severity(steps, "after"),
        where=None if point.condition == "always" else point.condition, why=" ".join(why),
        paths=[path for path, level in sorted(point.severity.items()) if level], severities=steps, point=point.id,
        weight=50,
    )  # fmt: skip
