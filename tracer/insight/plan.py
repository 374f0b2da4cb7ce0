"""The refactor as edits: what to supply, where, in which order, what each prevents, and how to test it.

Points that one edit answers are one item. An item is made of what the index knows: the points of a path and design, the
contract's rows of the objects that it supplies, what an off step strikes and in which order, and who does a part of the
work already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import networkx as nx

from sgltrace.insight.answer import severity_of
from sgltrace.insight.configured import OTHERS, UNKNOWN, Configured
from sgltrace.insight.plan_facts import Facts
from sgltrace.insight.plan_graphs import GraphState, graph_states
from sgltrace.insight.plan_words import FAILURES, LEFT, NOTHING, TITLES, WHATS, size_of, test_of
from sgltrace.model import CouplingPoint, Index, Met

DECIDE, STATE, BATCH, RESULT, DRAFT, GRAPHS, REQUESTS = (
    "decide",
    "state",
    "batch",
    "result",
    "draft",
    "graphs",
    "requests",
)
ORDER = (DECIDE, STATE, BATCH, DRAFT, RESULT, REQUESTS, GRAPHS)
"""The order of items that nothing else orders: as a step comes to them, then what can be done last."""
WEIGHTS = {"S": 1, "M": 2, "L": 4}


EDITS_SCHEMA = "sgltrace.edits/1"


class Supply(msgspec.Struct, frozen=True, kw_only=True):
    """A value that an off step must put somewhere."""

    field: str
    shape: str | None
    dtype: str | None
    stride: str | None
    value: str
    requirement: str
    """``required`` or ``must stay unset``."""
    on: str
    """The same field of the batch that the worker is handed, where that is another class."""
    why: str
    without: str
    """What happens where it is left as it is."""
    stale: str
    """What an old value does, where one may stand there."""
    read_in: list[str]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A function that an item touches, or that shows what it must do."""

    function: str
    file: str
    line: int
    what: str


class Struck(msgspec.Struct, frozen=True, kw_only=True):
    """Where an off step fails as long as the item is not done."""

    order: int
    function: str
    line: int
    exception: str
    later: bool
    where: str


class Item(msgspec.Struct, kw_only=True):
    """One edit."""

    id: str
    number: int = 0
    title: str
    what: str
    condition: str = "always"
    applies: str = ""
    """With a configuration: ``always``, ``yours`` or ``unknown``."""
    points: list[str]
    soft: list[str]
    """Soft points that the same edit answers."""
    supply: list[Supply]
    leave_alone: list[str]
    functions: list[Place]
    after: list[str] = []
    why_after: dict[str, str] = {}
    met: list[Struck]
    failure: str
    failures: dict[str, str]
    """By point."""
    size: str = "S"
    size_why: str = ""
    test: str = ""

    @property
    def without(self) -> str:
        """What happens without it, as a reader is told."""
        return "nothing fails" if self.failure == "none" else self.failure


class Plan(msgspec.Struct, kw_only=True):
    """The edits of one design on one path."""

    schema: str = EDITS_SCHEMA
    path: str
    design: str
    configuration: str = ""
    items: list[Item]
    critical: list[str]
    """The longest chain of items of which each needs the one before."""
    graphs: list[GraphState]
    """CUDA graphs and attention-backend states that must exist in addition."""
    costs: list[str]
    """Soft points that no item answers."""
    left_out: list[str]
    """Hard points of other configurations."""
    notes: list[str]


def make_plan(index: Index, path: str, design: str, configured: Configured | None = None) -> Plan:
    """The plan of a design on a path, cut down to a configuration where one is given."""
    facts = Facts(index, path, configured)
    groups: dict[tuple[str, str], list[CouplingPoint]] = defaultdict(list)
    soft: dict[tuple[str, str], list[CouplingPoint]] = defaultdict(list)
    left_out, done = [], {}
    for point in index.coupling_points:
        level = severity_of(point, path, design)
        if level not in ("hard", "soft"):
            continue
        if configured is not None and configured.point(point).state == OTHERS:
            left_out += [point.id] if level == "hard" else []
            continue
        key = _key(point, facts)
        own = facts.done_by_path(point) if key[0] == REQUESTS else []
        if own:
            done[point.id] = own
            key = (RESULT, key[1])
        (groups if level == "hard" else soft)[key].append(point)
    groups.setdefault((DECIDE, ""), [])
    items = [_item(facts, key, groups[key], soft.pop(key, []), design, done) for key in sorted(groups, key=_rank)]
    _order(items, facts)
    return Plan(
        path=path,
        design=design,
        configuration=configured.configuration.name if configured is not None else "",
        items=items,
        critical=_critical(items),
        graphs=graph_states(facts, design),
        costs=[point.id for points in soft.values() for point in points],
        left_out=left_out,
        notes=_notes(index, path),
    )


def _rank(key: tuple[str, str]) -> tuple[int, int, str]:
    return (1 if key[1] else 0, ORDER.index(key[0]), key[1])


def _key(point: CouplingPoint, facts: Facts) -> tuple[str, str]:
    """The edit that answers a point, and the condition that makes it an edit of its own."""
    return facts.edit_of(point), "" if facts.is_unconditional(point) else point.condition


