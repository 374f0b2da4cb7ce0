"""Runs as partitioned Parquet, for DuckDB, Spark, Ray Data and whatever else reads it: ``docs/parquet.md``.

Memory does not grow with a run: steps are written in groups as they are read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sgltrace import runtime
from sgltrace.errors import InputError, UsageError
from sgltrace.runtime import Aggregate, Step

ROWS = 65_536
"""Rows of a group; of a file at most ``GROUPS`` times that."""
GROUPS = 16

Column = tuple[str, str, Callable[[Any], Any]]

STEPS: tuple[Column, ...] = (
    ("step", "int64", lambda s: s.number),
    ("mode", "string", lambda s: s.mode),
    ("speculation", "string", lambda s: s.speculation),
    ("how", "string", lambda s: s.how),
    ("batch", "int32", lambda s: s.batch_size),
    ("padded", "int32", lambda s: s.padded),
    ("start_ns", "int64", lambda s: s.start_ns),
    ("period_ns", "int64", lambda s: s.period_ns),
    ("host_ns", "int64", lambda s: s.host_ns),
    ("wait_ns", "int64", lambda s: s.wait_ns),
    ("compiled", "int64", lambda s: s.compiled),
    ("accept_lens", "list", lambda s: s.accept_lens),
    ("allocated", "list", lambda s: s.allocated),
    ("committed", "list", lambda s: s.committed),
    ("slots", "int64", lambda s: s.slots),
    ("width", "int32", lambda s: s.width),
    ("window", "string", lambda s: s.window),
    ("complete", "bool", lambda s: s.complete),
)
FIGURES: tuple[Column, ...] = (
    ("mode", "string", lambda a: a.mode),
    ("speculation", "string", lambda a: a.speculation),
    ("batch", "int32", lambda a: a.batch),
    ("steps", "int64", lambda a: a.steps),
    ("timed", "int64", lambda a: a.timed),
    ("one_off", "int64", lambda a: a.one_off),
    ("windowed", "int64", lambda a: a.windowed),
    ("period_p50_ms", "double", lambda a: a.period_ms["p50"]),
    ("period_p99_ms", "double", lambda a: a.period_ms["p99"]),
    ("period_mean_ms", "double", lambda a: a.period_ms["mean"]),
    ("host_p50_ms", "double", lambda a: a.host_ms["p50"]),
    ("host_share", "double", lambda a: a.host_share),
    ("waiting", "double", lambda a: a.waiting),
    ("tokens_per_s", "double", lambda a: a.tokens_per_s),
    ("tokens_per_s_error", "double", lambda a: a.tokens_per_s_error),
    ("accept_length", "double", lambda a: a.accept_length),
    ("tokens_per_verify", "double", lambda a: a.tokens_per_verify),
    ("slots_per_token", "double", lambda a: a.slots_per_token),
    ("replayed", "double", lambda a: a.replayed),
    ("padded", "double", lambda a: a.padded),
)
TENSORS: tuple[Column, ...] = (
    ("function", "string", lambda o: o.function),
    ("stage", "string", lambda o: o.stage),
    ("side", "string", lambda o: o.side),
    ("value", "string", lambda o: o.path),
    ("class", "string", lambda o: o.cls),
    ("mode", "string", lambda o: o.mode),
    ("speculation", "string", lambda o: o.speculation),
    ("how", "string", lambda o: o.phase),
    ("batch", "int32", lambda o: o.batch_size),
    ("padded", "int32", lambda o: o.padded),
    ("shape", "list", lambda o: list(o.shape)),
    ("stride", "list", lambda o: None if o.stride is None else list(o.stride)),
    ("dtype", "string", lambda o: o.dtype),
    ("device", "string", lambda o: o.device),
    ("count", "int64", lambda o: o.count),
    ("first_step", "int64", lambda o: o.first_step),
    ("last_step", "int64", lambda o: o.last_step),
)
RUNS: tuple[Column, ...] = (
    ("release", "string", lambda r: r["release"]),
    ("option", "string", lambda r: r["option"]),
    ("value", "string", lambda r: r["value"]),
)
TABLES = {"steps": STEPS, "figures": FIGURES, "tensors": TENSORS, "runs": RUNS}


def write_dataset(folders: Sequence[Path], names: Sequence[str], out: Path) -> dict[str, int]:
    """Write the tables of runs below ``out`` and return how many rows each has.

    Raises ``UsageError`` where pyarrow is not installed or ``out`` is in use, ``InputError`` for what is no trace.
    """
    _pyarrow()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists and is not an empty folder; give -o a folder of its own")
    counts = dict.fromkeys(TABLES, 0)
    for folder, name in zip(folders, names, strict=True):
        trace = runtime.read_trace(folder)
        part = f"run={quote(name, safe='-_.')}"
        observer = runtime.Observer(trace)
        for process in trace.recording():
            rank = f"rank={quote(process.rank, safe='-_.')}"
            taken = runtime.aggregator(process)
            found = _taken(runtime.steps(trace, process), observer, taken)
            counts["steps"] += _write(out / "steps" / part / rank, STEPS, found)
            counts["figures"] += _write(out / "figures" / part / rank, FIGURES, _rows(taken))
        counts["tensors"] += _write(out / "tensors" / part, TENSORS, observer.observations())
        counts["runs"] += _write(out / "runs" / part, RUNS, _options(trace))
    return counts


def _rows(taken: runtime.Aggregator) -> Iterator[Aggregate]:
    yield from taken.aggregates()


def _taken(found: Iterable[Step], observer: runtime.Observer, taken: runtime.Aggregator) -> Iterator[Step]:
    for step in found:
        observer.add(step)
        step.calls = []
        taken.add(step)
        if step.ran and step.number:
            yield step


def _options(trace: runtime.Trace) -> Iterator[dict[str, str | None]]:
    release = trace.run.version if trace.run is not None else trace.plan.version
    for option, value in sorted(trace.config().items()):
        yield {"release": release, "option": option, "value": None if value is None else str(value)}


def _write(folder: Path, columns: Sequence[Column], rows: Iterable[Any]) -> int:
    """Write rows into files of a folder. Raises ``InputError`` where that cannot be done."""
    pyarrow, parquet = _pyarrow()
    schema = pyarrow.schema([(name, _type(pyarrow, kind)) for name, kind, _ in columns])
    source = iter(rows)
    count = number = 0
    group = list(islice(source, ROWS))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while group or not number:
            with parquet.ParquetWriter(folder / f"part-{number:05}.parquet", schema) as writer:
                for _ in range(GROUPS):
                    data = {name: [_fitting(read(row), kind) for row in group] for name, kind, read in columns}
                    writer.write_table(pyarrow.table(data, schema=schema))
                    count += len(group)
                    group = list(islice(source, ROWS))
                    if not group:
                        break
            number += 1
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}; name another folder with -o") from error
    return count


_BITS = {"int32": 31, "int64": 63, "list": 63}


def _fitting(value: Any, kind: str) -> Any:
    """The value; None for a number that only a damaged trace holds."""
    bits = _BITS.get(kind)
    if bits is None or value is None:
        return value
    numbers = value if isinstance(value, list) else [value]
    return value if all(-(1 << bits) <= number < 1 << bits for number in numbers) else None


def _type(pyarrow: Any, kind: str) -> Any:
    if kind == "list":
        return pyarrow.list_(pyarrow.int64())
    return getattr(pyarrow, {"bool": "bool_", "double": "float64"}.get(kind, kind))()


def _pyarrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet needs pyarrow, which is not installed; `pip install pyarrow` brings it") from None
