"""Runs set side by side: ratios, where curves cross, what a switch needs; and what a patch changed."""

from __future__ import annotations

import json
import random

import pytest
from trace_edit import TRACES, Editor

from sgltrace.cli import run as sgltrace
from sgltrace.insight.compare_runs import compare_runs
from sgltrace.insight.compare_text import cost_lines, switch_lines
from sgltrace.insight.crossing import Ratio, advised, bands, crossing
from sgltrace.insight.figures import RunFigures
from sgltrace.insight.join import join
from sgltrace.model import Index, Source
from sgltrace.reports.views.compared import compared
from sgltrace.runtime import read_trace
from sgltrace.runtime.aggregate import Aggregator
from sgltrace.runtime.probe import wire
from sgltrace.runtime.step import Step


def recorded(name: str, rates: dict[int, float], kept: float = 1.0, off_from: int | None = None) -> RunFigures:
    """A run of 300 steps at each batch size, with these tokens a second, give or take a few percent."""
    chance, taken, number, now = random.Random(name), Aggregator("tp0"), 0, 0
    speculates = kept > 1
    before = ""
    for batch, rate in rates.items():
        off = off_from is not None and batch >= off_from
        kind = ("off" if off else "on") if speculates else "plain"
        for at in range(300):
            number += 1
            tokens = batch * (1.0 if off or not speculates else kept)
            period = int(1e9 * tokens / rate * chance.uniform(0.97, 1.03))
            if at == 0 and before not in ("", kind):
                period += 5_000_000
            before = kind
            lengths = [1] * batch if off else [1 + (n < round(batch * (kept - 1))) for n in range(batch)]
            taken.add(
                Step(number=number, rank="tp0", mode="DECODE", batch_size=batch, start_ns=now, end_ns=now + 1000,
                     next_start_ns=now + period, speculation=kind, accept_lens=lengths if speculates else None)
            )  # fmt: skip
            now += period
    return RunFigures(
        name=name, release="0.5.12.post1", rank="tp0",
        config={"speculative_algorithm": "EAGLE3" if speculates else None},
        other_ranks=[], aggregates=taken.aggregates(), stays=taken.stays.found, switches=dict(taken.switches.count),
        after_switch=taken.switches.after,
    )  # fmt: skip


def test_the_crossing_is_where_the_rates_cross():
    plain = recorded("plain", {n: 100.0 * n for n in (1, 2, 4, 8, 12)})
    fast = recorded("eagle", {1: 170.0, 2: 300.0, 4: 440.0, 8: 680.0, 12: 800.0}, kept=2.0)
    found = compare_runs([fast, plain])
    assert [side.name for side in found.runs if side.baseline] == ["plain"]
    # log(1.1) at 4 and log(0.85) at 8: 4 + 4 * 0.0953 / (0.0953 + 0.1625)
    assert found.crossing is not None and found.crossing.batch == pytest.approx(5.48, abs=0.1)
    assert found.crossing.low < found.crossing.batch < found.crossing.high
    (switch,) = found.switches
    assert switch.off_from == 6 and any("off pays from 6 on" in line for line in switch_lines(found))
    at = {row.batch: row.runs["eagle"].speed_up for row in found.batch_sizes}
    assert at[1].ratio == pytest.approx(1.7, rel=0.01) and at[1].low < 1.7 < at[1].high < 1.75
    assert "speed_up" in json.loads(__import__("msgspec").json.encode(found))["batch_sizes"][0]["runs"]["eagle"]


def test_curves_that_do_not_cross_say_why():
    plain = recorded("plain", {1: 100.0, 8: 800.0})
    slow = compare_runs([plain, recorded("slow", {1: 60.0, 8: 300.0}, kept=2.0)])
    other = compare_runs([plain, recorded("other", {2: 60.0, 4: 300.0}, kept=2.0)])
    assert slow.crossing is None and "slower at every batch size" in slow.switches[0].why_none
    assert other.crossing is None and "no batch size" in other.switches[0].why_none
    assert any("other has no steps at batch size 1, 8" in note for note in other.notes)


def test_crossings_of_ratios():
    def at(*ratios):
        return [Ratio(batch, r, r / 1.1, r * 1.1) for batch, r in zip((1, 2, 4), ratios, strict=True)]

    assert crossing(at(2.0, 1.0, 0.5)).batch == pytest.approx(2.0)
    assert crossing(at(2.0, 1.5, 1.2)) is None and crossing(at(0.5, 0.6, 1.2)) is None
    edge = crossing(at(1.3, 1.2, 0.95))
    assert edge.high is None and 1 < edge.low < edge.batch  # the upper edge never falls below 1