def _item(
    facts: Facts,
    key: tuple[str, str],
    points: list[CouplingPoint],
    soft: list[CouplingPoint],
    design: str,
    done: dict[str, list[str]],
) -> Item:
    edit, condition = key
    supply = [] if condition else _supply(facts, edit, design)
    struck = facts.met_by(edit, points) if not condition else []
    failures = {point.id: facts.failure(point) for point in points}
    own = [text for point in (*points, *soft) for text in done.get(point.id, [])]
    what = _what(facts, edit, design) if not condition else " ".join(dict.fromkeys(p.refactor for p in points))
    title = LEFT if what == NOTHING else TITLES[edit]
    item = Item(
        id=edit if not condition else f"{edit}-{_slug(condition)}",
        title=title if not condition else _of_condition(condition, title),
        what=what,
        condition=condition or "always",
        applies=_applies(facts, points, condition),
        points=[point.id for point in points],
        soft=[point.id for point in soft],
        supply=supply,
        leave_alone=list(dict.fromkeys([*own, *(facts.left_alone(edit) if not condition else [])])),
        functions=[Place(**spot) for spot in facts.places(edit, design, points, bool(condition))],
        met=[_struck(met) for met in struck],
        failure=_failure(struck, [*(value.without for value in supply), *failures.values()]),
        failures=failures,
    )
    item.size, item.size_why = size_of(item.supply, item.functions, points)
    item.test = test_of(item.failure, struck, edit)
    return item


def _what(facts: Facts, edit: str, design: str) -> str:
    if edit == REQUESTS and not _supply(facts, edit, design):
        return NOTHING
    return WHATS[edit].format(**facts.words(design))


def _of_condition(condition: str, title: str) -> str:
    return f"{condition[0].upper()}{condition[1:]}: {title[0].lower()}{title[1:]}"


def _supply(facts: Facts, edit: str, design: str) -> list[Supply]:
    return [
        Supply(
            field=row.field,
            shape=row.shape,
            dtype=row.dtype,
            stride=row.stride,
            value=row.off_step_value + facts.slots(row),
            requirement=row.requirement,
            on=facts.handed(row, design),
            without=facts.without(row),
            stale=facts.stale(row),
            why=row.why,
            read_in=[f"{p.function.rpartition(':')[2]}:{p.line}" for p in facts.running(row.readers)[:3]],
        )
        for row in facts.rows(edit)
        if row.requirement in ("required", "must stay unset") and not (edit == REQUESTS and facts.kept(row))
    ]


def _struck(met: Met) -> Struck:
    return Struck(
        order=met.order, function=met.function, line=met.line, exception=met.exception, later=met.later, where=met.where
    )


def _failure(struck: Sequence[Met], failures: Sequence[str]) -> str:
    """What happens first without the item: what is struck first, else the worst of what it leaves undone."""
    if struck:
        return FAILURES[1] if struck[0].later else FAILURES[0]
    return min(failures, key=FAILURES.index, default=FAILURES[-1])


def _applies(facts: Facts, points: list[CouplingPoint], condition: str) -> str:
    if facts.configured is None:
        return ""
    states = {facts.configured.point(point).state for point in points}
    if not states:
        return "always"
    return UNKNOWN if condition and states == {UNKNOWN} else "yours" if "always" not in states else "always"


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _notes(index: Index, path: str) -> list[str]:
    notes = list(index.notes)
    if path in index.unknown_paths:
        notes.append(f"Whether there is a path {path} is unknown: {index.unknown_paths[path]}")
    return [note for note in notes if "taken for" in note or "not found" in note.lower() or "unknown" in note]


# --- what comes before what ---


def _order(items: list[Item], facts: Facts) -> None:
    """Name what each item needs, and bring the items into an order that has it before."""
    by_id = {item.id: item for item in items}
    for item in items:
        edit = item.id.partition("-")[0]
        needed = {} if item.id == DECIDE else {DECIDE: "it is done where that is decided"}
        if item.condition != "always":
            needed = {edit: "it adds to the same edit"} if edit in by_id else needed
        else:
            needed |= {other: why for other, why in facts.needs(edit).items() if other in by_id and other != item.id}
        item.why_after = dict(sorted(needed.items()))
        item.after = sorted(needed)
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(by_id)
    graph.add_edges_from((before, item.id) for item in items for before in item.after)
    first = {item.id: item.met[0].order if item.met else 10**6 for item in items}
    place = {item.id: number for number, item in enumerate(items)}

    def key(name: str) -> tuple[bool, int, int, str]:
        return (by_id[name].condition != "always", first[name], place[name], name)

    items[:] = [by_id[name] for name in nx.lexicographical_topological_sort(graph, key=key)]
    for number, item in enumerate(items, 1):
        item.number = number


def _critical(items: list[Item]) -> list[str]:
    """The chain of items that takes longest, by their sizes."""
    best: dict[str, tuple[int, list[str]]] = {}
    for item in items:  # each stands behind what it needs
        before = max((best[name] for name in item.after), default=(0, []), key=lambda entry: (entry[0], entry[1]))
        best[item.id] = (before[0] + WEIGHTS[item.size], [*before[1], item.id])
    return max(best.values(), key=lambda entry: (entry[0], entry[1]))[1] if best else []
