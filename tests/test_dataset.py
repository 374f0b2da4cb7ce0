"""Runs as Parquet: what the queries for DuckDB give is what `show` and the report give."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from trace_edit import TRACES

from sgltrace.cli import run as sgltrace
from sgltrace.insight.dataset import TABLES
from sgltrace.runtime import aggregates, observations, read_trace, steps

QUERIES = Path(__file__).parent.parent / "docs" / "queries"
NAMES = ("base", "eagle3_v1", "eagle3_v2_tp2")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    out = tmp_path_factory.mktemp("parquet") / "dataset"
    arguments = [part for name in NAMES for part in ("--run", str(TRACES / name))]
    assert sgltrace(["export", "parquet", *arguments, "-o", str(out)]) == 0
    return out


def ask(dataset: Path, query: str) -> list[dict]:
    text = (QUERIES / f"{query}.sql").read_text()
    for table in TABLES:
        text = text.replace(f"'{table}/", f"'{dataset}/{table}/")
    found = duckdb.sql(text)
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def test_every_step_of_every_rank_is_there(dataset):
    found = duckdb.sql(f"SELECT run, rank, count(*) FROM '{dataset}/steps/*/*/*.parquet' GROUP BY ALL").fetchall()
    wanted = {}
    for name in NAMES:
        trace = read_trace(TRACES / name)
        for process in trace.recording():
            wanted[name, process.rank] = sum(step.ran and step.number > 0 for step in steps(trace, process))
    assert {(run, rank): count for run, rank, count in found} == wanted


def test_figures_are_those_of_show(dataset):
    found = {(r["run"], r["rank"], r["mode"], r["batch"]): r for r in ask(dataset, "figures_by_batch")}
    compared = 0
    for name in NAMES:
        for row in aggregates(read_trace(TRACES / name)):
            if "DECODE" not in row.mode or row.timed < 4:
                continue
            mine = found[name, row.rank, row.mode, row.batch]
            if mine["timed"] != row.timed:  # what is a one-off is told from all periods here, from the first ones there
                continue
            assert mine["period_p50_ms"] == pytest.approx(row.period_ms["p50"], rel=0.006)
            assert mine["tokens_per_s"] == pytest.approx(row.tokens_per_s)
            assert mine["host_share"] == pytest.approx(row.host_share)
            compared += 1
    assert compared >= 8


def test_accept_lengths_and_slots(dataset):
    lengths = {(r["run"], r["rank"], r["batch"], r["length"]): r["times"] for r in ask(dataset, "accept_lengths")}
    slots = {(r["run"], r["rank"], r["batch"]): r["slots_per_token"] for r in ask(dataset, "slots_per_token")}
    for name in NAMES:
        for row in aggregates(read_trace(TRACES / name)):
            for length, times in row.accept_histogram.items():
                assert lengths[name, row.rank, row.batch, length] == times
            if "DECODE" in row.mode and row.slots_per_token is not None:
                assert slots[name, row.rank, row.batch] == pytest.approx(row.slots_per_token)


def test_shapes_ranks_and_speed_up(dataset):
    shapes = ask(dataset, "shapes_by_batch")
    wanted = {o.path for o in observations(read_trace(TRACES / "base")) if "DECODE" in o.mode}
    assert {row["value"] for row in shapes if row["run"] == "base"} == wanted
    assert ask(dataset, "ranks_that_differ") == []
    rows = ask(dataset, "speed_up")
    assert rows and {row["baseline"] for row in rows} == {"base"} and all(row["speed_up"] < 1 for row in rows)


def test_every_column_is_documented():
    text = (QUERIES.parent / "parquet.md").read_text()
    assert [name for columns in TABLES.values() for name, _, _ in columns if name not in text] == []
    assert [path.name for path in QUERIES.glob("*.sql") if path.name not in text] == []


def test_a_folder_in_use_and_no_trace_are_refused(dataset, tmp_path, capsys):
    assert sgltrace(["export", "parquet", "--run", str(TRACES / "base"), "-o", str(dataset)]) == 2
    assert sgltrace(["export", "parquet", "--run", str(TRACES / "base")]) == 2
    assert sgltrace(["export", "parquet", "--run", str(tmp_path), "-o", str(tmp_path / "new")]) == 3
    assert capsys.readouterr().err.count("sgltrace: ") == 3
