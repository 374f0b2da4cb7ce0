"""Coupling points that are gone, new, moved, or weigh differently, and the facts behind that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sgltrace.insight.changes.flow import Flow
from sgltrace.insight.changes.model import ORDER, Change, Step, designs_of
from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.sides import Side, listed, short
from sgltrace.model import CouplingPoint

SAME = 0.5
"""Two points that are so alike are one."""

_WEIGHT = {"hard": 100, "soft": 30, "none": 5, None: 0}


@dataclass(frozen=True)
class _Seen:
    """What a point is about, in the names of the source after."""

    point: CouplingPoint
    fields: frozenset[str]
    ends: frozenset[str]
    title: frozenset[str]
    slug: str
    """What of the id is not its kind: of one that a new function takes part in the kind may be another."""


def compare_points(before: Side, after: Side, names: Names) -> list[Change]:
    """The changes of points."""
    flow = Flow(before, after, names)
    pairs, gone, new = match_points(before, after, names)
    out = [_gone(point, before, after, names, flow) for point in gone]
    out += [_new(point, before, after, flow) for point in new]
    for old, now in pairs:
        change = _between(old, now, before, after, names, flow)
        if change is not None:
            out.append(change)
    return _left_over(out)


def _left_over(changes: list[Change]) -> list[Change]:
    """An uncategorised point is shown where no other speaks of its place: one that shows as another goes is not new."""
    better = [c for c in changes if c.change in ("gone", "easier") and c.progress]
    for change in changes:
        if change.change != "new" or not (change.point or "").startswith("uncategorised"):
            continue
        stood = next((c for c in better if set(change.functions) <= set(c.functions)), None)
        if stood is not None:
            change.change, change.designs = "changed", dict.fromkeys(change.designs, "same")
            change.weight //= 3
            change.why = f"It was part of what is {stood.change}: {stood.title}. {change.why}"
    return changes


# --- which is which ---


def match_points(
    before: Side, after: Side, names: Names
) -> tuple[list[tuple[CouplingPoint, CouplingPoint]], list[CouplingPoint], list[CouplingPoint]]:
    """Points of both sides that are the same, those that are gone, and those that are new."""
    left = [_seen(point, names) for point in before.index.coupling_points]
    right = [_seen(point, None) for point in after.index.coupling_points]
    scored = sorted(
        (-score, i, j)
        for i, one in enumerate(left)
        for j, other in enumerate(right)
        if (score := _like(one, other)) >= SAME
    )
    taken: dict[int, int] = {}
    used: set[int] = set()
    for _, i, j in scored:
        if i not in taken and j not in used:
            taken[i] = j
            used.add(j)
    pairs = [(left[i].point, right[j].point) for i, j in sorted(taken.items())]
    gone = [one.point for i, one in enumerate(left) if i not in taken]
    return pairs, gone, [other.point for j, other in enumerate(right) if j not in used]


def _seen(point: CouplingPoint, names: Names | None) -> _Seen:
    ends = {place.function for place in (*point.producers, *point.consumers)}
    if names is None:
        fields, title, id = set(point.fields), point.title, point.id
    else:
        fields = {names.field(field) for field in point.fields}
        ends = {names.function(end) or end for end in ends}
        title, id = names.text(point.title), _renamed_id(point.id, names)
    words = frozenset(re.findall(r"\w+", title.lower()))
    slug = re.sub(r"-\d+$", "", id).removeprefix(f"{point.kind.replace('_', '-')}-")
    return _Seen(point, frozenset(fields), frozenset(ends), words, slug)


def _renamed_id(id: str, names: Names) -> str:
    """An id with the names of the source after: ids are names with hyphens in their words."""
    for old, new in sorted({**names.words, **names.classes}.items(), key=lambda pair: -len(pair[0])):
        id = re.sub(rf"\b{re.escape(_slug(old))}\b", _slug(new), id)
    return id


def _slug(name: str) -> str:
    return "-".join(re.findall(r"[a-z0-9]+", name.lower()))


def _like(one: _Seen, other: _Seen) -> float:
    """How alike two points are: 1 where kind, slug, fields and ends agree. 0 for those of fields that have nothing in
    common, under slugs of their own."""
    same = one.slug == other.slug
    if not same and one.point.kind != other.point.kind:
        return 0.0
    fields = _share(one.fields, other.fields)
    if not fields and one.fields and other.fields:
        fields = 0.6 * _share(_bare(one.fields), _bare(other.fields))
    if not same and not fields and (one.fields or other.fields):
        return 0.0
    score = 0.35 * same + 0.15 * (one.point.kind == other.point.kind)
    return score + 0.25 * fields + 0.15 * _share(one.ends, other.ends) + 0.1 * _share(one.title, other.title)


def _share(one: frozenset[str], other: frozenset[str]) -> float:
    """How much of the smaller set is in the other: a point that has become larger is the same."""
    if not one and not other:
        return 1.0
    both = len(one & other)
    return both / min(len(one), len(other)) * (0.5 + 0.5 * both / max(len(one), len(other))) if both else 0.0


def _bare(fields: Iterable[str]) -> frozenset[str]:
    return frozenset(field.rpartition(".")[2] for field in fields)


# --- what differs ---


def _gone(point: CouplingPoint, before: Side, after: Side, names: Names, flow: Flow) -> Change:
    paths = _paths_of(point)
    steps = [Step(path=v.path, design=v.design, before=v.severity, after=None, reason=v.reason) for v in point.verdicts]
    deleted = [path for path in paths if path not in after.paths]
    alive = [path for path in paths if path in after.paths]
    why: list[str] = []
    progress = bool(alive)
    if deleted:
        told = listed(deleted)
        unknown = [path for path in deleted if after.unknown(path)]
        why.append(
            f"Whether {told} is still there is unknown: nothing can be said of it."
            if unknown
            else f"{told} is gone with its worker: nothing was repaired there."
        )
    if alive:
        lost = flow.lost([place.function for place in point.consumers])
        if lost.all:
            progress = not lost.unreached
            why.append(
                f"Nothing reaches {listed(map(short, lost.unreached))} any more: nothing was repaired."
                if lost.unreached
                else f"{listed(map(short, lost.gone))} "
                f"{'is' if len(lost.gone) == 1 else 'are'} gone, with what relied on it."
            )
        why += flow.told(point.fields, alive, _ends(point, names))
    return Change(
        of="point",
        change="gone",
        title=point.title,
        designs=designs_of([step for step in steps if step.path in alive])
        if progress
        else dict.fromkeys(designs_of(steps), "same"),
        fields=[names.field(field) for field in point.fields],
        functions=_ends(point, names),
        before=told_severity(steps, "before"),
        where=_where(point),
        why=" ".join(why) or "No step meets it any more.",
        paths=paths,
        severities=steps,
        point=point.id,
        progress=progress,
        weight=_worst(steps) + (0 if progress else -60) - _aside(point),
    )


def _new(point: CouplingPoint, before: Side, after: Side, flow: Flow) -> Change:
    steps = [Step(path=v.path, design=v.design, before=None, after=v.severity, reason=v.reason) for v in point.verdicts]
    paths = _paths_of(point)
    fresh = [path for path in paths if path not in before.paths]
    why = [f"{listed(fresh)} was not there before."] if fresh else []
    why += flow.told_after(point.fields, paths, _ends(point, None))
    return Change(
        of="point",
        change="new",
        title=point.title,
        designs=designs_of(steps),
        fields=list(point.fields),
        functions=_ends(point, None),
        after=told_severity(steps, "after"),
        where=_where(point),
        why=" ".join([*why, point.why_it_blocks]),
        paths=paths,
        severities=steps,
        point=point.id,
        weight=_worst(steps) - _aside(point),
    )


def _between(
    old: CouplingPoint, now: CouplingPoint, before: Side, after: Side, names: Names, flow: Flow
) -> Change | None:
    """What differs between a point and itself; None where nothing does but lines."""
    steps = _steps(old, now, before, after)
    ways = {step.way for step in steps}
    moved = _moved(old, names)
    facts = [*_condition(old, now, names), *_formula(old, now, names)]
    ends = {*_ends(old, names), *_ends(now, None)}
    base = Change(
        of="point",
        change="changed",
        title=now.title,
        designs=designs_of(steps),
        fields=list(now.fields),
        functions=_ends(now, None),
        before=told_severity(steps, "before"),
        after=told_severity(steps, "after"),
        where=_where(now),
        paths=_paths_of(now),
        severities=steps,
        point=now.id,
    )
    if ways - {"same"}:
        base.change = "harder" if "harder" in ways else "easier"
        why = [*_reasons(steps), *facts, *flow.told(old.fields, _paths_of(old), ends)]
        base.weight = _worst([step for step in steps if step.way != "same"]) - _aside(now)
    elif facts or _fields_differ(old, now, names, after):
        why = [*facts, *_fields_differ(old, now, names, after), *flow.told(old.fields, _paths_of(old), ends)]
        base.weight = _worst(steps) // 5
    elif moved:
        base.change = "moved"
        why = [f"{listed([f'{short(one)} is {short(other)}' for one, other in moved])} after."]
        base.weight = 1
    else:
        return None
    base.why = " ".join(dict.fromkeys(why))
    return base


def _steps(old: CouplingPoint, now: CouplingPoint, before: Side, after: Side) -> list[Step]:
    """Each path and design of either side; a path that only one source has is compared with nothing."""
    left, right = ({(v.path, v.design): v for v in point.verdicts} for point in (old, now))
    out = []
    for key in sorted({*left, *right}):
        path, design = key
        if (path not in after.paths and key not in right) or (path not in before.paths and key not in left):
            continue
        verdict = right.get(key) or left[key]
        was = left[key].severity if key in left else None
        now_is = right[key].severity if key in right else None
        out.append(Step(path=path, design=design, before=was, after=now_is, reason=verdict.reason))
    return out


def _reasons(steps: Sequence[Step]) -> list[str]:
    """One sentence for each reason that made a path and design easier or harder."""
    by_reason: dict[tuple[str, str | None, str | None, str], list[str]] = {}
    for step in steps:
        if step.way != "same":
            by_reason.setdefault((step.path, step.before, step.after, step.reason), []).append(step.design)
    return [
        f"{path} {'/'.join(designs)}: {was or 'nothing'} before, {now or 'nothing'} after"
        + (f" ({reason})." if reason else ".")
        for (path, was, now, reason), designs in by_reason.items()
    ]


def _condition(old: CouplingPoint, now: CouplingPoint, names: Names) -> list[str]:
    if now.condition in (old.condition, names.text(old.condition)):
        return []
    return [f"It mattered {_when(old.condition)}, and matters {_when(now.condition)} now."]


def _when(condition: str) -> str:
    return condition if condition.startswith(("always", "where", "if", "while", "when")) else f"with {condition}"


def _formula(old: CouplingPoint, now: CouplingPoint, names: Names) -> list[str]:
    if now.formula in (old.formula, names.text(old.formula)):
        return []
    return [f"Its formula was `{old.formula or 'none'}`, and is `{now.formula or 'none'}` now."]


def _fields_differ(old: CouplingPoint, now: CouplingPoint, names: Names, after: Side) -> list[str]:
    was, are = {names.field(field) for field in old.fields}, set(now.fields)
    if any(field not in after.fields for field in are - was):
        return []  # it is named by what the vocabulary calls it: what the source calls it is not known
    told = []
    if less := sorted(was - are):
        told.append(f"No longer through {listed(less)}.")
    if more := sorted(are - was):
        told.append(f"Also through {listed(more)}.")
    return told


def _moved(old: CouplingPoint, names: Names) -> list[tuple[str, str]]:
    """Ends that have another id after."""
    ends = dict.fromkeys(place.function for place in (*old.producers, *old.consumers))
    return [(end, other) for end in ends if (other := names.function(end)) not in (None, end)]


def _ends(point: CouplingPoint, names: Names | None) -> list[str]:
    ends = dict.fromkeys(place.function for place in (*point.producers, *point.consumers))
    return list(dict.fromkeys((names.function(end) or end) if names else end for end in ends))


def _paths_of(point: CouplingPoint) -> list[str]:
    return [path for path, severity in sorted(point.severity.items()) if severity is not None]


def _where(point: CouplingPoint) -> str | None:
    return None if point.condition == "always" else point.condition


def _worst(steps: Sequence[Step]) -> int:
    """How much a change tells: most where something became hard, or is hard no more, on many paths and designs."""
    found = [max(step.before, step.after, key=ORDER.__getitem__) for step in steps if step.way != "same"]
    found = found or [step.after for step in steps]
    return max((_WEIGHT[level] for level in found), default=0) + len(found)


def _aside(point: CouplingPoint) -> int:
    """A point that matters under a condition comes behind one that always does."""
    return 0 if point.condition == "always" else 10


def told_severity(steps: Sequence[Step], side: str) -> str:
    """``v1: A hard, B hard, C none; v2: ...``."""
    out: dict[str, list[str]] = {}
    for step in steps:
        level = step.before if side == "before" else step.after
        if level is not None:
            out.setdefault(step.path, []).append(f"{step.design} {level}")
    return "; ".join(f"{path}: {', '.join(levels)}" for path, levels in out.items()) or "none"
