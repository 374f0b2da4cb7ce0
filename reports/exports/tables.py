"""Coupling points as JSON Lines; what was observed as a table, a row for each shape of a tensor at a batch size."""

from __future__ import annotations

import csv
import importlib
import io

import msgspec

from sgltrace.errors import UsageError
from sgltrace.insight.observed import Run
from sgltrace.model import Index
from sgltrace.reports.text import visible

COLUMNS = (
    "run", "path", "tensor", "function", "line", "formula", "verdict", "batch", "shape", "dtype", "how", "count",
    "first_step", "last_step",
)  # fmt: skip
Cell = str | int | None


def rows(runs: list[Run]) -> list[tuple[Cell, ...]]:
    """The table without its head. ``shape`` is written as ``8x4``."""
    return [
        (
            run.name, seen.path, seen.name, seen.function, seen.line, seen.formula, seen.verdict, shape.batch,
            "x".join(map(str, shape.shape)), shape.dtype, shape.how, shape.count, shape.first_step, shape.last_step,
        )
        for run in runs
        for seen in run.tensors
        for shape in seen.shapes
    ]  # fmt: skip


def csv_table(runs: list[Run]) -> bytes:
    """The table as comma-separated values. What a spreadsheet would take for a formula gets a quote before it."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows(runs):
        writer.writerow([_harmless(cell) if isinstance(cell, str) else cell for cell in row])
    return written.getvalue().encode()


def json_lines(index: Index) -> bytes:
    """The coupling points in reading order, a JSON object a line, with the release that they are of."""
    release = {"source": index.source.name, "version": index.source.version}
    points = sorted(index.coupling_points, key=lambda point: (point.rank or 10**6, point.id))
    return b"".join(
        msgspec.json.encode({**release, **msgspec.to_builtins(point)}, order="deterministic") + b"\n"
        for point in points
    )


def parquet_table(runs: list[Run]) -> bytes:
    """The table as Parquet. Raises ``UsageError`` where pyarrow is not installed."""
    try:
        pyarrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet needs pyarrow, which is not installed; `pip install pyarrow` brings it") from None
    texts = {"run", "path", "tensor", "function", "formula", "verdict", "shape", "dtype", "how"}
    types = [(name, pyarrow.string() if name in texts else pyarrow.int64()) for name in COLUMNS]
    found = rows(runs)
    columns = {name: [row[number] for row in found] for number, name in enumerate(COLUMNS)}
    written = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=pyarrow.schema(types)), written)
    return written.getvalue()


def _harmless(text: str) -> str:
    text = visible(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text