def test_hysteresis_comes_from_how_long_batches_stay():
    flapping = [[size, 2] for _ in range(200) for size in (5, 6)] + [[2, 50], [9, 500]]
    found = bands(flapping, off_from=6)
    assert found[0].on_at == 5 and found[0].switches > 300
    best = advised(found)
    assert best is not None and best.on_at == 4 and best.switches == 2
    calm = bands([[2, 400], [9, 400]], off_from=6)
    assert calm[0].switches == 1 and advised(calm) == calm[0]


def test_what_a_switch_costs_is_read_from_a_run_that_switches():
    switching = recorded("own", {1: 170.0, 2: 300.0, 4: 400.0, 8: 800.0}, kept=2.0, off_from=4)
    found = compare_runs([recorded("plain", {n: 100.0 * n for n in (1, 2, 4, 8)}), switching])
    (cost,) = found.switch_costs
    assert (cost.to, cost.switches) == ("off", 1) and cost.after[0].extra_ms == pytest.approx(5, abs=1)
    assert "own, to off" in cost_lines(found)[0]
    kinds = {row.batch: row.runs["own"].speculation for row in found.batch_sizes}
    assert kinds == {1: "on", 2: "on", 4: "off", 8: "off"}


def test_recorded_runs_are_compared(capsys, tmp_path):
    runs = [str(TRACES / name) for name in ("eagle3_v1", "base", "eagle3_v2")]
    assert sgltrace(["compare", *runs, "--json", "-o", str(tmp_path / "page.html")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["name"] for run in told["runs"] if run["baseline"]] == ["base"]
    assert [row["batch"] for row in told["batch_sizes"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    cell = told["batch_sizes"][7]["runs"]["eagle3_v1"]
    assert cell.keys() >= {"steps", "period_ms", "tokens_per_s", "accept_length", "replayed"}
    assert cell["period_ms"].keys() >= {"p50", "p99"} and cell["replayed"] == 1 and cell["speed_up"]["ratio"] < 1
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 1 and "eagle3_v2" in page and "<script" not in page
    assert sgltrace(["compare", *runs]) == 0
    assert "tokens a second" in capsys.readouterr().out


def test_what_a_patch_changed(capsys, tmp_path):
    editor = Editor(tmp_path / "patched", "eagle3_v2")
    for record in [r for r in editor.records if r.kind == wire.EXIT and r in editor.of("step", r.step, wire.EXIT)]:
        if 2 <= record.step <= 9:
            editor.change_rows(record, "return.next_token_ids", 8)
    assert sgltrace(["compare", str(TRACES / "eagle3_v2"), str(editor.save()), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["differences"]["shapes"]
    assert (row["value"], row["batch"]) == ("after return.next_token_ids", 8)
    assert row["before"] == ["int32[24] stride [1]"] and row["after"] == ["int32[8] stride [1]"]
    assert sgltrace(["compare", str(TRACES / "eagle3_v2"), str(TRACES / "eagle3_v2"), "--json"]) == 0
    same = json.loads(capsys.readouterr().out)["differences"]
    assert not any(same[key] for key in ("shapes", "values_of_one_run", "allocations"))


def test_what_cannot_be_compared_is_refused(capsys, tmp_path):
    assert sgltrace(["compare", str(TRACES / "base")]) == 2
    assert sgltrace(["compare", str(TRACES / "base"), str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_the_report_has_the_same_comparison_of_its_runs():
    source = Source(name="sglang", version="0.5.12.post1", root="", kind="folder", requested="")
    index = Index(source=source, entry_points={"v1": None, "v2": None}, functions=[], calls=[], unresolved=[])
    runs = [join(read_trace(TRACES / name), index, name) for name in ("eagle3_v1", "base")]
    page = compared(runs)
    assert page is not None and page.plot is not None
    assert [(curve.name, len(curve.points)) for curve in page.plot.curves] == [("eagle3_v1", 8), ("base", 8)]
    assert [row[1] for row in page.rows[:2]] == ["eagle3_v1", "base"]
    for curve in page.plot.curves:
        assert all(top <= y <= bottom <= page.plot.bottom for _, y, top, bottom, _ in curve.points)
    assert compared(runs[:1]) is None and compared([]) is None
