"""A run in figures: periods, one-off steps, acceptance and slots by batch size; and which steps are shown."""

from __future__ import annotations

import json
import statistics

import pytest
from runtime_support import trace_server
from trace_edit import TRACES, Editor, Raw

from sgltrace.cli import run as sgltrace
from sgltrace.runtime import Options, aggregates, read_trace, steps
from sgltrace.runtime.aggregate import Aggregator
from sgltrace.runtime.distribution import Histogram, Rate
from sgltrace.runtime.probe import wire
from sgltrace.runtime.step import Step
from sgltrace.runtime.tables import excluded

RECORDED = sorted(path.name for path in TRACES.iterdir() if (path / "plan.json").is_file())


def ran(name: str) -> list[Step]:
    trace = read_trace(TRACES / name)
    return [s for process in trace.recording() for s in steps(trace, process) if s.ran and s.number]


def series(periods_ms: list[float], batch: int = 4, lengths: list[int] | None = None, **more) -> Aggregator:
    """An aggregator that took steps of these periods in."""
    taken, now = Aggregator("tp0"), 0
    for number, period in enumerate(periods_ms, 1):
        end = now + int(period * 1e6)
        taken.add(
            Step(number=number, rank="tp0", mode="DECODE", batch_size=batch, start_ns=now, end_ns=now + 1000,
                 next_start_ns=end, speculation="on" if lengths else "plain", accept_lens=lengths, **more)
        )  # fmt: skip
        now = end
    return taken


@pytest.mark.parametrize("name", RECORDED)
def test_every_decode_step_says_how_it_ran_and_no_graph_is_smaller_than_its_batch(name):
    decoding = [step for step in ran(name) if "DECODE" in step.mode]
    assert {step.how for step in decoding} <= {"replay", "eager"}
    assert all(step.padded >= step.batch_size for step in decoding if step.graph)
    assert all(step.padded is None for step in decoding if step.graph is False)


@pytest.mark.parametrize("name", RECORDED)
def test_figures_cover_every_step_and_agree_with_the_steps(name):
    found, rows = ran(name), aggregates(read_trace(TRACES / name))
    assert sum(row.steps for row in rows) >= len(found)
    for row in rows:
        mine = [s for s in found if (s.rank, s.mode, s.batch_size) == (row.rank, row.mode, row.batch)]
        if row.counted:  # some of its steps are not in the trace
            assert row.steps > len(mine) and (row.accept_length or 1) >= 1
            continue
        assert row.timed + row.one_off + row.windowed + row.last_of_mode == row.steps == len(mine)
        lengths = [n for s in mine for n in s.accept_lens or ()]
        assert (row.accept_length or 0) == pytest.approx(statistics.mean(lengths) if lengths else 0)
        assert row.host_share is None or 0 < row.host_share <= 1


def test_periods_run_from_start_to_start_and_hold_the_host_part():
    for step in ran("eagle3_v2"):
        if step.period_ns is not None and "DECODE" in step.mode:
            assert step.period_ns >= step.host_ns
    rows = {row.batch: row for row in aggregates(read_trace(TRACES / "base")) if row.mode == "DECODE"}
    # A reader of host times alone would think that a plain step takes 0.6 ms.
    assert 1.0 < rows[8].period_ms["p50"] < 1.3 and 0.55 < rows[8].host_ms["p50"] < 0.8


def test_compilation_is_told_apart_and_not_among_the_times():
    rows = [row for row in aggregates(read_trace(TRACES / "base")) if row.mode == "DECODE" and row.batch == 8]
    assert rows[0].one_off == 1 and rows[0].one_off_ms > 8000 and rows[0].period_ms["p99"] < 3
    assert "compiled" in excluded(rows)
    # The step before a batch of a new size compiles for that one; it is no step of its own size's usual time.
    (row,) = [row for row in aggregates(read_trace(TRACES / "eagle3_v1")) if row.batch == 8 and row.mode == "DECODE"]
    assert row.one_off == 2 and row.period_ms["p99"] < 10


def test_an_early_slow_step_is_apart_and_a_late_one_is_not():
    early = series([90, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]).aggregates()[0]
    late = series([2, 2, 2, 2, 2, 2, 2, 2, 90, 2, 2, 2]).aggregates()[0]
    assert (early.one_off, late.one_off) == (1, 0)
    assert early.period_ms["p99"] < 3 < 80 < late.period_ms["p99"]


def test_a_window_is_counted_and_left_out():
    taken = series([2] * 10)
    row = taken.aggregates()[0]
    slow = series([2] * 10, window="calls").aggregates()[0]
    assert (row.windowed, row.timed) == (0, 9) and (slow.windowed, slow.timed) == (9 + 1, 0)
    assert slow.period_ms["p50"] is None and "window" in excluded([slow])


def test_rates_and_slots():
    row = series([2] * 41, batch=4, lengths=[1, 2, 3, 2], slots=16).aggregates()[0]
    assert row.tokens_per_s == pytest.approx(8 / 0.002) and row.tokens_per_verify == 8 and row.accept_length == 2
    assert row.accept_histogram == {1: 41, 2: 82, 3: 41} and row.slots_per_token == 2
    assert row.tokens_per_s_error == pytest.approx(0, abs=1e-9)


def test_quantiles_are_within_half_a_percent_and_add_up():
    values = [1_000_000 + 37_001 * n for n in range(1000)]
    whole, parts = Histogram(values), Histogram(values[:300])
    parts.merge(Histogram(values[300:]))
    for share in (0.01, 0.5, 0.99, 1.0):
        wanted = values[max(0, int(share * 1000) - 1)]
        assert whole.quantile(share) == pytest.approx(wanted, rel=0.005) == parts.quantile(share)
    assert whole.total == sum(values) == parts.total and Histogram().quantile(0.5) is None


