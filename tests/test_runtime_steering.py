"""A running server is steered, windows are marked, and whatever ends a run is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from runtime_support import make_server, sgltrace_run, trace_server

from sgltrace.errors import InputError, UsageError
from sgltrace.runtime import Options, Session, read_trace, steps
from sgltrace.runtime.control import steer
from sgltrace.runtime.machine import gpus
from sgltrace.runtime.probe import wire
from sgltrace.runtime.probe.control import Condition
from sgltrace.workspace import Workspace

LOAD = "from sglang.srt.managers.scheduler import Scheduler, ScheduleBatch\n"
SLOW = "import time\n" + LOAD + "Scheduler().loop(%d, lambda n: time.sleep(%s))\n"
ALIKE = LOAD + "Scheduler.get_next_batch_to_run = lambda self: ScheduleBatch(4)\n"


def flags(trace) -> dict[int, int]:
    return {r.step: r.ints[2] for r in trace.recording()[0].records() if r.kind == wire.STEP}


@pytest.mark.parametrize("recorder", ["c", "python"])
def test_ctl_steers_a_running_server(tmp_path, recorder, monkeypatch):
    if recorder == "python":
        monkeypatch.setenv("SGLTRACE_NO_C", "1")
    server = make_server(tmp_path / "server", {"server.py": SLOW % (100_000, "0.002")})
    folder = tmp_path / "trace"
    process = sgltrace_run(server, folder, [sys.executable, str(server / "server.py")], stderr=subprocess.DEVNULL)
    try:
        _wait_for(lambda: list(folder.glob("*.seg")) and read_trace(folder).recording()[0].head.last_step > 40)
        assert steer(folder, "off", 50, None) == [f"rank {read_trace(folder).recording()[0].rank}: off"]
        time.sleep(0.2)
        off = [s.number for s in _steps(folder)]
        assert "window 7" in steer(folder, "window", 7, "batch>=3")[0]
        _wait_for(lambda: _marks(folder) == [(1, 1), (1, 0)])
        assert [s.number for s in _steps(folder) if s.number > off[-1] + 1]
        window = [s for s in _steps(folder) if s.number > off[-1] + 1]
        assert len(window) == 7 and window[0].batch_size >= 3 and all(s.flags & wire.FLAG_FULL for s in window)
        assert "light" in steer(folder, "light", 50, None)[0]
        time.sleep(0.3)
        assert not any(s.flags & wire.FLAG_FULL for s in _steps(folder) if s.number > window[-1].number)
        with pytest.raises(UsageError, match="there are auto, full, light, off and window"):
            steer(folder, "loud", 1, None)
    finally:
        process.terminate()
        process.wait(20)
    with pytest.raises(InputError, match="alive"):
        steer(folder, "full", 1, None)
    assert read_trace(folder).run.signals == ["SIGTERM"]


def _steps(folder):
    trace = read_trace(folder)
    return [s for s in steps(trace, trace.recording()[0]) if s.ran and s.complete]


def _marks(folder):
    return [r.ints for r in read_trace(folder).recording()[0].records() if r.kind == wire.MARK]


def _wait_for(what, seconds: float = 15.0):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_conditions():
    assert Condition("batch>=8").holds(8) and not Condition("batch >= 8").holds(7)
    assert Condition("batch>2 and batch<5").holds(4) and not Condition("batch>2, batch<5").holds(5)
    assert Condition("").holds(0)
    for bad in ("batch", "size>3", "batch>=x", "batch>=8 or batch<2"):
        with pytest.raises(ValueError, match="is not a condition; write one such as"):
            Condition(bad)


@pytest.mark.parametrize("recorder", ["c", "python"])
def test_when_keeps_full_recording_to_the_batch_sizes_of_interest(tmp_path, monkeypatch, recorder):
    if recorder == "python":
        monkeypatch.setenv("SGLTRACE_NO_C", "1")
    trace_server(tmp_path, monkeypatch, "40", options=Options(every=1, when="batch>=3"))
    trace = read_trace(tmp_path / "trace")
    seen = {(s.batch_size >= 3, bool(s.flags & wire.FLAG_FULL)) for s in steps(trace, trace.recording()[0]) if s.ran}
    assert seen == {(True, True), (False, False)}


def test_windows_are_marked_and_their_steps_left_out_of_steady_periods(tmp_path, monkeypatch):
    main = ALIKE + "Scheduler().loop(40, lambda n: None)\n"
    trace_server(tmp_path, monkeypatch, files={"server.py": main}, options=Options(every=1, calls=6))
    trace = read_trace(tmp_path / "trace")
    (process,) = trace.recording()
    marked = [number for number, flag in flags(trace).items() if flag & wire.FLAG_CALLS]
    assert len(marked) == 6 and marked == list(range(marked[0], marked[0] + 6))
    assert [s.window for s in steps(trace, process) if s.number in marked] == ["calls"] * 6
    (kind,) = process.histogram()
    assert kind.window_steps == 6 and kind.odd == 6 and kind.steady == sum(kind.periods) == 40 - 1 - 6 - 1


DATACLASS = """
import dataclasses
def made(): return 1
@dataclasses.dataclass
class Thing:
    x: int
    def __post_init__(self): made()
