"""An off step forced on the toy engine: the ladder, ablation and what they say of each point."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sgltrace.runtime.probe.pattern import Pattern

ROOT = Path(__file__).parents[1]
TOYSGL = ROOT / "fixtures" / "toysgl"
LOAD = ["--batch", "4", "--requests", "9", "--stagger", "5", "--new-tokens", "24"]


@pytest.mark.parametrize(
    ("text", "off"),
    [
        ("never", []),
        ("always", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("alternate", [2, 4, 6, 8]),
        ("2 on 2 off", [3, 4, 7, 8]),
        ("off after 6", [7, 8]),
        ("off 2 then on", [1, 2]),
        ("batch >= 4", [4, 5, 6, 7, 8]),
    ],
)
def test_a_pattern_says_which_steps_are_off(text: str, off: list[int]):
    pattern = Pattern(text)
    assert [step for step in range(1, 9) if pattern.is_off(step, batch=step)] == off


def test_a_random_pattern_is_off_about_as_often_as_it_says():
    pattern = Pattern("random 50")
    assert 400 < sum(pattern.is_off(step, 1) for step in range(1000)) < 600


def whatif(*arguments: str, cwd: Path, load: list[str] = LOAD) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sgltrace", "whatif", *arguments]
    return subprocess.run(
        [*command, "--", sys.executable, "-m", "toysgl", *load],
        env=os.environ | {"PYTHONPATH": str(TOYSGL)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=1500,
    )


@pytest.fixture(scope="module")
def forced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ladder and ablation on v2."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("whatif")
    load = ["--path", "v2", *LOAD]
    asked = ["-o", str(folder / "out"), "--json", "--also", "alternate", "--passes", "8"]
    done = whatif(*asked, cwd=folder, load=load)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def outcomes(forced: dict[str, Any]) -> dict[str, str]:
    return {t["bridge"].partition(":")[2] or t["bridge"]: t["outcome"] for t in forced["tried"]}


def test_the_ladder_ends_with_on_and_off_steps_mixing(forced: dict[str, Any]):
    *struck, last = forced["rungs"]
    assert last["strike"] is None
    assert all(rung["strike"] for rung in struck)
    assert forced["ends_clean"]
    assert [p["outcome"] for p in forced["patterns"]] == ["clean", "clean"]


def test_each_strike_of_the_ladder_that_a_point_explains_names_it(forced: dict[str, Any]):
    named = {r["strike"]["point"] for r in forced["rungs"] if r["strike"]}
    # the target's graphs, the relay, the candidates, the stride, the lengths of each result, the draft's KV
    for kind in ("cuda-graph", "future-map", "draft-state", "result-format", "kv-alloc", "draft-kv"):
        assert any(point and point.startswith(kind) for point in named), kind


def test_ablation_tells_what_each_bridge_was_for(forced: dict[str, Any]):
    seen = outcomes(forced)
    for crashing in ("eager", "input_ids", "out_cache_loc", "next_draft_input", "bonus_tokens", "new_seq_lens"):
        assert seen[crashing].startswith("crashes"), crashing
    assert seen["accept_lens"].startswith("crashes")
    assert seen["speculative_num_draft_tokens"].startswith("crashes")
    assert seen["next_token_ids"] == "silently wrong"
    assert seen["seq_lens"] == "silently wrong"
    assert seen["extend"] == "loses acceptance"
    assert {seen["topk_p"], seen["topk_index"], seen["hidden_states"]} == {"shadowed"}
    assert seen["verify_done"] == "not exercised here"
    # nothing of a plain decode on the CPU reads these
    assert seen["seq_lens_cpu"] == seen["seq_lens_sum"] == "no effect"


def test_what_was_said_of_a_point_stands_beside_what_was_seen(forced: dict[str, Any]):
    standing = {v["point"]: v["standing"] for v in forced["verdicts"]}
    assert standing["result-format-stride-next-token-ids"] == "confirmed by experiment"
    graphs = {v["point"] for v in forced["verdicts"] if v["bridge"] == "eager"}
    assert graphs
    assert {standing[point] for point in graphs} == {"confirmed by experiment"}
    assert not standing["stream-order-verify-eagledraftinput"]  # a race that nobody provokes
    idle = [v for v in forced["verdicts"] if v["outcome"] == "not exercised here"]
    assert all(v["detail"] and not v["standing"] for v in idle)


def test_a_counter_that_the_path_keeps_up_itself_is_left_alone(forced: dict[str, Any]):
    assert not [b for b in forced["bridges"] if "kv_committed_len" in b["id"]]


def test_a_server_is_refused_without_throw_away(tmp_path: Path):
    command = [sys.executable, "-m", "sgltrace", "whatif", "--", sys.executable, "-m", "sglang.launch_server"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--throw-away" in done.stderr


def test_a_command_of_another_path_is_told(tmp_path: Path):
    pytest.importorskip("torch")
    done = whatif("-o", str(tmp_path / "out"), cwd=tmp_path, load=["--path", "none", "--new-tokens", "4"])
    assert done.returncode == 3
    assert "no step of" in done.stderr
    assert len(done.stderr.strip().splitlines()[-1]) < 300


def test_design_a_cannot_be_forced_and_says_why(tmp_path: Path):
    done = whatif("--design", "A", "-o", str(tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 3
    assert "design A" in done.stderr


def test_v1_is_refused_with_what_is_lacking(tmp_path: Path):
    pytest.importorskip("torch")
    done = whatif("--path", "v1", "-o", str(tmp_path / "out"), cwd=tmp_path, load=["--path", "v1", *LOAD])
    assert done.returncode == 3
    assert "the contract names no field of the result" in done.stderr
