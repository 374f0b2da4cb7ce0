"""However a server ends, every record that was completed is read again."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pytest
from runtime_support import make_server, sgltrace_run

from sgltrace.runtime import read_trace
from sgltrace.runtime.probe import wire

TIMES = 20
KILL_MAIN = """
import os, sys, threading, time
from sglang.srt.managers.scheduler import Scheduler
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(1, b"%d\\n" % os.getpid())
if sys.argv[2] != "kill":
    threading.Timer(float(sys.argv[2]), os._exit, (3,)).start()
Scheduler().loop(10 ** 9, lambda step: os.pwrite(out, step.to_bytes(8, "little"), 0))
"""


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT, None], ids=["KILL", "TERM", "QUIT", "_exit"]
)
@pytest.mark.parametrize("recorder", ["c", "python"])
def test_no_completed_record_is_lost(tmp_path, monkeypatch, how, recorder):
    monkeypatch.setenv("SGLTRACE_CACHE_DIR", os.environ.get("SGLTRACE_CACHE_DIR", str(tmp_path.parent / "cache")))
    if recorder == "python":
        monkeypatch.setenv("SGLTRACE_NO_C", "1")
    rng = random.Random(str(how) + recorder)
    server = make_server(tmp_path / "server", {"server.py": KILL_MAIN})
    for n in range(TIMES // 2):  # with either recorder
        trace, steps = tmp_path / f"trace{n}", tmp_path / f"steps{n}"
        after = rng.uniform(0.0, 0.25)
        command = [sys.executable, str(server / "server.py"), str(steps), "kill" if how else str(after)]
        process = sgltrace_run(server, trace, command, every=1, stdout=-1, stderr=-3)
        pid = int(process.stdout.readline())
        if how is not None:
            time.sleep(after)
            os.kill(pid, how)
        assert process.wait(30) == (3 if how is None else 128 + how)
        done = int.from_bytes(steps.read_bytes() or b"", "little") if steps.exists() else 0
        _check(trace, done)


def _check(folder, done):
    """Every step that the server said was done is there whole, one after the other, and nothing is damaged."""
    trace = read_trace(folder)
    assert trace.recording() or done == 0
    for process in trace.recording():
        runs = [n for n, site in enumerate(trace.plan.sites, 1) if site.role == "step"]
        begun, ended = [], []
        for record in process.records():
            if record.site in runs and record.kind in (wire.ENTER, wire.STEP):
                (begun if record.kind == wire.ENTER else ended).append(record.step)
        assert not process.loss.any and process.loss.unfinished <= 1
        assert ended == list(range(1, len(ended) + 1))
        assert len(ended) in (done, done + 1)
        assert not begun or begun[-1] <= len(ended) + 1  # of steps recorded in full
        assert process.head.last_step - len(ended) in (0, 1) and (
            process.head.inside or process.head.last_step == len(ended)
        )
        counted = sum(kind.steps for kind in process.histogram())
        assert counted - len(ended) in (0, 1)
