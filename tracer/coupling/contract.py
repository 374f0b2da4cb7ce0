"""The contract of an off step: what a bypass must hand over or leave behind, and who reads it.

For a path whose scheduler takes results apart (v2) that is the result and the draft state it carries; for one whose
worker acts on the batch and the requests itself (v1) it is the state in which it leaves them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import Site, site_paths, sites, trim
from sgltrace.coupling.query import is_copy, is_reset
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.wording import reads_of, show, writes_of
from sgltrace.index.facts import syntax as s
from sgltrace.model import ContractField, Place, Tensor

REQUIRED, OPTIONAL, UNSET, UNTOUCHED = "required", "optional", "must stay unset", "untouched"

_RESULT = ("result",)
_DRAFT = ("draft_input", "spec_input", "draft_extend_input", "future_indices")
_LEFT = ("scheduler_batch", "request")
_READERS = 12


@dataclass(frozen=True)
class _Shape:
    """The shape and dtype of a field, and where they were read."""

    shape: str | None = None
    dtype: str | None = None


def contract(universe: Universe, tensors: Sequence[Tensor] = ()) -> list[ContractField]:
    """The rows of every path of the tree."""
    rows: list[ContractField] = []
    known = _idle_shapes(universe)
    for path in sorted(universe.paths):
        derived = _tensor_shapes(tensors, path)
        if _resolves(universe, path):
            rows += _rows(universe, path, _RESULT, "result", known, derived)
            rows += _rows(universe, path, _DRAFT, _draft_name(universe), known, derived)
        else:
            rows += _rows(universe, path, _RESULT, "result", known, derived)
            rows += _rows(universe, path, _DRAFT, "spec_info", known, derived)
            for role in _LEFT:
                rows += _left(universe, path, role, known, derived)
    return rows


def _resolves(universe: Universe, path: str) -> bool:
    """Whether the scheduler resolves results on a path: it reads a relayed draft state from them."""
    return any(
        universe.role(a.cls) == "result" and universe.fn(a).side == SCHEDULER and path in _paths(universe, a)
        for a in universe.read(universe.vocabulary.spec.result_fields & {"next_draft_input"})
    )


def _draft_name(universe: Universe) -> str:
    relayed = sorted(universe.vocabulary.names("result", "relay") & universe.vocabulary.spec.result_fields)
    return relayed[0] if relayed else "spec_info"


def _paths(universe: Universe, access: Access) -> frozenset[str]:
    return site_paths(universe, Site(access.function, access.line, "", 0, access.path))


def _collect(universe: Universe, path: str, roles: Iterable[str]) -> dict[str, tuple[list[Access], list[Access]]]:
    """Writes and reads of the fields of some roles, by code that a step of a path runs."""
    found: dict[str, tuple[list[Access], list[Access]]] = defaultdict(lambda: ([], []))
    for role in roles:
        for access in universe.held_by(role):
            if path in _paths(universe, access):
                found[access.field][0 if access.write else 1].append(access)
    return found


def _rows(
    universe: Universe,
    path: str,
    roles: Iterable[str],
    prefix: str,
    known: dict[str, _Shape],
    derived: dict[str, _Shape],
) -> list[ContractField]:
    """One row for each field that a step of the path reads from what the worker hands over."""
    rows = []
    for name, (writes, reads) in sorted(_collect(universe, path, roles).items()):
        reads = [a for a in reads if a.how != "call" or _is_value(universe, name)]
        made = [a for a in writes if universe.fn(a).in_worker and not is_copy(a)]
        outside = [a for a in reads if universe.fn(a).side != TARGET and not universe.elsewhere(universe.fn(a))]
        if (
            not outside
            or not (made or writes)
            or _is_method(universe, name)
            or not _handed_over(universe, writes, outside)
        ):
            continue
        row = _row(universe, path, f"{prefix}.{name}", name, made or writes, outside, known, derived)
        rows.append(row)
    return rows


def _handed_over(universe: Universe, writes: list[Access], reads: list[Access]) -> bool:
    """Whether a field outlives the stage that writes it: the relay, the scheduler or the next step reads it."""
    written = {a.function for a in writes}
    for access in reads:
        fn = universe.fn(access)
        role = universe.role(fn.cls)
        if role in ("future_map", "scheduler", "scheduler_batch", "result") or fn.cls in universe.scheduler_classes:
            return True
        if role in ("spec_worker", "draft_worker") and fn.id not in written:
            return True
    return False


def _row(
    universe: Universe,
    path: str,
    title: str,
    name: str,
    writes: list[Access],
    reads: list[Access],
    known: dict[str, _Shape],
    derived: dict[str, _Shape],
) -> ContractField:
    shape = derived.get(name) or known.get(name) or _Shape()
    requirement = _requirement(universe, name, writes, reads)
    tokens = name in universe.fields("result", "tokens")
    stride, carried = _stride(universe, path) if tokens else (None, False)
    if tokens and stride is not None and shape.shape is None:
        shape = _Shape(f"(bs * {stride.rpartition('.')[2]},)", shape.dtype)
    if shape.shape is None and name in universe.fields("result", "count_tensors"):
        shape = _Shape("(bs,)", shape.dtype)
    return ContractField(
        path=path,
        field=title,
        shape=shape.shape,
        dtype=shape.dtype,
        stride=f"request i at i * {stride}" if stride else None,
        requirement=requirement,
        off_step_value=_value(universe, name, requirement, shape, stride, carried),
        writers=_places(universe, sites(writes, writes_of)),
        readers=_places(universe, sites(reads, reads_of)),
        why=_why(universe, name, reads),
    )


def _left(
    universe: Universe, path: str, role: str, known: dict[str, _Shape], derived: dict[str, _Shape]
) -> list[ContractField]:
    """Fields of the batch or the request that the worker changes, and the scheduler or a later step reads."""
    rows = []
    for name, (writes, reads) in sorted(_collect(universe, path, (role,)).items()):
        changed = [a for a in writes if universe.fn(a).in_worker and universe.fn(a).side == WORKER and not is_copy(a)]
        later = [a for a in reads if universe.fn(a).side in (SCHEDULER, WORKER)]
        if not changed or not any(universe.fn(a).side == SCHEDULER for a in later) or all(map(is_reset, changed)):
            continue
        title = "Req" if role == "request" else "batch"
        row = _row(universe, path, f"{title}.{name}", name, changed, later, known, derived)
        if row.requirement == OPTIONAL:
            row.requirement = REQUIRED
        rows.append(row)
    return rows


def _requirement(universe: Universe, name: str, writes: list[Access], reads: list[Access]) -> str:
    """What a bypass owes a field: from who writes it, and from whether its readers ask first."""
    if not any(universe.fn(a).in_worker for a in writes):
        return UNTOUCHED
    if all(a.regime == "plain" for a in writes):
        return UNSET
    if name in universe.fields("stream_order", "events"):
        return REQUIRED  # a reader that finds None passes over the wait
    unguarded = [a for a in reads if a.how != "test" and not _asked(universe, a)]
    return REQUIRED if unguarded else OPTIONAL


def _asked(universe: Universe, access: Access) -> bool:
    """Whether a read stands where the same function has asked for the field before."""
    return any(
        a.field == access.field and a.how == "test" and a.line <= access.line and access.line - a.line <= 6
        for a in universe.facts[access.function].accesses
    )


def _value(universe: Universe, name: str, requirement: str, shape: _Shape, stride: str | None, carried: bool) -> str:
    """What an off step puts there: one accepted token for each request, and lengths one longer.

    ``carried`` says whether the result itself holds the stride, so that an off step may choose it.
    """
    if requirement == UNSET:
        return "None"
    if requirement == UNTOUCHED:
        return "untouched; the scheduler sets it"
    if stride is not None:
        width = stride.rpartition(".")[2]
        padded = f"(bs * {width},) with the token of request i at i * {width}"
        return f"{padded}, or (bs,) if the result is given a stride of 1" if carried else padded
    if name in universe.fields("result", "counts"):
        if name in universe.vocabulary.spec.widths:
            return "1 for tokens of (bs,), or the width that they are padded to"
        if name in universe.fields("result", "count_tensors"):
            return "ones(bs): one accepted token, the bonus counted"
        return "the counts of one accepted token for each request"
    if name in universe.fields("result", "relay") and "seq_lens" in name:
        return "seq_lens + 1, in a new tensor"
    if name in universe.fields("result", "relay"):
        return "a full draft input, with every field below"
    if name in universe.fields("draft_state", "bonus"):
        return "the sampled token of the off step, one for each request"
    if name in universe.fields("draft_state"):
        rows = shape.shape or "rows of the same shape"
        return f"the draft's output of a one-token extend, or placeholders of {rows}"
    if name in universe.fields("stream_order", "events"):
        return "an event recorded on the forward stream after the new lengths are queued"
    if name in universe.fields("seq_lens") | universe.fields("seq_lens", "mirrors"):
        return "the lengths plus one"
    if name in universe.fields("kv_bookkeeping", "lengths"):
        return "one longer"
    if name in universe.fields("result", "output"):
        return "the sampled token appended"
    if name in universe.vocabulary.spec.info_fields:
        return "a draft input with a row for each unfinished request"
    if name == "forward_mode":
        return "DECODE, as before the step"
    if name in universe.fields("kv_alloc", "slots"):
        return "the slot of the one token of each request"
    if name in universe.fields("metrics"):
        return "as it was: no verify ran"
    return "from the off step's forward pass"


def _why(universe: Universe, name: str, reads: list[Access]) -> str:
    sides = sorted({universe.fn(a).side for a in reads})
    return f"read by the {' and the '.join(sides)}" if sides else ""


def _stride(universe: Universe, path: str) -> tuple[str | None, bool]:
    """The stride by which the scheduler cuts a result's tokens on a path, and whether it is read from the result."""
    tokens = universe.fields("result", "tokens")
    for stride in universe.strides:
        fn = universe.fn(stride)
        if fn.side == TARGET or path not in universe.paths_of(fn.id) or not fn.per_step:
            continue
        local = universe.facts[fn.id].local
        base = stride.base
        whole = [base, local[base.id]] if isinstance(base, s.Name) and base.id in local else [base]
        parts = [p for node in whole for p in s.descend(node)]
        holders = {
            p.value.id for p in parts if isinstance(p, s.Attr) and p.attr in tokens and isinstance(p.value, s.Name)
        }
        if any(isinstance(p, s.Attr) and p.attr in tokens for p in parts):
            step = stride.stride
            step = local.get(step.id, step) if isinstance(step, s.Name) else step
            return show(step), any(isinstance(p, s.Name) and p.id in holders for p in s.descend(step))
    return None, False


