"""The toy engine decodes for real: speculation changes its speed, never its tokens."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

TOYSGL = Path(__file__).parent.parent / "fixtures" / "toysgl"
TREE = ["--speculative-num-steps", "3", "--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "6"]
CHAIN = ["--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]
# Seed 3: some requests end by the stop token, in the middle of what a step accepted.
LOAD = ["--print-tokens", "--random-seed", "3", "--requests", "10", "--stagger", "2"]


def start(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "toysgl", *args],
        env=os.environ | {"PYTHONPATH": str(TOYSGL)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*args: str) -> tuple[int, list[dict[str, Any]], str]:
    process = start(*args)
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, [json.loads(line) for line in stdout.splitlines()], stderr


def tokens(outputs: list[dict[str, Any]]) -> list[list[int]]:
    return [output["output_ids"] for output in outputs]


@pytest.fixture(scope="module")
def plain() -> list[dict[str, Any]]:
    code, outputs, stderr = run("--path", "none", "--disable-overlap-schedule", "--batch", "1", *LOAD)
    assert code == 0, stderr
    return outputs


def test_the_load_has_requests_that_end_in_both_ways(plain):
    assert [output["rid"] for output in plain] == [f"req-{i}" for i in range(10)]
    assert {output["finished_reason"] for output in plain} == {"stop", "length"}
    assert len(set(map(tuple, tokens(plain)))) == 10


@pytest.mark.parametrize(
    "args",
    [
        ["--path", "none", "--batch", "8"],
        ["--path", "v1", "--batch", "1", *TREE, "--disable-cuda-graph"],
        ["--path", "v1", "--batch", "3", *CHAIN],
        ["--path", "v1", "--batch", "8", *TREE],
        ["--path", "v2", "--batch", "1"],
        ["--path", "v2", "--batch", "3", "--cuda-graph-max-bs", "2"],
        ["--path", "v2", "--batch", "8", "--tp", "2", "--rank-skew"],
    ],
    ids=" ".join,
)
def test_tokens_equal_those_of_plain_decoding(plain, args):
    code, outputs, stderr = run(*args, *LOAD)
    assert code == 0, stderr
    assert tokens(outputs) == tokens(plain)
    if "none" not in args:
        accepted = [output["spec_num_correct_drafts"] / max(1, output["spec_verify_ct"]) for output in outputs]
        assert max(accepted) > 1, "the draft is never right"
        assert min(accepted) < 1, "the draft is always right"


def test_steps_end_a_run_where_it_stands():
    code, outputs, stderr = run("--path", "v2", "--batch", "2", "--steps", "5", "--print-tokens")
    assert code == 0, stderr
    assert [output["finished_reason"] for output in outputs] == ["abort", "abort"]
    assert [output["spec_verify_ct"] for output in outputs] == [5, 5]


@pytest.mark.parametrize(("die", "code"), [("sigkill", 1), ("raise", -signal.SIGQUIT)])
def test_a_scheduler_that_dies_ends_the_engine(die, code):
    found, outputs, stderr = run("--path", "v1", "--batch", "2", "--die", die, "--die-step", "3")
    assert (found, outputs) == (code, [])
    assert "scheduler" in stderr.lower()


def scheduler_pid(engine: subprocess.Popen[str]) -> int:
    """The engine's spawned child; beside it there is the resource tracker of multiprocessing."""
    while True:
        assert engine.poll() is None
        for pid in Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split():
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="finds the child under /proc")
def test_a_signal_ends_engine_and_schedulers():
    engine = start("--path", "v2", "--forever")
    scheduler = scheduler_pid(engine)
    engine.send_signal(signal.SIGTERM)
    engine.communicate(timeout=60)
    assert engine.returncode == -signal.SIGTERM
    while runs(scheduler):  # a child that had barely started sees by itself that the engine is gone
        time.sleep(0.02)


def test_a_tree_on_the_overlapped_path_is_refused():
    code, _, stderr = run("--path", "v2", "--speculative-eagle-topk", "2")
    assert code == 2
    assert stderr.startswith("toysgl: overlap scheduling needs")
    assert len(stderr.splitlines()) == 1