def test_the_error_of_a_rate_is_that_of_blocks():
    steady, waves = Rate(), Rate()
    for n in range(4096):
        steady.add(8, 2_000_000 + n % 2)
        waves.add(8, 2_000_000 + 400_000 * (n // 512 % 2))  # the same for a long while, then another
    assert steady.relative_error < 1e-6 < 0.01 < waves.relative_error
    assert waves.per_second == pytest.approx(8 / 0.0022, rel=0.001)


def shown(capsys, *arguments: str) -> str:
    assert sgltrace(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_steps_are_selected(capsys):
    tp2, base = str(TRACES / "eagle3_v2_tp2"), str(TRACES / "base")
    lines = shown(capsys, tp2, "--rank", "1", "--batch", "2-3", "--last", "3").split("\n\n")[-1].splitlines()
    assert [line.split()[:2] for line in lines] == [["tp1", "28"], ["tp1", "29"], ["tp1", "30"]]
    rows = [json.loads(row) for row in shown(capsys, base, "--json", "--steps", "5:8").splitlines()]
    assert [row["step"] for row in rows] == [None, 5, 6, 7] and rows[1]["period_ns"] > rows[1]["host_ns"]
    rows = [json.loads(row) for row in shown(capsys, base, "--json", "--mode", "extend").splitlines()]
    assert {row["mode"] for row in rows[1:]} == {"EXTEND"} == {row["mode"] for row in rows[0]["aggregates"]}
    told = json.loads(shown(capsys, base, "--summary", "--json", "--batch", "8", "--mode", "decode"))
    assert [row["batch"] for row in told["aggregates"]] == [8] and told["release"] == "0.5.12.post1"
    assert (
        "period ms" in shown(capsys, base, "--summary")
        and "tp0" not in shown(capsys, base, "--summary").split("\n\n")[-1]
    )


@pytest.mark.parametrize("options", [["--rank", "9"], ["--steps", "x"], ["--batch", "a-b"], ["-f", "--last", "3"]])
def test_a_selection_that_cannot_be_is_refused(options, capsys):
    assert sgltrace(["show", str(TRACES / "base"), *options]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_an_edited_trace_says_cannot_steer_the_terminal(tmp_path, capsys):
    editor = Editor(tmp_path / "edited", "base")
    for record in editor.records:
        if record.kind == wire.DEFINE_TEXT and record.payload == b"DECODE":
            record.payload = b"DE\x1b[2J"
    assert "\x1b" not in shown(capsys, str(editor.save()))


def test_figures_stay_true_where_old_segments_went(tmp_path, monkeypatch):
    main = "from sglang.srt.managers.scheduler import Scheduler\nScheduler().loop(6000, lambda n: None)\n"
    options = Options(every=1, max_bytes=1 << 20)
    session = trace_server(tmp_path, monkeypatch, files={"server.py": main}, options=options)
    assert session.exit_code == 0
    trace = read_trace(tmp_path / "trace")
    (process,) = trace.recording()
    assert process.head is not None and process.head.dropped_segments > 0
    rows = aggregates(trace)
    assert sum(row.steps for row in rows) == 6000 > len([s for s in steps(trace, process) if s.ran])
    assert all(row.counted and row.period_ms["p50"] for row in rows) and "what was counted" in excluded(rows)
    (tmp_path / "trace" / f"{process.name}.hist").write_bytes(b"SGLTHIST" + b"\xff" * 500)
    rows = aggregates(read_trace(tmp_path / "trace"))
    assert sum(row.steps for row in rows) < 6000 and not any(row.counted for row in rows)


def test_time_on_the_device_stands_beside_the_hosts(tmp_path, capsys):
    editor = Editor(tmp_path / "edited", "base")
    (step,) = editor.of("step", 9, wire.ENTER)
    sites = {"step": step.site, "replay": editor.of("replay", 9, wire.EXIT)[0].site}
    at = editor.records.index(editor.of("step", 10, wire.ENTER)[0])
    spans = [(sites["step"], 0, 900_000, -1), (sites["replay"], 150_000, 700_000, 8)]
    editor.records[at:at] = [
        Raw(step.time_ns + offset, 9, 0, site, wire.GPU, wire.EAGER, 0, [offset + 2_000_000, elapsed, padded])
        for site, offset, elapsed, padded in spans
    ]
    folder = str(editor.save())
    assert "GPU 0.90 ms" in shown(capsys, folder, "--steps", "9:10")
    (row,) = [json.loads(line) for line in shown(capsys, folder, "--json", "--steps", "9:10").splitlines()][1:]
    assert [(span["elapsed_ns"], span["padded"]) for span in row["gpu"]] == [(900_000, None), (700_000, 8)]
    assert sgltrace(["export", "perfetto", "--run", folder, "-o", str(tmp_path / "t.json")]) == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    on_device = [event for event in events if event.get("cat") == "gpu"]
    assert [event["name"] for event in on_device] == ["DECODE 9", "replay of 8"]
    host = next(event for event in events if event.get("cat") == "step" and event["name"] == "DECODE 9")
    assert on_device[0]["ts"] == pytest.approx(host["ts"], abs=1) and on_device[0]["dur"] == 900


@pytest.mark.parametrize("name", RECORDED)
def test_steps_read_without_their_calls_say_the_same(name):
    trace = read_trace(TRACES / name)
    for process in trace.recording():
        whole, light = (
            {s.number: s for s in steps(trace, process, detail) if s.number and s.ran} for detail in (True, False)
        )
        assert whole.keys() == light.keys()
        for number, step in whole.items():
            for field in step.__struct_fields__:
                if field not in ("calls", "accept_again"):
                    assert getattr(step, field) == getattr(light[number], field), (number, field)