def make(): return Thing(3)
"""


def test_generated_functions_are_no_callees_and_no_callers(tmp_path, monkeypatch):
    worker = "from sglang.thing import make\n" + "\n".join(
        [
            "class EAGLEWorkerV2:",
            "    def forward_batch_generation(self, batch):",
            "        make()",
            "        return self",
        ]
    )
    main = ALIKE + "Scheduler().loop(30, lambda n: None)\n"
    files = {"sglang/thing.py": DATACLASS, "sglang/srt/speculative/eagle_worker_v2.py": worker, "server.py": main}
    trace_server(tmp_path, monkeypatch, files=files, options=Options(every=1, calls=4))
    ran = read_trace(tmp_path / "trace").call_pairs()
    pairs = {(pair.caller.rpartition(":")[2], pair.callee.rpartition(":")[2]) for pair in ran}
    names = {name for pair in pairs for name in pair}
    assert "ScheduleBatch.__init__" in names and "Thing.__init__" not in names
    assert any(callee.endswith("__post_init__") and caller.endswith("make") for caller, callee in pairs)


CUDA = """
import time
class Event:
    made = []
    def __init__(self, enable_timing=False): self.at, self.asked = None, 0
    def record(self): self.at = time.monotonic_ns(); Event.made.append(self)
    def query(self): self.asked += 1; return self.asked > 2
    def elapsed_time(self, other): return (other.at - self.at) / 1e6
    def synchronize(self): raise RuntimeError("a synchronisation")
