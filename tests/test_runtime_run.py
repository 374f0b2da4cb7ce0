"""The command runs as it would without sgltrace, whatever happens to the probe."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from runtime_support import make_server, sgltrace_run, trace_server

from sgltrace.errors import UsageError
from sgltrace.runtime import Options, RunOptions, read_trace, run

NO_SERVER = Path("/nonexistent")


def run_code(tmp_path: Path, code: str, *flags: str) -> tuple[int, list[str]]:
    said: list[str] = []
    session = run(RunOptions(command=[sys.executable, *flags, "-c", code], out=tmp_path / "trace"), say=said.append)
    return session.exit_code, session.problems


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_codes_pass_through(tmp_path, code):
    assert run_code(tmp_path, f"raise SystemExit({code})")[0] == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT, signal.SIGABRT])
def test_a_signal_is_reported_as_shells_do(tmp_path, number):
    assert run_code(tmp_path, f"import os; os.kill(os.getpid(), {int(number)})")[0] == 128 + number


def test_a_command_that_does_not_exist_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no-such-server"):
        run(RunOptions(command=["no-such-server"], out=tmp_path / "trace"))


def test_arguments_streams_folder_and_group_are_the_users_own(tmp_path):
    show = "import os, sys; print([sys.argv[1:], os.getcwd(), os.getpgrp(), os.getsid(0), sys.stdin.read()])"
    process = sgltrace_run(
        tmp_path,
        tmp_path / "trace",
        [sys.executable, "-c", show, "-x", "a b", ""],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, _ = process.communicate(b"in")
    assert out.decode().strip() == str([["-x", "a b", ""], str(tmp_path), os.getpgrp(), os.getsid(0), "in"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_signals_are_passed_on(tmp_path, number):
    code = (
        "import signal, time, sys\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\n"
        "time.sleep(30)\n"
    )
    process = sgltrace_run(
        tmp_path,
        tmp_path / "trace",
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.wait(20) == 42


def test_ctrl_c_in_a_terminal_stops_the_server_once_and_quits_at_the_second(tmp_path):
    code = (
        "import signal, time\n"
        "count = [0]\n"
        "def stop(*_):\n"
        "    count[0] += 1\n"
        "    print('interrupted', count[0], flush=True)\n"
        "signal.signal(signal.SIGINT, stop)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    leader, follower = pty.openpty()
    process = sgltrace_run(
        tmp_path,
        tmp_path / "trace",
        [sys.executable, "-c", code],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
        preexec_fn=lambda: _control(follower),
    )
    os.close(follower)
    seen = _read_until(leader, b"ready")
    os.write(leader, b"\x03")
    seen = _read_until(leader, b"interrupted 1")
    time.sleep(0.3)
    assert process.poll() is None
    os.write(leader, b"\x03")
    assert process.wait(20) == 130
    assert b"interrupted 3" not in seen
    os.close(leader)


def _control(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def _read_until(fd: int, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        seen += os.read(fd, 4096)
    return seen


def test_ignored_signals_stay_ignored(tmp_path):
    code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGPIPE))"
    plain = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import signal, subprocess, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
            f"subprocess.run([sys.executable, '-c', {code!r}])",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    process = sgltrace_run(
        tmp_path,
        tmp_path / "trace",
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.communicate()[0].decode() == plain


def test_secrets_on_the_command_line_are_blanked(tmp_path, monkeypatch):
    trace_server(tmp_path, monkeypatch, "3", "--api-key", "hunter2", "--hf-token=abc", "--new-tokens", "5")
    command = read_trace(tmp_path / "trace").run.command
    assert command[-5:] == ["--api-key", "***", "--hf-token=***", "--new-tokens", "5"]
    assert "hidden" not in "".join(p.read_text("utf-8") for p in (tmp_path / "trace").glob("*.json"))


# The probe has bad luck; the server must not notice.


def test_a_folder_that_cannot_be_written_to_is_told_and_the_server_runs(tmp_path):
    (tmp_path / "file").write_text("")
    session = run(
        RunOptions(command=[sys.executable, "-c", "raise SystemExit(5)"], out=tmp_path / "file" / "trace"),
        say=lambda text: None,
    )
    assert session.exit_code == 5 and session.folder is None
    assert "nothing will be recorded" in session.problems[-1]


def test_a_folder_that_is_removed_is_told_and_the_server_runs(tmp_path, monkeypatch):
    code = (
        "import shutil, sys; from sglang.srt.managers.scheduler import Scheduler\n"
        f"Scheduler().loop(5, lambda n: None); shutil.rmtree({str(tmp_path / 'trace')!r})\n"
        "Scheduler().loop(5000, lambda n: None); raise SystemExit(6)"
    )
    session = trace_server(tmp_path, monkeypatch, "1", files={"server.py": code})
    assert session.exit_code == 6
    assert any("was removed" in problem for problem in session.problems)


def test_a_full_disk_stops_the_recording_and_not_the_server(tmp_path, monkeypatch):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
    files = {
        "server.py": limit + "from sglang.srt.managers.scheduler import Scheduler\n"
        "Scheduler().loop(50, lambda n: None); raise SystemExit(4)"
    }
    session = trace_server(tmp_path, monkeypatch, files=files)
    assert session.exit_code == 4
    assert any("stopped early" in problem and "large" in problem for problem in session.problems)


def test_a_pythonpath_that_a_wrapper_set_anew_is_named(tmp_path):
    code = (
        "import os, subprocess, sys\n"
        f"env = {{**os.environ, 'PYTHONPATH': {str(tmp_path)!r}}}\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(1)'], env=env)\n"
    )
    _, problems = run_code(tmp_path, code)
    assert any("something between set PYTHONPATH anew" in p for p in problems)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_really_full_disk(tmp_path, monkeypatch):
    disk = tmp_path / "trace"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        session = trace_server(tmp_path, monkeypatch, "3000", options=Options(max_bytes=2 << 20, every=1))
        assert session.exit_code == 0
        assert any("stopped early" in p and "No space left" in p for p in session.problems)
        assert next(iter(read_trace(disk).recording()[0].records()))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_probe_that_raises_switches_its_site_off_and_nothing_else(tmp_path, monkeypatch):
    from sgltrace.runtime.plan import own_site

    odd = (
        "class Odd:\n"
        "    def __getattribute__(self, name): raise RuntimeError('do not touch')\n"
        "class Meta(type):\n"
        "    @property\n"
        "    def __mro__(cls): raise RuntimeError('nor this')\n"
        "class Odder(metaclass=Meta): pass\n"
        "def step(x): return x\n"
    )
    main = (
        "from sglang.odd import Odd, Odder, step\n"
        "from sglang.srt.managers.scheduler import Scheduler\n"
        "step(Odd()); step(Odder()); Scheduler().loop(5, lambda n: None)\n"
    )
    session = trace_server(
        tmp_path,
        monkeypatch,
        files={"sglang/odd.py": odd, "server.py": main},
        own_sites=[own_site("sglang.odd:step", "arg.x.y.z,return")],
    )
    assert session.exit_code == 0
    trace = read_trace(tmp_path / "trace")
    assert trace.recording()[0].head.last_step == 5


# Processes that the probe does not get into are named.


@pytest.mark.parametrize("flag, why", [("-I", "-I"), ("-E", "-E"), ("-S", "-S")])
def test_a_process_that_did_not_attach_is_named_with_the_reason(tmp_path, flag, why):
    _, problems = run_code(tmp_path, "import time; time.sleep(1)", flag)
    assert any("did not attach" in p and why in p for p in problems)


def test_an_environment_of_its_own_is_named(tmp_path):
    code = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', 'import time; time.sleep(1)'], env={{}})"
    _, problems = run_code(tmp_path, code)
    assert any("SGLTRACE_DIR" in p for p in problems)


def test_the_users_own_sitecustomize_runs(tmp_path, monkeypatch):
    files = {
        "sitecustomize.py": "import builtins; builtins.mine = __file__\n",
        "server.py": "import sitecustomize; assert mine == sitecustomize.__file__; raise SystemExit(9)",
    }
    assert trace_server(tmp_path, monkeypatch, files=files).exit_code == 9


def test_the_second_door_attaches_where_site_does_not_run(tmp_path, monkeypatch):
    files = {
        "server.py": "from importlib.metadata import entry_points\n"
        "import sglang.srt.managers.scheduler as s\n"
        "for e in entry_points(group='sglang.srt.plugins'): e.load()()\n"
        "s.Scheduler().loop(4, lambda n: None)\n"
    }
    server = make_server(tmp_path / "server", files)
    monkeypatch.setenv("PYTHONPATH", str(server))
    session = run(
        RunOptions(command=[sys.executable, "-S", str(server / "server.py")], out=tmp_path / "trace"),
        say=lambda text: None,
    )
    assert session.exit_code == 0
    process = read_trace(tmp_path / "trace").recording()[0]
    assert process.info.door == "plugin" and process.head.last_step == 4


def test_sites_that_are_missing_are_listed(tmp_path, monkeypatch):
    from sgltrace.runtime.plan import own_site

    session = trace_server(
        tmp_path, monkeypatch, own_sites=[own_site("sglang.srt.managers.scheduler:Scheduler.no_such")]
    )
    assert any("draft" in p and "this release has no function for" in p for p in session.problems)
    missing = read_trace(tmp_path / "trace").recording()[0].info.missing
    assert "no Scheduler.no_such" in missing[0]["why"]


def test_max_bytes_keeps_the_latest_steps(tmp_path, monkeypatch):
    session = trace_server(tmp_path, monkeypatch, "20000", options=Options(max_bytes=1 << 20, every=1))
    trace = read_trace(tmp_path / "trace")
    process = trace.recording()[0]
    assert session.progress.size <= 1 << 20
    records = list(process.records())
    assert records[-1].step == 20000 and process.head.dropped_records > 0
    assert process.head.records == process.head.dropped_records + len(records)
    assert not process.loss.any


def test_an_earlier_sitecustomize_is_named(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("")
    code = (
        "import os, subprocess, sys\n"
        f"env = {{**os.environ, 'PYTHONPATH': {str(tmp_path / 'other')!r} + ':' + os.environ['PYTHONPATH']}}\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(1)'], env=env)\n"
    )
    _, problems = run_code(tmp_path, code)
    assert any("comes first on its PYTHONPATH" in p for p in problems)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_a_read_only_folder_is_told_and_the_server_runs(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        command = [sys.executable, "-c", "raise SystemExit(8)"]
        session = run(RunOptions(command=command, out=disk / "trace"), say=lambda text: None)
        assert session.exit_code == 8 and session.folder is None
        assert any("nothing will be recorded" in p and "Read-only" in p for p in session.problems)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_status_line_is_on_a_terminal_only_and_gives_it_back(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    server = make_server(tmp_path / "server")
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 24, 200, 0, 0))
    code = (
        "from sglang.srt.managers.scheduler import Scheduler; import time\n"
        "Scheduler().loop(9, lambda n: None); time.sleep(1)"
    )
    process = sgltrace_run(
        server, tmp_path / "trace", [sys.executable, "-c", code], stdin=follower, stdout=follower, stderr=follower,
        start_new_session=True, preexec_fn=lambda: _control(follower),
    )  # fmt: skip
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 4096):
            seen += chunk
    except OSError:
        pass  # how a terminal says that nobody has it open any more
    assert process.wait(20) == 0
    assert b"processes attached" in seen and b"9 steps" in seen
    assert b"\x1b[r" in seen, "the whole terminal scrolls again"
    quiet = sgltrace_run(server, tmp_path / "quiet", [sys.executable, "-c", "pass"], stdout=-1, stderr=-1)
    assert b"\x1b" not in b"".join(quiet.communicate())
