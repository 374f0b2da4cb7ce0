"""What an off step must produce: rows of the contract that came, went, or ask for something else."""

from __future__ import annotations

from sgltrace.insight.changes.model import Change, Kind, Way
from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.sides import Side, listed, short
from sgltrace.model import ContractField

DEMANDS = {"untouched": 0, "optional": 0, "must stay unset": 1, "required": 2}
"""How much a row asks of whoever writes an off step."""

_WEIGHT = {"easier": 45, "harder": 55, "new": 40, "gone": 35, "changed": 20, "moved": 1}


def compare_contract(before: Side, after: Side, names: Names) -> list[Change]:
    """The changes of the contract, path by path where both sources have it."""
    left = {(row.path, names.field(row.field)): row for row in before.index.contract}
    right = {(row.path, row.field): row for row in after.index.contract}
    out: list[Change] = []
    for key in sorted({*left, *right}):
        if key[0] not in before.paths or key[0] not in after.paths:
            continue
        old, new = left.get(key), right.get(key)
        change = _change(key[1], old, new, names, _concerned(before, after, names, key, old is None))
        if change is not None:
            out.append(change)
    return _together(_moved_between_classes(out))


def _concerned(before: Side, after: Side, names: Names, key: tuple[str, str], new: bool) -> list[str]:
    """The designs that points through the field concern: a row speaks of an off step, not of whose."""
    path, field = key
    points = [p for p in after.index.coupling_points if field in p.fields]
    if not new:
        points += [p for p in before.index.coupling_points if field in map(names.field, p.fields)]
    return sorted({v.design for p in points for v in p.verdicts if v.path == path and v.severity != "none"})


def _change(
    field: str, old: ContractField | None, new: ContractField | None, names: Names, designs: list[str]
) -> Change | None:
    row = new or old
    assert row is not None
    was, now = _demand(old), _demand(new)
    if old is not None and new is not None:
        differs = _differences(old, new, names)
        if not differs:
            return None
        kind: Kind = "easier" if now < was else "harder" if now > was else "changed"
        why = [f"{what} was {_or_none(one)}, and is {_or_none(other)} now." for what, one, other in differs]
        why += [f"Because {new.why}."] if new.why and new.requirement != old.requirement else []
    else:
        kind = "new" if old is None else "gone"
        why = _alone(row, old is None)
    way: Way = "easier" if now < was else "harder" if now > was else "same"
    return Change(
        of="contract",
        change=kind,
        title=f"{field} in the contract of {row.path}",
        designs=dict.fromkeys(designs, way) if way != "same" else {},
        fields=[field],
        functions=list(dict.fromkeys(place.function for place in (*row.writers, *row.readers))),
        before=_told(old),
        after=_told(new),
        why=" ".join(why),
        paths=[row.path],
        weight=_WEIGHT[kind] // (1 if way != "same" or kind == "changed" else 3),
    )


def _alone(row: ContractField, new: bool) -> list[str]:
    reads = f"{listed(short(place.function) for place in row.readers)} read it" if row.readers else "nothing reads it"
    if not new:
        return [f"An off step owes it no longer; it was {row.requirement}."]
    if DEMANDS[row.requirement] == 0:
        return [f"It is {row.requirement}: who reads it does without, or it is set already ({row.off_step_value})."]
    return [f"An off step owes it now: {row.off_step_value}; {reads}." + (f" {row.why}." if row.why else "")]


def _demand(row: ContractField | None) -> int:
    return 0 if row is None else DEMANDS.get(row.requirement, 2)


def _differences(old: ContractField, new: ContractField, names: Names) -> list[tuple[str, str | None, str | None]]:
    pairs = (
        ("The requirement", old.requirement, new.requirement),
        ("the shape", _text(old.shape, names), new.shape),
        ("the dtype", old.dtype, new.dtype),
        ("the stride", _text(old.stride, names), new.stride),
        ("the value", _text(old.off_step_value, names), new.off_step_value),
    )
    found = [(what, one, other) for what, one, other in pairs if one != other]
    # A value is a sentence on the writer: where nothing else differs, and the row asks nothing, it tells nothing.
    if [what for what, _, _ in found] == ["the value"] and not _demand(new):
        return []
    return [(what[0].upper() + what[1:], one, other) for what, one, other in found]


def _text(text: str | None, names: Names) -> str | None:
    return None if text is None else names.text(text)


def _or_none(text: str | None) -> str:
    return "not known" if text is None else text


def _told(row: ContractField | None) -> str | None:
    if row is None:
        return None
    return ", ".join(filter(None, (row.requirement, row.shape, row.dtype, row.off_step_value)))


def _moved_between_classes(changes: list[Change]) -> list[Change]:
    """A row that is gone from one class and new in another, asking the same, has moved."""
    out = list(changes)
    for gone in [c for c in changes if c.change == "gone"]:
        bare = gone.fields[0].rpartition(".")[2]
        for new in changes:
            if (
                new in out
                and new.change == "new"
                and new.paths == gone.paths
                and new.fields[0].rpartition(".")[2] == bare
                and (gone.before or "").partition(",")[0] == (new.after or "").partition(",")[0]
            ):
                out.remove(gone)
                new.change, new.designs, new.weight = "moved", {}, 15
                new.before = f"{gone.fields[0]}: {gone.before}"
                new.why = f"{gone.fields[0]} is {new.fields[0]} after. {new.why}"
                break
    return out


def _together(changes: list[Change]) -> list[Change]:
    """Rows of one class that came, went, or changed their demand alike are one change."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    for n, change in enumerate(changes):
        demand = ((change.before or "").partition(",")[0], (change.after or "").partition(",")[0])
        alone = change.change in ("changed", "moved")
        key = (change.change, *change.paths, change.fields[0].rpartition(".")[0], *demand, *change.designs.values())
        groups.setdefault((*key, str(n)) if alone else key, []).append(change)
    return [_one(group) for group in groups.values()]


def _one(group: list[Change]) -> Change:
    first = group[0]
    if len(group) == 1:
        return first
    fields = [change.fields[0] for change in group]
    bare = [field.rpartition(".")[2] for field in fields]
    of = f"{listed(bare)} of {fields[0].rpartition('.')[0]}"
    first.title = f"{of} in the contract of {first.paths[0]}"
    first.fields = fields
    first.functions = list(dict.fromkeys(f for change in group for f in change.functions))
    first.before = _each(group, "before")
    first.after = _each(group, "after")
    first.why = " ".join(dict.fromkeys(change.why for change in group))
    return first


def _each(group: list[Change], side: str) -> str | None:
    told = {c.fields[0].rpartition(".")[2]: c.before if side == "before" else c.after for c in group}
    return "; ".join(f"{name}: {text}" for name, text in told.items() if text) or None
