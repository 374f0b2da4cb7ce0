"""Tensors of a step by stage, and the contract of an off step."""

from __future__ import annotations

from dataclasses import dataclass

from sgltrace.insight.observed import Observed
from sgltrace.insight.off_step import design
from sgltrace.model import PATHS, ContractField, Tensor
from sgltrace.reports.context import Context
from sgltrace.reports.views.common import PlaceLink, place_link
from sgltrace.reports.views.seen import ORDER, shape_text


@dataclass(frozen=True)
class Seen:
    """What the runs say of a formula: the verdict, and each distinct shape with its batch size."""

    verdict: str
    by: list[str]
    """The runs that say so."""
    why: list[str]
    shapes: list[tuple[int | None, str]]


@dataclass(frozen=True)
class TensorRow:
    """A tensor at a stage, on the paths on which it is the same."""

    paths: list[str]
    later: list[str]
    """Later stages in which it is the same."""
    name: str
    holder: str
    """``Class.field``, empty for a value that is no field."""
    shape: str | None
    dtype: str | None
    stride: str | None
    why_unknown: str | None
    producers: list[PlaceLink]
    consumers: list[PlaceLink]
    seen: Seen

    @property
    def crosses(self) -> bool:
        """Whether a part of the engine uses it that is not the one that makes it."""
        makers = {place.function.component for place in self.producers}
        return any(place.function.component not in makers for place in self.consumers)


@dataclass(frozen=True)
class Stage:
    """The tensors of one stage."""

    name: str
    rows: list[TensorRow]


@dataclass(frozen=True)
class ContractRow:
    """A field that an off step must produce or leave."""

    path: str
    design: str
    """Empty where the row is of all designs."""
    field: str
    shape: str | None
    dtype: str | None
    stride: str | None
    requirement: str
    off_step_value: str
    writers: list[PlaceLink]
    readers: list[PlaceLink]
    why: str
    seen: Seen


@dataclass(frozen=True)
class ContractGroup:
    """The fields of one object on one path."""

    path: str
    object: str
    rows: list[ContractRow]


STAGES = (
    "prepare", "step entry", "draft", "draft step", "draft out", "verify input", "verify", "verify out",
    "draft-extend", "draft-extend out", "relay", "result", "graph buffers",
)  # fmt: skip
"""The stages that the index tells apart, in the order of a step; others follow as the index has them."""
SCALARS = ("", "()")
REQUIREMENTS = ("required", "must stay unset", "optional", "untouched")


def stages(context: Context) -> list[Stage]:
    """The stages in the order of the step. A tensor stands in its first stage, once for all paths; no scalars."""
    order: dict[str, int] = {path: number for number, path in enumerate(PATHS)}
    found: dict[object, list[Tensor]] = {}
    for tensor in sorted(context.index.tensors, key=lambda t: (stage_rank(t.stage), order.get(t.path, len(order)))):
        if tensor.shape not in SCALARS:
            same = (tensor.name, tensor.cls, tensor.field, tensor.shape, tensor.dtype, tensor.stride)
            found.setdefault((*same, tensor.why_unknown), []).append(tensor)
    by_stage: dict[str, list[TensorRow]] = {}
    for tensors in found.values():
        by_stage.setdefault(tensors[0].stage, []).append(_tensor(context, tensors))
    return [Stage(name, rows) for name, rows in sorted(by_stage.items(), key=lambda item: stage_rank(item[0]))]


def stage_rank(name: str) -> int:
    """Where a stage stands in a step; the same number for all that are not known here."""
    return STAGES.index(name) if name in STAGES else len(STAGES)


def contract(context: Context) -> list[ContractGroup]:
    """The contract by path and object, in each what is required first."""
    rank = {name: number for number, name in enumerate(REQUIREMENTS)}
    found: dict[tuple[str, str], list[ContractRow]] = {}
    for row in sorted(context.index.contract, key=lambda row: (rank.get(row.requirement, len(rank)), row.field)):
        found.setdefault((row.path, row.field.partition(".")[0]), []).append(_contract(context, row))
    order: dict[str, int] = {path: number for number, path in enumerate(PATHS)}

    def first(item: tuple[tuple[str, str], list[ContractRow]]) -> tuple[int, int, str]:
        (path, name), rows = item
        return order.get(path, len(order)), -sum(row.requirement == REQUIREMENTS[0] for row in rows), name

    return [ContractGroup(path, name, rows) for (path, name), rows in sorted(found.items(), key=first)]


def _tensor(context: Context, tensors: list[Tensor]) -> TensorRow:
    tensor = tensors[0]
    holder = f"{tensor.cls.rpartition(':')[2]}.{tensor.field}" if tensor.cls and tensor.field else ""
    producers = {(t.producer.function, t.producer.line): t.producer for t in tensors}
    consumers = {(place.function, place.line): place for t in tensors for place in t.consumers}
    return TensorRow(
        paths=list(dict.fromkeys(t.path for t in tensors)),
        later=[stage for stage in dict.fromkeys(t.stage for t in tensors) if stage != tensor.stage],
        name=tensor.name,
        holder=holder,
        shape=tensor.shape,
        dtype=tensor.dtype,
        stride=tensor.stride,
        why_unknown=tensor.why_unknown,
        producers=[place_link(context, place) for place in producers.values()],
        consumers=[place_link(context, place) for _, place in sorted(consumers.items())],
        seen=_seen_tensor(context, tensors),
    )


def _contract(context: Context, row: ContractField) -> ContractRow:
    said = [
        (evidence.verdict, evidence.observed, run.name, evidence.why)
        for run in context.runs
        for evidence in run.contract
        if evidence.path == row.path and evidence.field == row.field and evidence.design == design(row)
    ]
    return ContractRow(
        path=row.path,
        design=design(row),
        field=row.field,
        shape=row.shape,
        dtype=row.dtype,
        stride=row.stride,
        requirement=row.requirement,
        off_step_value=row.off_step_value,
        writers=[place_link(context, place) for place in row.writers],
        readers=[place_link(context, place) for place in row.readers],
        why=row.why,
        seen=_seen(context, said),
    )


def _seen_tensor(context: Context, tensors: list[Tensor]) -> Seen:
    made = {(tensor.name, tensor.producer.function, path) for tensor in tensors for path in ("", tensor.path)}
    said = [
        (observed.verdict, [observed], run.name, observed.why)
        for run in context.runs
        for observed in run.tensors
        if (observed.name, observed.function, observed.path) in made
    ]
    return _seen(context, said)


def _seen(context: Context, said: list[tuple[str, list[Observed], str, str]]) -> Seen:
    verdicts = {verdict for verdict, _, _, _ in said}
    verdict = next((v for v in ORDER if v in verdicts), "")
    if not verdict:
        verdict = "not exercised" if context.runs else "no run"
    # What judged is shown: other runs saw other kinds of steps.
    judged = [(found, run, why) for told, found, run, why in said if told == verdict]
    shapes = {(s.batch, shape_text(s.shape)) for found, _, _ in judged for o in found for s in o.shapes}
    by = sorted({run for _, run, _ in judged}) if verdict in ORDER else []
    return Seen(
        verdict,
        by,
        sorted({why for _, _, why in judged if why}),
        sorted(shapes, key=lambda pair: (pair[0] is None, pair[0] or 0, pair[1])),
    )
