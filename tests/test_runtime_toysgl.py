"""The whole way on a small engine of SGLang's shape: run, trace, read, observe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sgltrace.runtime import (
    Options,
    RunOptions,
    export_perfetto,
    observations,
    rank_differences,
    read_trace,
    run,
    sharing,
    steps,
)
from sgltrace.runtime.probe import wire

pytest.importorskip("torch")
TOYSGL = Path(__file__).parent.parent / "fixtures" / "toysgl"
STEPS = "24"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("toysgl")


def trace_toy(folder: Path, *arguments: str, **options):
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(TOYSGL))
    patch.setenv("OMP_NUM_THREADS", "1")
    if options.pop("without_c", False):
        patch.setenv("SGLTRACE_NO_C", "1")
    command = [sys.executable, "-m", "toysgl", "--steps", STEPS, "--batch", "4", *arguments]
    session = run(RunOptions(command=command, out=folder, probe=Options(every=1, **options)), say=lambda text: None)
    patch.undo()
    assert session.exit_code == 0
    return session


@pytest.fixture(scope="module")
def v2(folder):
    session = trace_toy(folder / "v2", "--path", "v2", "--new-tokens", "60", pointers=True, calls=4, timeline=3)
    return session, read_trace(folder / "v2")


def seen(trace, function, path, mode="DECODE"):
    return {
        (o.batch_size, o.shape)
        for o in observations(trace)
        if o.function.endswith(function) and o.path == path and o.mode == mode
    }


def test_v2_shapes_at_every_stage(v2):
    _, trace = v2
    config = trace.config()
    draft, num_steps = config["speculative_num_draft_tokens"], config["speculative_num_steps"]
    assert seen(trace, "prepare_for_v2_draft", "return[0].out_cache_loc") == {(4, (4 * num_steps,))}
    assert seen(trace, "prepare_for_v2_verify", "return[0].out_cache_loc") == {(4, (4 * draft,))}
    assert seen(trace, "EAGLEWorkerV2.forward_batch_generation", "return.next_token_ids") == {(4, (4 * draft,))}
    assert seen(trace, "process_batch_result_decode", "arg.result.accept_lens") == {(4, (4,))}


def test_v1_shapes(folder):
    trace_toy(folder / "v1", "--path", "v1", "--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "6")
    trace = read_trace(folder / "v1")
    assert (4, (24,)) in seen(trace, "EagleVerifyInput.prepare_for_verify", "arg.batch.out_cache_loc")
    assert (4, (4, 6)) in seen(trace, "EAGLEWorker.draft", "return.retrieve_index")


def test_steps_know_their_batch_graph_and_accepted_tokens(v2):
    _, trace = v2
    (process,) = trace.recording()
    decode = [s for s in steps(trace, process) if s.mode == "DECODE" and s.complete]
    assert len(decode) in (24, 25)  # overlap begins one more before the first is known to be the last
    assert all(s.batch_size == 4 and s.padded == 4 and s.graph for s in decode)
    assert all(len(s.accept_lens) == 4 and min(s.accept_lens) >= 1 for s in decode[:-1])
    assert all(a >= c for s in decode for a, c in zip(s.allocated, s.committed, strict=True))


def test_calls_that_return_are_whole_and_nested(v2):
    _, trace = v2
    (process,) = trace.recording()
    for step in steps(trace, process):
        for call in step.calls:
            assert call.end_ns is None or call.end_ns >= call.start_ns


def test_capture_ran_and_nothing_inside_it_was_recorded(v2):
    _, trace = v2
    (process,) = trace.recording()
    records = [r for r in process.records() if r.site]
    capture = [r for r in records if trace.site(r.site).role == "capture"]
    assert capture
    first, last = capture[0].time_ns, capture[-1].time_ns
    inside = [r for r in records if first < r.time_ns < last and r.step == 0]
    assert {trace.site(r.site).role for r in inside} <= {"capture", "graph buffers"}


def test_pointers_show_shared_storage(v2):
    _, trace = v2
    pairs = {(s.first, s.second) for s in sharing(trace)}
    assert ("arg.batch.input_ids", "return.input_ids") in pairs


def test_calls_are_function_ids_of_the_package(v2):
    _, trace = v2
    pairs = {(p.caller.split(":")[1], p.callee.split(":")[1]) for p in trace.call_pairs()}
    assert ("EAGLEWorkerV2.forward_batch_generation", "EAGLEWorkerV2.verify") in pairs
    assert not [pair for pair in pairs if "sgltrace" in " ".join(pair)]


def test_the_timeline_opens_and_holds_shapes(v2, folder):
    pytest.importorskip("viztracer")
    events = json.loads((folder / "v2" / "timeline-tp0.json").read_bytes())["traceEvents"]
    names = {event["name"].split(" ")[0] for event in events}
    assert {"EAGLEWorkerV2.verify", "batch", "accept"} <= names
    assert not any("sgltrace_probe" in event["name"] for event in events)
    verify = next(e for e in events if e["name"] == "EAGLEWorkerV2.verify" and e["ph"] == "X" and "args" in e)
    assert verify["args"]["after return.next_token_ids"] == "int32[16] cpu"


def test_perfetto_export_of_the_whole_run(v2, tmp_path):
    _, trace = v2
    count = export_perfetto(trace, tmp_path / "run.json")
    assert len(json.loads((tmp_path / "run.json").read_bytes())["traceEvents"]) == count > 500


def test_c_and_python_record_the_same(folder):
    rows, counted = [], []
    for name, without_c in (("c", False), ("python", True)):
        trace_toy(folder / name, "--path", "v2", without_c=without_c)
        trace = read_trace(folder / name)
        (process,) = trace.recording()
        assert process.info.fast is not without_c
        # Of a step's own record the times differ.
        kept = [n for n, field in enumerate(wire.STEP_FIELDS) if not field.endswith("_ns")]
        rows.append(
            [
                (r.site, r.kind, r.step, r.phase, r.thread, r.values(), r.mode)
                + (tuple(r.ints[n] for n in kept) if r.kind == wire.STEP else r.ints if r.kind == wire.ACCEPT else ())
                for r in process.records()
            ]
        )
        counted.append(
            [(k.mode, k.size, k.width, k.steps, k.replayed, k.eager, k.padded, k.replays, k.results, k.kept,
              k.kept_per_request, k.steady, k.changed, k.odd, sum(k.periods)) for k in process.histogram()]
        )  # fmt: skip
    assert rows[0] == rows[1] and counted[0] == counted[1]


def test_output_is_the_same_with_and_without_the_probe(folder):
    command = [sys.executable, "-m", "toysgl", "--path", "v2", "--steps", STEPS, "--batch", "4", "--print-tokens"]
    environment = {"PYTHONPATH": str(TOYSGL), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    plain = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    code = (
        "import sys; from sgltrace.runtime import run, RunOptions; from pathlib import Path;"
        "sys.exit(run(RunOptions(command=sys.argv[2:], out=Path(sys.argv[1])), say=lambda text: None).exit_code)"
    )
    traced = subprocess.run(
        [sys.executable, "-c", code, str(folder / "same"), *command], env=environment, capture_output=True, check=True
    ).stdout
    assert plain and plain == traced


@pytest.mark.parametrize("skew", ["graph", None])
def test_two_ranks_merge_by_step_and_a_difference_shows(folder, skew):
    name = f"ranks-{skew}"
    trace_toy(folder / name, "--path", "v2", "--tp", "2", *(["--rank-skew", skew] if skew else []))
    trace = read_trace(folder / name)
    assert [p.rank for p in trace.recording()] == ["tp0", "tp1"]
    numbers = [[s.number for s in steps(trace, p) if s.complete] for p in trace.recording()]
    common = min(map(len, numbers))  # the other rank may be ended earlier
    assert common > 10 and numbers[0][:common] == numbers[1][:common]
    found = rank_differences(trace)
    assert bool(found) is (skew is not None)
    assert all(set(d.seen) == {"tp0", "tp1"} for d in found)


@pytest.mark.parametrize("how, code", [("sigkill", 1), ("sigterm", 1), ("sigquit", 1), ("exit", 1), ("raise", 131)])
def test_a_scheduler_that_dies_leaves_all_its_steps(folder, how, code, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TOYSGL))
    command = [sys.executable, "-m", "toysgl", "--path", "v2", "--batch", "4", "--die", how, "--die-step", "9"]
    session = run(RunOptions(command=command, out=folder / how, probe=Options(every=1)), say=lambda text: None)
    assert session.exit_code == code
    trace = read_trace(folder / how)
    (process,) = trace.recording()
    decode = [s for s in steps(trace, process) if s.mode == "DECODE"]
    assert len(decode) in (9, 10) and all(s.complete for s in decode[:8])
    assert not process.loss.any
