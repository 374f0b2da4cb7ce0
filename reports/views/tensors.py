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
    """A tensor at a stage."""

    name: str
    holder: str
    """``Class.field``, empty for a value that is no field."""
    shape: str | None
    dtype: str | None
    stride: str | None
    why_unknown: str | None
    producer: PlaceLink
    consumers: list[PlaceLink]
    seen: Seen

    @property
    def crosses(self) -> bool:
        """Whether a part of the engine uses it that is not the one that makes it."""
        return any(place.function.component != self.producer.function.component for place in self.consumers)


@dataclass(frozen=True)
class Stage:
    """The tensors of one stage."""

    path: str
    name: str
    rows: list[TensorRow]


@dataclass(frozen=True)
class ContractRow:
    """A field that an off step must produce or leave."""

    path: str
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


STAGES = (
    "prepare", "step entry", "draft", "draft step", "draft out", "verify input", "verify", "verify out",
    "draft-extend", "draft-extend out", "relay", "result", "graph buffers",
)  # fmt: skip
"""The stages that the index tells apart, in the order of a step; others follow as the index has them."""
REQUIREMENTS = ("required", "must stay unset", "optional", "untouched")


def stages(context: Context) -> list[Stage]:
    """The stages of each path in the order of the step."""
    found: dict[tuple[str, str], list[TensorRow]] = {}
    for tensor in context.index.tensors:
        found.setdefault((tensor.path, tensor.stage), []).append(_tensor(context, tensor))
    order: dict[str, int] = {path: number for number, path in enumerate(PATHS)}

    def key(item: tuple[tuple[str, str], list[TensorRow]]) -> tuple[int, int]:
        path, name = item[0]
        return order.get(path, len(order)), stage_rank(name)

    return [Stage(path, name, rows) for (path, name), rows in sorted(found.items(), key=key)]


def stage_rank(name: str) -> int:
    """Where a stage stands in a step; the same number for all that are not known here."""
    return STAGES.index(name) if name in STAGES else len(STAGES)


def contract(context: Context) -> dict[str, list[ContractRow]]:
    """The contract's rows by path, what is required first."""
    rank = {name: number for number, name in enumerate(REQUIREMENTS)}
    found: dict[str, list[ContractRow]] = {path: [] for path in context.paths}
    for row in sorted(context.index.contract, key=lambda row: rank.get(row.requirement, len(rank))):
        found.setdefault(row.path, []).append(_contract(context, row))
    return {path: rows for path, rows in found.items() if rows}


def _tensor(context: Context, tensor: Tensor) -> TensorRow:
    holder = f"{tensor.cls.rpartition(':')[2]}.{tensor.field}" if tensor.cls and tensor.field else ""
    return TensorRow(
        name=tensor.name,
        holder=holder,
        shape=tensor.shape,
        dtype=tensor.dtype,
        stride=tensor.stride,
        why_unknown=tensor.why_unknown,
        producer=place_link(context, tensor.producer),
        consumers=[place_link(context, place) for place in tensor.consumers],
        seen=_seen_tensor(context, tensor),
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


def _seen_tensor(context: Context, tensor: Tensor) -> Seen:
    said = [
        (observed.verdict, [observed], run.name, observed.why)
        for run in context.runs
        for observed in run.tensors
        if observed.name == tensor.name
        and observed.function == tensor.producer.function
        and observed.path in ("", tensor.path)
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
