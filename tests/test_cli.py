"""The command line as a user meets it: what it prints, its exit codes, and one line for every error."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trees import write_tree

from sgltrace import cli, tool, workspace
from sgltrace.model import CallEdge, CallSite, Function, Guard, Index, Source, Unresolved
from sgltrace.workspace import Stamp, Workspace

MODULE = "sglang.srt.a"


def function(name: str, line: int) -> Function:
    return Function(id=f"{MODULE}:{name}", file="sglang/srt/a.py", line=line, end_line=line, phase=[], paths=[])


def edge(caller: str, callee: str, **more) -> CallEdge:
    sites = [CallSite(7, [Guard("x > 0", True, 6), Guard("y", False, 5, "return"), Guard("done", False, 4)])]
    given = {"kind": "method", "confidence": 1.0, "sites": sites, **more}
    return CallEdge(caller=f"{MODULE}:{caller}", callee=f"{MODULE}:{callee}", **given)


def small_index() -> Index:
    names = ("Loop.run", "Loop.step", "Worker.step", "Worker.verify", "Worker.lonely", "helper")
    return Index(
        source=Source(name="sglang", version="1", root="r", kind="folder", requested="r"),
        entry_points={"v1": None, "v2": f"{MODULE}:Worker.step"},
        functions=[function(name, line) for line, name in enumerate(names, 1)],
        calls=[
            edge("Loop.run", "Loop.step"),
            edge("Loop.step", "Worker.step", kind="virtual call", confidence=0.8, virtual=True),
            edge("Loop.step", "helper"),
            edge("Worker.step", "Worker.verify"),
            edge("helper", "Worker.verify"),
        ],
        unresolved=[Unresolved(caller=f"{MODULE}:Loop.step", line=9, expression="self.f()", why="unknown receiver")],
    )


@pytest.fixture
def made(tmp_path) -> Path:
    Workspace(tmp_path / "ws").write_index(small_index())
    return tmp_path / "ws"


@pytest.fixture
def call(capsys):
    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_calls_shows_lines_guards_and_what_is_unknown(call, made):
    code, out, err = call("calls", "Loop.step", "-w", made)
    assert (code, err) == (0, "")
    assert "sglang.srt.a:Loop.step  sglang/srt/a.py:2" in out
    assert "-> sglang.srt.a:Worker.step  (virtual call, virtual, confidence 0.80)" in out
    assert "sglang/srt/a.py:7  if x > 0; left earlier if y; if not (done)" in out
    assert "self.f()  (line 9, unresolved: unknown receiver)" in out


def test_callers(call, made):
    code, out, _ = call("callers", "a:Worker.verify", "-w", made)
    assert code == 0
    assert [line.split()[1] for line in out.splitlines() if "<-" in line] == [
        f"{MODULE}:Worker.step",
        f"{MODULE}:helper",
    ]
    assert "called by nothing" in call("callers", "lonely", "-w", made)[1]


def test_path_prefers_certain_edges_among_equals(call, made):
    code, out, _ = call("path", "Loop.run", "Worker.verify", "-w", made, "--json")
    assert code == 0
    assert [edge["callee"] for edge in json.loads(out)["path"]] == [
        f"{MODULE}:{name}" for name in ("Loop.step", "helper", "Worker.verify")
    ]
    assert "-> sglang.srt.a:helper  (method)" in call("path", "Loop.run", "Worker.verify", "-w", made)[1]


def test_no_path_is_exit_code_1(call, made):
    code, out, _ = call("path", "verify", "Loop.run", "-w", made)
    assert code == 1 and "no call path" in out
    code, out, _ = call("path", "verify", "Loop.run", "-w", made, "--json")
    assert code == 1 and json.loads(out)["path"] is None


def test_json_of_calls_is_the_models(call, made):
    answer = json.loads(call("calls", "Loop.step", "-w", made, "--json")[1])
    assert answer["function"] == f"{MODULE}:Loop.step"
    assert answer["calls"][0]["sites"][0]["guards"][0] == {"text": "x > 0", "holds": True, "line": 6, "kind": "if"}
    assert answer["unresolved"][0]["expression"] == "self.f()"


@pytest.mark.parametrize("name", [f"{MODULE}:Worker.step", f"{MODULE}.Worker.step", "Worker.step", "a:Worker.step"])
def test_a_function_is_named_by_any_tail(call, made, name):
    assert json.loads(call("callers", name, "-w", made, "--json")[1])["function"] == f"{MODULE}:Worker.step"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Worker.verfy", f"did you mean {MODULE}:Worker.verify"),
        ("Loop", f"inside Loop there is {MODULE}:Loop.run, {MODULE}:Loop.step"),
        ("qqqqqq", "there is no function 'qqqqqq'"),
    ],
)
def test_wrong_names_get_help(call, made, name, said):
    code, out, err = call("calls", name, "-w", made)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_name_that_several_functions_have(call, made):
    code, out, err = call("path", "step", "Worker.verify", "-w", made)
    assert (code, out) == (2, "")
    assert f"may be any of 2 functions: {MODULE}:Loop.step, {MODULE}:Worker.step" in err
    code, out, err = call("callers", "step", "-w", made)
    assert (code, err) == (0, "")
    assert f"{MODULE}:Loop.step " in out and f"{MODULE}:Worker.step " in out
    answers = json.loads(call("callers", "step", "-w", made, "--json")[1])["functions"]
    assert [answer["function"] for answer in answers] == [f"{MODULE}:Loop.step", f"{MODULE}:Worker.step"]


def test_each_command_has_an_example(call):
    from sgltrace.commands.examples import EXAMPLES

    for name, example in EXAMPLES.items():
        code, out, _ = call(name, "--help")
        assert code == 0 and " ".join(example.split()[:2]) in " ".join(out.split()), name


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command"),
        (["index"], 2, "nothing to index"),
        (["index", "x", "--jobs", "0"], 2, "--jobs"),
        (["index", "x", "--unknown"], 2, "--unknown"),
        (["index", "/nowhere"], 3, "there is no /nowhere"),
        (["index", "--whole", "/nowhere"], 3, "there is no /nowhere"),
        (["calls", "f", "-w", "/nowhere"], 3, "sgltrace index SRC -o /nowhere"),
        (["calls"], 2, "FUNC"),
    ],
)
def test_errors_are_one_line(call, arguments, code, said):
    got, out, err = call(*arguments)
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("sgltrace: ") and said in err


def test_names_cannot_steer_the_terminal(call):
    assert call("index", "/no\x1b[2J\nwhere")[2] == "sgltrace: there is no /no\\x1b[2J where; " + (
        "name a folder, a wheel, an sdist, CHECKOUT@REVISION, or a requirement such as sglang==0.5.9\n"
    )


def test_version_help_and_nothing(call):
    code, out, _ = call("--version")
    assert (code, out.splitlines()[0]) == (0, "sgltrace 0.1.0")
    assert re.fullmatch(
        r"sgltrace\.index/1, sgltrace\.trace/1(?:, sgltrace\.\w+/1)*, records of version \d \(reads [\d and]+\)",
        out.splitlines()[1],
    )
    assert call("--help")[0] == 0
    code, out, err = call()
    assert (code, err) == (2, "") and "Usage: sgltrace" in out


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"schema": "sgltrace.index/0"}', "has the schema sgltrace.index/0"),
        (b'{"schema": "sgltrace.index/1", "source"', "is damaged"),
        (b'{"schema": "sgltrace.index/1"}', "is damaged"),
        (b'{"a": 1}', "is not an index of sgltrace"),
        (b"", "is damaged"),
        (b"\xff\xfe", "is damaged"),
    ],
)
def test_unusable_indexes_say_what_to_do(call, made, data, said):
    (made / "index.json").write_bytes(data)
    code, _, err = call("calls", "f", "-w", made)
    assert code == 3 and said in err and f"sgltrace index SRC -o {made}" in err and err.count("\n") == 1


def test_another_ones_folder_is_left_alone(call, tmp_path):
    source = write_tree(tmp_path / "src")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    code, _, err = call("index", source, "-o", tmp_path / "mine")
    assert code == 3 and "not a workspace" in err
    code, _, err = call("index", source, "-o", tmp_path / "mine/notes.txt")
    assert code == 3 and "is a file" in err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_stamp_never_vouches_for_another_index(made):
    space = Workspace(made)
    space.write_stamp(Stamp(index_key="k"))
    assert space.stamp().index_key == "k"
    (made / "index.json").write_bytes(b"{}")
    assert space.stamp() == Stamp()
    (made / "stamp.json").write_bytes(b"{")
    assert space.stamp() == Stamp()


def test_report_is_replaced_whole(made):
    space = Workspace(made)
    for text in ("one", "two"):
        finished = made / ".new" / "report"
        finished.mkdir(parents=True)
        (finished / "index.html").write_text(text)
        space.replace_report(finished)
        assert (made / "report/index.html").read_text() == text
        shutil.rmtree(made / ".new")


def test_index_bytes_do_not_depend_on_the_run():
    assert workspace.encode_index(small_index()) == workspace.encode_index(small_index())


def test_bugs_are_one_line_with_a_file(call, made, monkeypatch):
    monkeypatch.setattr(workspace, "load_index", lambda path: {}["missing"])
    code, out, err = call("calls", "f", "-w", made)
    assert (code, out, err.count("\n")) == (70, "", 1)
    details = Path(err.split("please report it with ")[1].split(" (")[0])
    assert "KeyError: 'missing'" in details.read_text()
    details.unlink()
    monkeypatch.setenv(cli.DEBUG_VARIABLE, "1")
    with pytest.raises(KeyError):
        call("calls", "f", "-w", made)


def test_interrupt_leaves_no_mess(call, made, monkeypatch):
    def interrupt(path: Path) -> Index:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal was lost")

    monkeypatch.setattr(workspace, "load_index", interrupt)
    code, out, err = call("calls", "f", "-w", made)
    assert (code, out, err.strip()) == (130, "", "")


def test_a_reader_that_leaves_is_no_error(made):
    command = [sys.executable, "-m", "sgltrace", "calls", "Loop.step", "-w", str(made)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_full_standard_output_is_named(made):
    command = [sys.executable, "-m", "sgltrace", "calls", "Loop.step", "-w", str(made)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "sgltrace: cannot use standard output: No space left on device\n")


def test_a_bug_on_a_full_disk_is_one_line_too(call, made, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workspace, "load_index", lambda path: {}["missing"])
    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    code, out, err = call("calls", "f", "-w", made)
    assert (code, out) == (70, "")
    assert err == (
        "sgltrace: this is a bug in sgltrace: KeyError: 'missing'; please report it with what SGLTRACE_DEBUG=1 shows\n"
    )


def test_help_has_the_exit_codes(call):
    assert "70 a bug in sgltrace" in " ".join(call("--help")[1].split())


def test_the_program_is_the_same_while_python_compiles_it(tmp_path, monkeypatch):
    module = tmp_path / "a.py"
    module.write_text("1")
    monkeypatch.setattr(tool, "_folders", lambda: [tmp_path])
    first = tool.tool_fingerprint()
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/a.cpython-311.pyc.140234").touch()  # as it is written, before it gets its name
    assert tool.tool_fingerprint() == first
    module.write_text("22")
    assert tool.tool_fingerprint() != first
