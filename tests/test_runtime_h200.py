"""What was recorded on an H200 agrees with what the client measured and with what SGLang logged of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgltrace.runtime import observations, read_trace, steps

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"
CLIENT = json.loads((TRACES / "client.json").read_text())
LOGGED = json.loads((TRACES / "logged.json").read_text())
NAMES = sorted(CLIENT)


def kinds(name):
    (process,) = read_trace(TRACES / name).recording()
    return {(kind.mode, kind.size): kind for kind in process.histogram()}


def ran(name):
    trace = read_trace(TRACES / name)
    (process,) = trace.recording()
    return [step for step in steps(trace, process) if step.ran]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_a_second_are_the_clients(name):
    found = kinds(name)
    for row in CLIENT[name]:
        decode, prefill = found["DECODE", row["batch"]], found["EXTEND", row["batch"]]
        long = [(t, s) for t, s in zip(row["tokens"], row["seconds"], strict=True) if t == max(row["tokens"])]
        # The client's time holds the prefill, which makes the first token.
        before = prefill.changed_ns / prefill.changed / 1e9
        tokens = sum(row["batch"] * (t - 1) for t, _ in long)
        client = tokens / (sum(s for _, s in long) - len(long) * before)
        # The histogram counts the short requests, too; where they are many, these are other steps than the client's.
        others = decode.steps < 400
        assert decode.tokens_per_s == pytest.approx(client, rel=0.05 if others else 0.03), row["batch"]
        if row["accept_length"]:
            assert decode.accept_length == pytest.approx(row["accept_length"], rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_replay_or_eager_is_what_sglang_logged(name):
    decode = {kind.size: kind for kind in kinds(name).values() if kind.mode == "DECODE"}
    for size, logged in LOGGED[name].items():
        kind = decode[int(size)]
        assert set(logged) == {"True" if kind.replayed else "False"}
        assert kind.replayed + kind.eager == kind.steps and 0 in (kind.replayed, kind.eager)
    for step in ran(name):
        if step.mode == "DECODE":
            assert step.how == ("eager" if step.batch_size > 8 else "replay"), step.number
            assert step.padded is None if step.how == "eager" else step.padded >= step.batch_size


def test_on_and_off_steps_are_told_apart_step_by_step():
    seen = {(s.batch_size >= 4, s.speculation, s.width) for s in ran("0514_eagle3_v2_off4") if s.mode == "DECODE"}
    assert seen == {(False, "on", 3), (True, "off", 1)}
    assert {s.speculation for s in ran("0514_eagle3_v2") if s.mode == "DECODE"} == {"on"}
    assert {s.speculation for s in ran("0514_base") if s.mode == "DECODE"} == {"plain"}


def test_time_on_the_device_lies_within_the_period():
    spans = [(step, span) for step in ran("0512_base") for span in step.gpu if step.mode == "DECODE"]
    assert len({step.number for step, _ in spans}) == 11 and all(step.batch_size == 8 for step, _ in spans)
    trace = read_trace(TRACES / "0512_base")
    whole = [span.elapsed_ns for _, span in spans if trace.site(span.site).role == "target step"]
    replays = [(span.elapsed_ns, span.padded) for _, span in spans if trace.site(span.site).role == "replay"]
    assert len(whole) == len(replays) == 11 and {padded for _, padded in replays} == {8}
    assert all(inner < outer for (inner, _), outer in zip(sorted(replays), sorted(whole), strict=True))
    ordinary = kinds("0512_base")["DECODE", 8].period_ns
    assert sum(inner for inner, _ in replays) / 11 < ordinary
    assert all("gpu" in step.window for step, _ in spans)


def test_a_run_says_what_it_ran_on():
    run = read_trace(TRACES / "0512_eagle3_v2").run
    assert (run.version, run.gpus) == ("0.5.12.post1", ["NVIDIA H200"])
    config = read_trace(TRACES / "0512_eagle3_v2").config()
    assert config["load_format"] == "dummy" and config["model_path"].endswith("/target")


@pytest.mark.parametrize("name", NAMES)
def test_no_step_is_left_unfinished(name):
    assert all(step.complete for step in ran(name))


def test_steps_in_which_something_compiled_are_apart():
    kind = kinds("0512_base")["DECODE", 12]
    assert kind.compiled_steps and kind.odd_ns / kind.odd > 3 * kind.period_ns


def test_filter_merge_and_the_slots_at_a_steps_start_are_recorded():
    seen = observations(read_trace(TRACES / "0514_eagle3_v2"))
    functions = {o.function.rpartition(":")[2] for o in seen}
    assert "ScheduleBatch.filter_batch" in functions
    assert any(
        o.path == "arg.batch.out_cache_loc" and o.stage == "step"
        for o in observations(read_trace(TRACES / "0512_base"))
    )
    trace = read_trace(TRACES / "0512_base")
    sites = {site.qualname for site in trace.plan.sites}
    assert {"ScheduleBatch.filter_batch", "ScheduleBatch.merge_batch"} <= sites
