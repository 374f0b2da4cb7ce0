"""From two sides of a diff to its impact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sgltrace.insight.changes.compare import compare_sources, names_of, ranked
from sgltrace.insight.changes.defaults import compare_defaults
from sgltrace.insight.changes.model import ORDER, Change
from sgltrace.insight.changes.sides import Side, listed, short
from sgltrace.insight.impact.edits import Edits, edited_fields, find_edits
from sgltrace.insight.impact.flags import Dead, dead_conditions
from sgltrace.insight.impact.halves import half_repairs
from sgltrace.insight.impact.model import Edited, Impact

IN_THE_WAY = ("point", "contract", "gate")


def assess(before: Side, after: Side, files: Sequence[str], said: Callable[[str], None] = lambda text: None) -> Impact:
    """The impact of a diff that makes ``after`` of ``before`` and changes ``files`` (paths below the source root)."""
    assert before.tree is not None and after.tree is not None
    said("Comparing")
    names = names_of(before, after)
    edits = find_edits(before.tree, after.tree, files, names)
    found = compare_sources(before, after, names)
    defaults, notes = compare_defaults(before, after, names, said)
    dead = dead_conditions(edits, after)
    out = Impact(
        applies=True,
        before=before.called(),
        touches=edits.touches,
        edited=_edited(before, after, edits),
        fields=edited_fields(before, after, edits, names),
        renamed=found.renamed,
        notes=[*found.notes, *notes],
    )
    _sort(ranked([*found.changes, *defaults]), out, dead)
    out.partly += half_repairs(before, after, names, edits, dead, out)
    out.partly = ranked(out.partly)
    out.paths = sorted({path for entry in out.edited for path in entry.paths})
    out.beside = not (out.resolves or out.partly or out.adds or out.no_progress)
    out.why = _answer(out)
    return out


# --- sorting the changes ---


def _sort(changes: list[Change], out: Impact, dead: list[Dead]) -> None:
    for change in changes:
        if change.change == "moved":
            continue
        if change.of not in IN_THE_WAY and not (change.of == "default" and change.designs):
            (out.no_progress if change.title.startswith("The path") and change.change == "gone" else out.others).append(
                change
            )
        elif change.change == "gone" and not change.progress:
            out.no_progress.append(change)
        elif change.change in ("new", "harder") and "harder" in change.designs.values():
            out.adds.append(change)
        elif "easier" in change.designs.values():
            half = _behind(change, dead)
            if half is not None:
                change.why = f"{_said(half)} {change.why}"
                out.partly.append(change)
            elif _remains(change):
                change.why = f"{_remaining(change)} {change.why}"
                out.partly.append(change)
            else:
                out.resolves.append(change)
        elif "harder" in change.designs.values():
            out.adds.append(change)
        else:
            out.others.append(change)
    _moved_on(out)
    _with_points(out)


def _behind(change: Change, dead: list[Dead]) -> Dead | None:
    """The dead condition that a repair stands behind: one in a function that the point has an end in."""
    return next((found for found in dead if found.function in change.functions), None)


def _said(dead: Dead) -> str:
    return f"Half a repair: {short(dead.function)} asks `{dead.test}`, but nobody sets `{dead.name}`."


def _remains(change: Change) -> bool:
    """Whether something of a point is in the way still on every path where it became easier."""
    better = {step.path for step in change.severities if step.way == "easier"}
    hard = {step.path for step in change.severities if step.after == "hard"}
    return bool(better) and better <= hard


def _remaining(change: Change) -> str:
    left = [f"{s.path} {s.design}" for s in change.severities if s.after == "hard"]
    return f"Still hard for {listed(left, 6)}."


def _with_points(out: Impact) -> None:
    """A row of the contract goes with its field's points: where these were not repaired, it was not either."""
    lost = {name for change in out.no_progress for name in change.fields}
    repaired = {name for change in (*out.resolves, *out.partly) if change.of == "point" for name in change.fields}
    for change in list(out.resolves):
        if change.of == "contract" and set(change.fields) <= lost - repaired:
            out.resolves.remove(change)
            out.no_progress.append(change)