def _is_method(universe: Universe, name: str) -> bool:
    return name in universe.methods_of(*_DRAFT, *_RESULT)


def _is_value(universe: Universe, name: str) -> bool:
    return not _is_method(universe, name)


def _places(universe: Universe, found: list[Site]) -> list[Place]:
    return [
        Place(function=i.function, line=i.line, what=i.what, file=universe.fns[i.function].file)
        for i in trim(universe, [f for f in found if not universe.fns[f.function].other], _READERS)
    ]


def _tensor_shapes(tensors: Sequence[Tensor], path: str) -> dict[str, _Shape]:
    """Shapes that the shape interpreter derived, by field; a field with several shapes is left out."""
    by_field: dict[str, set[tuple[str | None, str | None]]] = defaultdict(set)
    for tensor in tensors:
        if tensor.path == path and tensor.field and tensor.shape:
            shape = tensor.shape.replace("[?] * ", "list of ") if tensor.shape.startswith("[?] * ") else tensor.shape
            by_field[tensor.field].add((shape, tensor.dtype))
    return {name: _Shape(*next(iter(found))) for name, found in by_field.items() if len(found) == 1}


def _idle_shapes(universe: Universe) -> dict[str, _Shape]:
    """Shapes of a draft state's fields, read off the one that is made for no requests: its zero is the batch size."""
    found: dict[str, _Shape] = {}
    for name in sorted(universe.writes):
        for access in universe.writes[name]:
            if access.how == "keyword" and universe.role(access.cls) in _DRAFT and name not in found:
                shape = _of_no_rows(access.value)
                if shape is not None:
                    found[name] = shape
    return found


def _of_no_rows(value: s.Expr | None) -> _Shape | None:
    if not isinstance(value, s.Call) or not value.args:
        return None
    first = value.args[0].value
    items = first.items if isinstance(first, s.Seq) else [first]
    if not items or not (isinstance(items[0], s.Const) and items[0].value == 0):
        return None
    dtype = next((last_name(a.value) for a in value.args if a.name == "dtype"), None)
    names = ["bs", *(last_name(item) or show(item) for item in items[1:])]
    shape = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    return _Shape(shape, None if dtype == "dtype" else dtype)
