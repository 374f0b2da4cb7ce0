"""Widths of speculation that are bound when a process starts, and decide a shape, an index or a loop in an off step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sgltrace.coupling.offstep.questions import Questions, expressions_in
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo

SIZED = ["view", "reshape", "expand", "repeat", "repeat_interleave", "unflatten", "as_strided", "split", "narrow"]
MADE = ["zeros", "ones", "empty", "full", "arange", "new_empty", "new_zeros", "new_ones", "new_full", "range"]
SHAPING = frozenset([*SIZED, *MADE])
"""Methods and functions whose numbers are sizes."""


@dataclass(eq=False)
class Bound:
    """A field that holds a width of speculation, and where an off step uses it as one."""

    path: str
    cls: ClassInfo
    field: str
    writes: list[Access]
    uses: list[tuple[FunctionInfo, int, s.Expr]]
    in_verify: bool
    """Whether a step with speculation runs these places, too: a narrower verify meets them."""


def bound_widths(questions: Questions) -> Iterator[Bound]:
    """The fields of lasting objects that are given a width when the process starts."""
    q = questions
    widths = _width_fields(q)
    found: dict[tuple[ClassInfo, str], list[tuple[FunctionInfo, int, s.Expr]]] = defaultdict(list)
    verify: dict[tuple[ClassInfo, str], bool] = defaultdict(bool)
    for function in sorted(q.detached.worker.readings, key=lambda f: f.id):
        reading, other = q.detached.worker.readings[function], q.on.worker.readings.get(function)
        for whole in expressions_in(function.body):
            if id(whole) not in reading.seen:
                continue
            for part in _sizes(whole):
                for access in q.flow.at(part):
                    key = access.cls, access.field
                    if key in widths and not access.is_write:
                        found[key].append((function, access.line, whole))
                        verify[key] |= other is not None and id(whole) in other.seen
    for key in sorted(found, key=lambda key: (key[0].id, key[1])):
        places = list({(f, line): (f, line, node) for f, line, node in found[key]}.values())
        yield Bound(q.path, *key, widths[key], places, verify[key])


def _sizes(node: s.Expr) -> Iterator[s.Expr]:
    """The parts of an expression that are sizes, bounds or factors."""
    if isinstance(node, s.Call):
        name = node.func.attr if isinstance(node.func, s.Attr) else getattr(node.func, "id", "")
        if name in SHAPING:
            for arg in node.args:
                yield from s.descend(arg.value)
    elif isinstance(node, s.Sub):
        yield from s.descend(node.index)


def _width_fields(q: Questions) -> dict[tuple[ClassInfo, str], list[Access]]:
    """Fields of lasting objects of whose few writes one is made of a width, itself or of such a field."""
    names = set(q.steps.words.spec.widths)
    out: dict[tuple[ClassInfo, str], list[Access]] = {}
    apart = _of_the_draft(q)
    for _ in range(3):
        before = len(out)
        for uses in q.flow:
            key = uses.cls, uses.field
            if key in out or uses.role in ("server_args", "request", "scheduler_batch") or uses.cls in q.parts.batches:
                continue
            if uses.cls in q.parts.state_classes or uses.cls in q.parts.results:
                continue
            made = [a for a in uses.writes if a.value is not None and a.kind in ("assign", "constructor", "copy")]
            if uses.cls in apart:
                continue
            wide = [a for a in made if _is_width(q, a, names, out)]
            if wide and not any(q.on.runs(a) for a in wide):
                out[key] = wide
        if len(out) == before:
            break
    return out


def _of_the_draft(q: Questions) -> frozenset[ClassInfo]:
    """The classes of which only speculation makes objects: the draft's own graphs and backends."""
    makers: dict[ClassInfo, set[ClassInfo | None]] = defaultdict(set)
    for function, made in q.program.engine.constructed.items():
        for cls, _ in made:
            for base in q.program.engine.classes.mro(cls):
                makers[base].add(function.owner)
    speculative = {"spec_worker", "draft_worker"}
    return frozenset(
        cls for cls, owners in makers.items() if all(o is not None and q.flow.role(o) in speculative for o in owners)
    )


def _is_width(q: Questions, access: Access, names: set[str], known: dict[tuple[ClassInfo, str], list[Access]]) -> bool:
    """Whether what is written is a number made of a width."""
    value = access.value
    assert value is not None
    if isinstance(value, (s.Call, s.Cmp, s.Map, s.Seq)):
        return False
    for part in s.descend(value):
        if isinstance(part, s.Attr):
            if part.attr in names:
                return True
            if any((a.cls, a.field) in known for a in q.flow.at(part)):
                return True
    return False