def is_initialized(): return True
"""


@pytest.mark.parametrize("recorder", ["c", "python"])
def test_time_on_the_device_is_asked_for_in_its_window_only_and_read_later(tmp_path, monkeypatch, recorder):
    if recorder == "python":
        monkeypatch.setenv("SGLTRACE_NO_C", "1")
    main = (
        "import torch, torch.cuda\n" + ALIKE + "Scheduler().loop(60, lambda n: None)\n"
        "print(len(torch.cuda.Event.made))\n"
    )
    session = trace_server(
        tmp_path, monkeypatch, files={"server.py": main, "torch/cuda.py": CUDA}, options=Options(every=1, gpu_time=5)
    )
    assert session.exit_code == 0
    trace = read_trace(tmp_path / "trace")
    (process,) = trace.recording()
    measured = [s for s in steps(trace, process) if s.gpu]
    assert len(measured) == 5 and all(s.window == "gpu" for s in measured)
    for step in measured:
        (span,) = step.gpu
        assert trace.site(span.site).role == "worker step" and 0 < span.elapsed_ns <= step.host_ns
        assert step.start_ns <= span.queued_ns <= step.end_ns
    offsets = [s.gpu[0].offset_ns for s in measured]
    assert offsets == sorted(offsets) and offsets[0] == 0
    assert not process.info.missing


def test_a_program_that_takes_the_process_over_is_traced_too(tmp_path, monkeypatch):
    first = (
        "import os, sys\nsecond = os.path.join(os.path.dirname(__file__), 'second.py')\n"
        "os.execv(sys.executable, [sys.executable, second])\n"
    )
    second = SLOW % (9, "0.1")
    session = trace_server(
        tmp_path, monkeypatch, files={"server.py": first, "second.py": second}, options=Options(every=1)
    )
    assert session.exit_code == 0 and not [p for p in session.problems if "attach" in p]
    (process,) = read_trace(tmp_path / "trace").recording()
    assert process.name.count("-") == 2 and process.head.last_step == 9


def test_a_program_that_took_over_without_the_probe_is_named(tmp_path, monkeypatch):
    first = (
        "import os, sys, time\n" + LOAD + "Scheduler().loop(3, lambda n: None)\n"
        "time.sleep(0.6)\nos.execv(sys.executable, [sys.executable, '-I', '-c', 'import time; time.sleep(1)'])\n"
    )
    session = trace_server(tmp_path, monkeypatch, files={"server.py": first})
    assert any("-I" in problem for problem in session.problems if "did not attach" in problem)


@pytest.mark.parametrize("recorder", ["c", "python"])
def test_a_segment_that_somebody_truncates_stops_the_recording_and_not_the_server(tmp_path, monkeypatch, recorder):
    if recorder == "python":
        monkeypatch.setenv("SGLTRACE_NO_C", "1")
    main = (
        "import glob, os\n" + LOAD + "s = Scheduler()\ns.loop(20, lambda n: None)\n"
        "for path in glob.glob(os.environ['SGLTRACE_DIR'] + '/*.seg'): os.truncate(path, 0)\n"
        "s.loop(200, lambda n: None)\nraise SystemExit(7)\n"
    )
    session = trace_server(tmp_path, monkeypatch, files={"server.py": main}, options=Options(every=1))
    assert session.exit_code == 7
    assert any("truncated" in problem for problem in session.problems)


def test_a_crash_is_in_the_summary_with_its_step(tmp_path, monkeypatch):
    main = (
        "import os, signal\nfrom sglang.srt.managers import scheduler\n"
        "run = scheduler.EAGLEWorkerV2.verify\ncount = []\n"
        "def verify(self, batch):\n    count.append(1)\n    if len(count) == 17: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return run(self, batch)\n"
        "scheduler.EAGLEWorkerV2.verify = verify\nscheduler.Scheduler().loop(40, lambda n: None)\n"
    )
    server = make_server(tmp_path / "server", {"server.py": main})
    process = sgltrace_run(
        server, tmp_path / "trace", [sys.executable, str(server / "server.py")], stderr=subprocess.PIPE, stdout=-3
    )
    _, said = process.communicate(timeout=30)
    assert process.returncode == 137
    assert b"ended in step 17 (DECODE, batch " in said and b"exit code" in said
    trace = read_trace(tmp_path / "trace")
    last = list(steps(trace, trace.recording()[0]))[-1]
    assert last.number == 17 and not last.complete and last.batch_size


def test_what_the_report_does_is_no_matter_of_the_exit_code(tmp_path, monkeypatch):
    import typer
    from typer.testing import CliRunner

    from sgltrace.runtime import commands

    def fails(session: Session) -> None:
        raise ZeroDivisionError("a bug of ours")

    app = typer.Typer()
    monkeypatch.setattr(commands, "_finished", [])
    commands.register(app, finished=fails)
    command = ["--", sys.executable, "-c", "raise SystemExit(0)"]
    done = CliRunner().invoke(app, ["run", "-o", str(tmp_path / "one"), *command])
    assert done.exit_code == 0 and "no report of this run: ZeroDivisionError" in done.output
    quiet = CliRunner().invoke(app, ["run", "--no-report", "-o", str(tmp_path / "two"), *command])
    assert quiet.exit_code == 0 and "ZeroDivisionError" not in quiet.output
    wrong = CliRunner().invoke(app, ["run", "--when", "batch~8", *command])
    assert isinstance(wrong.exception, UsageError)


def test_two_runs_that_end_together_are_both_kept(tmp_path):
    workspace = Workspace(tmp_path / "workspace")
    threads = [threading.Thread(target=workspace.add_run, args=(tmp_path / f"run{n}",)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.name for path in workspace.runs()} == {f"run{n}" for n in range(12)}


def test_a_run_names_its_gpus_without_asking_a_servers_process(tmp_path, monkeypatch):
    place = tmp_path / "gpus" / "0000:00:04.0"
    place.mkdir(parents=True)
    (place / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\n")
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
    )
    assert gpus(tmp_path) == (["NVIDIA H200"], "580.159.04")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H100, 550.1'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert gpus(Path("/nonexistent")) == (["NVIDIA H100"], "550.1")


def test_the_run_id_and_the_machine_are_in_the_trace(tmp_path, monkeypatch):
    trace_server(tmp_path, monkeypatch, "3")
    run = json.loads((tmp_path / "trace" / "run.json").read_text())
    assert run["host"] and run["run_id"] == "" and run["signals"] == []
