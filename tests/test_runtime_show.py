"""`doctor` and `show`: what a person sees."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import typer
from runtime_support import make_server, sgltrace_run, trace_server
from typer.testing import CliRunner

from sgltrace.runtime import Options, diagnose, read_trace
from sgltrace.runtime.commands import register
from sgltrace.runtime.show import follow, lines

APP = typer.Typer()
register(APP)


def test_doctor_says_what_a_run_would_do(tmp_path, monkeypatch):
    server = make_server(tmp_path / "server")
    monkeypatch.setenv("PYTHONPATH", str(server))
    found = diagnose([sys.executable, str(server / "server.py"), "3"])
    assert found.attaches is True and not found.problems
    assert found.target.package_root == str(server / "sglang") and found.target.version == "0.0.1"
    assert {"step", "verify", "worker step"} <= {site.role for site in found.plan.sites}
    assert "draft" in found.plan.roles_missing
    assert diagnose([sys.executable, "-I", "x.py"]).attaches is False
    result = CliRunner().invoke(APP, ["doctor", "--", sys.executable, "-E", "x.py"])
    assert result.exit_code == 1 and "-I or -E" in result.output


def test_doctor_finds_the_python_behind_a_script(tmp_path, monkeypatch):
    script = tmp_path / "sglang-server"
    script.write_text(f"#!{sys.executable} -X dev\nprint(1)\n")
    script.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(make_server(tmp_path / "server")))
    found = diagnose(["env", "A=1", str(script)]).target
    assert found.interpreter == sys.executable and found.flags == ["-X", "dev"]
    assert found.package_root == str(tmp_path / "server" / "sglang")


def test_show_marks_the_steps_before_a_crash(tmp_path, monkeypatch):
    main = (
        "import os, signal\nfrom sglang.srt.managers.scheduler import Scheduler\n"
        "Scheduler().loop(9, lambda n: n == 7 and os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    session = trace_server(tmp_path, monkeypatch, files={"server.py": main}, options=Options(every=1))
    assert session.exit_code == 137
    result = CliRunner().invoke(APP, ["show", str(tmp_path / "trace")])
    marked = [line for line in result.output.splitlines() if line.startswith(">")]
    assert result.exit_code == 0 and len(marked) == 3 and " 7 DECODE" in marked[-1]
    assert "EAGLEWorkerV2.verify" in result.output
    rows = [
        json.loads(row)
        for row in CliRunner().invoke(APP, ["show", "--json", str(tmp_path / "trace")]).output.splitlines()
    ]
    assert [row["step"] for row in rows if row["step"]] == list(range(1, 8))
    run_batch = next(call for call in rows[-1]["calls"] if call["function"].endswith("run_batch"))
    assert run_batch["before"]["arg.batch.forward_mode"] == "DECODE"


def test_a_run_that_ended_well_has_no_crash(tmp_path, monkeypatch):
    trace_server(tmp_path, monkeypatch, "3", options=Options(every=1))
    assert not [line for line in lines(read_trace(tmp_path / "trace")) if line.startswith((">", "---"))]


def test_follow_prints_each_step_once_while_it_grows(tmp_path):
    main = (
        "import time\nfrom sglang.srt.managers.scheduler import Scheduler\n"
        "Scheduler().loop(40, lambda n: time.sleep(0.05))\n"
    )
    server = make_server(tmp_path / "server", {"server.py": main})
    process = sgltrace_run(
        server, tmp_path / "trace", [sys.executable, str(server / "server.py")], every=1, stderr=subprocess.DEVNULL
    )
    while not list((tmp_path / "trace").glob("*.seg")):
        assert process.poll() is None
    seen: list[str] = []
    thread = threading.Thread(target=follow, args=(tmp_path / "trace", seen.append))
    thread.start()
    process.wait(30)
    thread.join(30)
    numbers = [int(line.split()[1]) for line in seen]
    assert numbers == list(range(1, 41))
