"""v1 beside v2: coupling points, tensors, contract and fields that differ between the two paths."""

from __future__ import annotations

from dataclasses import dataclass

from sgltrace.model import CouplingPoint
from sgltrace.reports.context import Context
from sgltrace.reports.views.common import FunctionLink, PointRow, function_link, ordered, point_row
from sgltrace.reports.views.tensors import stage_rank


@dataclass(frozen=True)
class TensorPair:
    """A tensor of the same name at the same stage on both paths; None where a path has it not."""

    stage: str
    name: str
    v1: str | None
    v2: str | None
    on: list[str]


@dataclass(frozen=True)
class FieldPair:
    """A field that only one path writes, or that only one reads."""

    name: str
    writers: dict[str, list[FunctionLink]]
    readers: dict[str, int]


@dataclass(frozen=True)
class Compare:
    """The differences between the paths."""

    differing: list[PointRow]
    same: int
    only: dict[str, list[PointRow]]
    tensors: list[TensorPair]
    fields: list[FieldPair]
    functions: dict[str, int]
    """Functions on each path alone, and on ``both``."""


def compare(context: Context) -> Compare:
    """Sets the two paths side by side; a release that has one of them gets an empty comparison."""
    points = ordered(context.index.coupling_points)

    def rows(chosen: list[CouplingPoint]) -> list[PointRow]:
        return [point_row(context, point) for point in chosen]

    both = [p for p in points if p.severity.get("v1") and p.severity.get("v2")]
    differing = [p for p in both if _by_design(p, "v1") != _by_design(p, "v2")]
    functions = {"v1": 0, "v2": 0, "both": 0}
    for function in context.index.functions:
        if function.paths:
            functions["both" if len(function.paths) > 1 else function.paths[0]] += 1
    return Compare(
        differing=rows(differing),
        same=len(both) - len(differing),
        only={
            "v1": rows([p for p in points if p.severity.get("v1") and not p.severity.get("v2")]),
            "v2": rows([p for p in points if p.severity.get("v2") and not p.severity.get("v1")]),
        },
        tensors=_tensors(context),
        fields=_fields(context),
        functions=functions,
    )


def _by_design(point: CouplingPoint, path: str) -> tuple[str | None, dict[str, str]]:
    return point.severity.get(path), {v.design: v.severity for v in point.verdicts if v.path == path}


def _tensors(context: Context) -> list[TensorPair]:
    shapes: dict[tuple[str, str], dict[str, str | None]] = {}
    for tensor in context.index.tensors:
        shapes.setdefault((tensor.stage, tensor.name), {})[tensor.path] = tensor.shape
    pairs = [
        TensorPair(stage, name, found.get("v1"), found.get("v2"), sorted(found))
        for (stage, name), found in shapes.items()
        if set(found) != {"v1", "v2"} or found["v1"] != found["v2"]
    ]
    return sorted(pairs, key=lambda pair: (-len(pair.on), stage_rank(pair.stage), pair.stage, pair.name))


def _fields(context: Context) -> list[FieldPair]:
    pairs = []
    for field in context.index.fields:
        writers = {path: sorted({a.function for a in field.writes if path in a.paths}) for path in ("v1", "v2")}
        readers = {path: len({a.function for a in field.reads if path in a.paths}) for path in ("v1", "v2")}
        one_writer = bool(writers["v1"]) != bool(writers["v2"])
        one_reader = bool(readers["v1"]) != bool(readers["v2"])
        if (one_writer and any(readers.values())) or (one_reader and any(writers.values())):
            name = f"{field.cls.rpartition(':')[2]}.{field.field}"
            links = {path: [function_link(context, f) for f in found[:4]] for path, found in writers.items()}
            pairs.append(FieldPair(name, links, readers))
    return pairs