def _moved_on(out: Impact) -> None:
    """What is gone at one place and hard at another for the same field is not resolved: the trouble has moved."""
    for change in list(out.resolves):
        if change.of != "point" or change.change != "gone":
            continue
        now = next(
            (
                new
                for new in out.adds
                if new.of == "point" and set(new.fields) & set(change.fields) and _covers(new, change)
            ),
            None,
        )
        if now is not None:
            out.resolves.remove(change)
            change.why = f"What it was about is elsewhere now: {now.title}. {change.why}"
            out.partly.append(change)


def _covers(new: Change, old: Change) -> bool:
    """Whether a new point is as bad as an old one was, for every path and design."""
    now = {(s.path, s.design): ORDER[s.after] for s in new.severities}
    return all(now.get((s.path, s.design), 0) >= ORDER[s.before] for s in old.severities if ORDER[s.before])


# --- what is edited ---


def _edited(before: Side, after: Side, edits: Edits) -> list[Edited]:
    out = []
    for id in edits.touches:
        deleted = id in edits.deleted
        side = before if deleted else after
        function = side.functions.get(id)
        ends = {edits.names.get(id, id), id}
        points = [
            point.id
            for index in (before.index, after.index)
            for point in index.coupling_points
            if any(place.function in ends for place in (*point.producers, *point.consumers))
        ]
        out.append(
            Edited(
                function=id,
                how="deleted" if deleted else "new" if id in edits.new else "edited",
                paths=list(function.paths) if function else [],
                phase=list(function.phase) if function else [],
                component=function.component if function else "",
                points=list(dict.fromkeys(points)),
                way=_way(side, id) if function else [],
            )
        )
    return sorted(out, key=lambda e: (not e.points, not e.paths, e.function))


def _way(side: Side, function: str) -> list[str]:
    """The functions from an event loop to this one, by the shortest calls that a decode step takes."""
    best: list[str] = []
    for loop in side.index.event_loops:
        edges = side.graph.shortest_path(loop, function) if loop != function else []
        if edges is not None and all(edge.decode for edge in edges):
            way = [loop, *(edge.callee for edge in edges)]
            if not best or len(way) < len(best):
                best = way
    return best


# --- the answer ---


def _answer(out: Impact) -> str:
    told = []
    if out.resolves:
        told.append(f"resolves {_counted(out.resolves)}")
    if out.partly:
        told.append(f"goes part of the way for {_counted(out.partly)}")
    if out.adds:
        told.append(f"adds {_counted(out.adds)}")
    if out.no_progress:
        told.append(f"removes {_counted(out.no_progress)} without repairing anything")
    if told:
        way = "On the way" if out.resolves or out.partly else "In the way" if out.adds else "No progress"
        return f"{way} to a dynamic disable: it {listed(told, 4)}."
    reached = [entry for entry in out.edited if entry.paths]
    if not out.touches:
        return "Beside a dynamic disable: it edits no function; comments, layout or other files only."
    if not reached:
        return "Beside a dynamic disable: no step reaches what it edits."
    near = [entry for entry in reached if entry.points]
    where = f", and is near points in {listed([short(e.function) for e in near], 3)}" if near else ""
    return (
        f"Beside a dynamic disable: a step on {listed(sorted({p for e in reached for p in e.paths}))} comes to what it "
        f"edits{where}, but nothing that an off step meets differs."
    )


def _counted(changes: Sequence[Change]) -> str:
    points = sum(change.of == "point" for change in changes)
    rest = len(changes) - points
    told = [f"{points} point{'s' if points != 1 else ''}" if points else "", f"{rest} other" if rest else ""]
    return " and ".join(filter(None, told))
