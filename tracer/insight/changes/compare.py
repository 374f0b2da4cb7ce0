"""Two sources compared: everything that differs, ranked."""

from __future__ import annotations

from sgltrace.insight.changes.contract import compare_contract
from sgltrace.insight.changes.model import Change, Changes, Renamed
from sgltrace.insight.changes.names import Names, match_names
from sgltrace.insight.changes.points import compare_points
from sgltrace.insight.changes.sides import Side
from sgltrace.insight.changes.step import compare_steps
from sgltrace.insight.changes.tensors import compare_tensors
from sgltrace.interpreter import no_collection


def compare_sources(before: Side, after: Side, names: Names | None = None) -> Changes:
    """What differs between two indexed sources. What launch commands get from them is ``defaults``'s."""
    names = names or names_of(before, after)
    changes = compare_points(before, after, names)
    changes += compare_contract(before, after, names)
    changes += compare_tensors(before, after, names)
    changes += compare_steps(before, after, names)
    return Changes(
        before=before.called(),
        after=after.called(),
        changes=ranked(changes),
        renamed=_renamed(names, changes, before, after),
        notes=_notes(before, after),
    )


def names_of(before: Side, after: Side) -> Names:
    """What is called what on the two sides."""
    bodies = (before.bodies, after.bodies)
    both = None if bodies[0] is None or bodies[1] is None else (bodies[0], bodies[1])
    with no_collection():  # the trees of all files that differ
        return match_names(before.index, after.index, both)


def ranked(changes: list[Change]) -> list[Change]:
    """The changes, what matters most first."""
    return sorted(changes, key=lambda c: (-c.weight, c.of, c.change, c.title, c.fields, c.functions, c.paths))


def _renamed(names: Names, changes: list[Change], before: Side, after: Side) -> list[Renamed]:
    """What is called otherwise, or lies elsewhere: all of a few; of many what a change or a point has to do with."""
    told = {f for c in changes for f in c.functions}
    for point in after.index.coupling_points:
        told |= {place.function for place in (*point.producers, *point.consumers)}
    functions = [(one, other) for one, other in sorted(names.functions.items()) if one != other and other in told]
    return [
        *(Renamed(of="class", before=one, after=other) for one, other in sorted(names.classes.items())),
        *(Renamed(of="field", before=one, after=other) for one, other in sorted(names.fields.items())),
        *(Renamed(of="function", before=one, after=other) for one, other in functions),
    ]


def _notes(before: Side, after: Side) -> list[str]:
    notes = []
    for side in (before, after):
        if side.tree is None:
            notes.append(
                f"The source of {side.called().name} is not there any more: what was renamed cannot be told from what "
                f"is gone and new."
            )
        notes += [
            f"{skipped.file} of {side.called().name} was not read: {skipped.why}" for skipped in side.index.skipped
        ]
        notes += [f"{path} of {side.called().name} is unknown: {why}" for path, why in side.index.unknown_paths.items()]
    return notes
