"""``sgltrace index`` from end to end, on our own small engine of SGLang's shape."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

TOY = Path(__file__).parent.parent / "fixtures/toysgl/sglang"
HEAVY = ("libcst", "networkx", "sympy", "jinja2", "rich.progress", "torch", "pygments", "zipfile")
PROGRAM = """
import sys
from sgltrace import cli
code = cli.run(sys.argv[2:])
print([name for name in sys.argv[1].split(",") if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with a copy of the engine as a checkout has it."""
    folder = tmp_path_factory.mktemp("home")
    shutil.copytree(TOY, folder / "repo/python/sglang", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def sgltrace(home: Path, *arguments: object, seed: str = "0") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; its standard error ends with the heavy modules that it imported."""
    environment = {**os.environ, "SGLTRACE_CACHE_DIR": str(home / "cache"), "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", PROGRAM, ",".join(HEAVY), *map(str, arguments)]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def first(home) -> subprocess.CompletedProcess[str]:
    return sgltrace(home, "index", "repo")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_writes_a_workspace_and_says_what_it_took(home, first):
    assert first.returncode == 0, first.stderr
    for said in ("package sglang in ", "path v1", "path v2", "call edges", "unresolved", ".sgltrace/report/index.html"):
        assert said in first.stdout
    index = json.loads((home / ".sgltrace/index.json").read_text())
    assert index["schema"] == "sgltrace.index/1"
    assert (index["source"]["root"], index["source"]["kind"]) == ("repo/python", "folder")
    assert all(function["file"].startswith("sglang/") for function in index["functions"])
    assert (home / ".sgltrace/report/index.html").is_file()


def test_an_unchanged_source_is_not_read_again_and_nothing_heavy_is_imported(home, first):
    before = content(home / ".sgltrace")
    again = sgltrace(home, "index", "repo")
    assert again.returncode == 0 and "unchanged" in again.stdout
    assert again.stderr == "[]\n"
    assert content(home / ".sgltrace") == before
    assert set(again.stdout.splitlines()) > set(first.stdout.splitlines()) - {""}


def test_the_same_input_gives_the_same_bytes(home, first):
    other = sgltrace(home, "index", "repo", "-o", "other", "--jobs", 1, seed="1")
    assert other.returncode == 0, other.stderr
    ours, theirs = content(home / ".sgltrace"), content(home / "other")
    for files in (ours, theirs):
        files.pop("stamp.json")
    assert ours == theirs


def test_json_summary(home, first):
    answer = json.loads(sgltrace(home, "index", "repo", "--json").stdout)
    assert answer["unchanged"] is True
    assert answer["report"] == ".sgltrace/report/index.html"
    assert answer["functions"] > 100 and sum(answer["calls_by_kind"].values()) == answer["calls"]
    assert set(answer["entry_points"]) == {"v1", "v2"}


def test_queries_answer_from_the_workspace(home, first):
    path = sgltrace(home, "path", "run_scheduler_process", "EAGLEWorkerV2.verify", "--json")
    hops = json.loads(path.stdout)["path"]
    assert hops[0]["caller"].endswith(":run_scheduler_process")
    assert hops[-1]["callee"].endswith(":EAGLEWorkerV2.verify")
    assert all(hop["callee"] == following["caller"] for hop, following in pairwise(hops))
    assert "EAGLEWorkerV2.forward_batch_generation" in sgltrace(home, "callers", "EAGLEWorkerV2.verify").stdout


def test_report_again_elsewhere_and_never_over_anothers_folder(home, first):
    done = sgltrace(home, "report", "--output", "elsewhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{(home / 'elsewhere/index.html').resolve()}\n"
    assert content(home / "elsewhere") == content(home / ".sgltrace/report")
    again = sgltrace(home, "report", "--output", "elsewhere")
    assert again.returncode == 3 and "not an empty folder" in again.stderr


def test_whole_reads_what_no_step_reaches(home, first):
    (home / "repo/python/sglang/lonely.py").write_text("def nobody_calls_this():\n    pass\n")
    found = {}
    for options in ((), ("--whole",), ("--whole", "srt"), ("--whole", "lonely")):
        done = sgltrace(home, "index", "repo", "-o", "whole", "--no-report", *options)
        assert done.returncode == 0, done.stderr
        found[options] = "nobody_calls_this" in (home / "whole/index.json").read_text()
    assert list(found.values()) == [False, True, False, True]
    assert not (home / "whole/report").exists()
    (home / "repo/python/sglang/lonely.py").unlink()


def test_a_change_is_seen_and_a_file_that_does_not_parse_is_told(home, first):
    module = home / "repo/python/sglang/srt/mem_cache/chunk_cache.py"
    text = module.read_text()
    try:
        module.write_text(text + "\nprint 'a statement of Python 2'\n")
        done = sgltrace(home, "index", "repo", "-o", "changed", "--no-report")
    finally:
        module.write_text(text)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^skipped +sglang/srt/mem_cache/chunk_cache\.py: ", done.stdout, re.MULTILINE)
    assert "EAGLEWorkerV2.verify" in (home / "changed/index.json").read_text()


def test_sglang_without_a_speculative_worker_is_one_line(home, tmp_path):
    for folder in ("srt/managers", "srt/layers"):
        (tmp_path / "sglang" / folder).mkdir(parents=True)
    (tmp_path / "sglang/srt/managers/scheduler.py").write_text("class Scheduler:\n    pass\n")
    done = sgltrace(home, "index", tmp_path, "-o", tmp_path / "out")
    assert done.returncode == 3
    said = done.stderr.splitlines()[0]
    assert said.startswith("sgltrace: ") and "specula" in said
    assert not (tmp_path / "out").exists()


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


def test_a_disk_that_takes_no_more_is_named_and_nothing_is_lost(home, first):
    before = content(home / ".sgltrace")

    def on_a_full_disk(*arguments: object) -> tuple[int, str]:
        environment = {**os.environ, "SGLTRACE_CACHE_DIR": str(home / "full"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "sgltrace", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, check=False, preexec_fn=_small_files
        )
        return done.returncode, done.stderr

    assert on_a_full_disk("index", "repo", "-o", "new") == (3, "sgltrace: cannot use new/index.json: File too large\n")
    code, said = on_a_full_disk("report")
    assert (code, said.count("\n")) == (3, 1) and re.search(r"cannot use \.sgltrace/\.report-\S+: File too large", said)
    assert content(home / ".sgltrace") == before


def test_nothing_of_a_tree_is_run(home, tmp_path):
    """Not when it is read, and not because it lies in the working folder and has the name of a module of ours."""
    tree = tmp_path / "tree"
    shutil.copytree(home / "repo/python/sglang", tree / "sglang")
    run = f"open({str(tmp_path / 'ran')!r}, 'a').write(__file__)\n"
    for module in [*tree.rglob("*.py")]:
        module.write_text(
            f"{run}{module.read_text()}" if "__future__" not in module.read_text() else module.read_text()
        )
    (tree / "sglang/srt/__init__.py").write_text(run)
    for name in ("sitecustomize", "usercustomize", "conftest", "setup", "json", "msgspec", "typer", "libcst", "ast"):
        (tree / f"{name}.py").write_text(run)
    (tree / "evil.pth").write_text(f"import os; {run}")
    command = [Path(sys.executable).with_name("sgltrace"), "index", ".", "-o", tmp_path / "out", "--no-report"]
    environment = {**os.environ, "SGLTRACE_CACHE_DIR": str(home / "cache")}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_strangers_workspace_leads_nowhere_else(home, first, tmp_path):
    """Its report may be a link, its index may name any file, and its stamp any source."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    shutil.copytree(home / ".sgltrace", tmp_path / "ws")
    shutil.rmtree(tmp_path / "ws/report")
    (tmp_path / "ws/report").symlink_to(mine)
    for file, text in (("index.json", ""), ("stamp.json", "")):
        text = (tmp_path / "ws" / file).read_text().replace("sglang/srt/managers/", "sglang/../../../../mine/")
        (tmp_path / "ws" / file).write_text(text)
    (mine / "scheduler.py").write_text("secret = 1\n" * 400)
    done = sgltrace(home, "report", "-w", tmp_path / "ws")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in mine.iterdir()} == {"notes.txt", "scheduler.py"}
    assert not (tmp_path / "ws/report").is_symlink()
    pages = [path.read_text(encoding="utf-8", errors="replace") for path in (tmp_path / "ws/report").rglob("*.*")]
    assert pages and not any("secret = 1" in page for page in pages)


def test_a_fork_under_another_name_beside_the_original(home, tmp_path):
    for name in ("sglang", "myfork"):
        shutil.copytree(home / "repo/python/sglang", tmp_path / "repo" / name)
    for module in (tmp_path / "repo/myfork").rglob("*.py"):
        module.write_text(re.sub(r"\bsglang\b", "myfork", module.read_text()))
    done = sgltrace(home, "index", tmp_path / "repo", "--package", "myfork", "-o", tmp_path / "ws", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["entry_points"] == {
        "v1": "myfork.srt.speculative.eagle_worker:EAGLEWorker.forward_batch_generation",
        "v2": "myfork.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.forward_batch_generation",
    }
    done = sgltrace(home, "report", "-w", tmp_path / "ws")  # it opens the same package again
    assert done.returncode == 0 and "no source text" not in done.stderr
    done = sgltrace(home, "index", tmp_path / "repo", "--package", "spoon", "-o", tmp_path / "ws")
    assert done.returncode == 3 and "has no package spoon" in done.stderr
