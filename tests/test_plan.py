"""The refactor as edits: derived from the engine, and proven by leaving them out of an off step that runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sgltrace.cli import run
from sgltrace.insight.answer import severity_of
from sgltrace.insight.plan import make_plan
from sgltrace.workspace import Workspace

ROOT = Path(__file__).parent.parent
TOY = ROOT / "fixtures/toysgl"
REFERENCE = json.loads((ROOT / "benchmarks/references/off_steps_toysgl.json").read_text("utf-8"))["left_out"]
OUTCOMES = {"raises": ("crash at once", "crash a step later"), "wrong": ("silent",), "leak": ("leak",)}
NO_GRAPHS = "no-graphs"


def indexed(folder: Path, source: Path):
    assert run(["index", str(source), "-o", str(folder / "work"), "--no-report", "--jobs", "1"]) == 0
    return Workspace.open(folder / "work").load_index()


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    shutil.copytree(TOY / "sglang", folder / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
    indexed(folder, folder / "sglang")
    return folder / "work"


@pytest.fixture(scope="module")
def index(workspace):
    return Workspace.open(workspace).load_index()


@pytest.mark.parametrize("path", ["v1", "v2"])
@pytest.mark.parametrize("design", ["A", "B", "C"])
def test_each_hard_point_is_in_one_item(index, path, design):
    made = make_plan(index, path, design)
    hard = [p.id for p in index.coupling_points if severity_of(p, path, design) == "hard"]
    assert sorted(hard) == sorted(point for item in made.items for point in item.points)
    assert len(made.items) <= 12


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_what_is_needed_comes_before(index, path):
    made = make_plan(index, path, "B")
    numbers = {item.id: item.number for item in made.items}
    assert [item.number for item in made.items] == list(range(1, len(made.items) + 1))
    for item in made.items:
        assert all(numbers[name] < item.number for name in item.after)
        assert set(item.why_after) == set(item.after)
    assert [numbers[name] for name in made.critical] == sorted(numbers[name] for name in made.critical)


def test_only_functions_of_the_path_are_named(index):
    paths = {function.id: function.paths for function in index.functions}
    for path in ("v1", "v2"):
        places = [place for item in make_plan(index, path, "B").items for place in item.functions]
        assert places
        assert all(path in paths[place.function] for place in places)


def said_of(made, field):
    return next(v for item in made.items for v in item.supply if v.field.rpartition(".")[2] == field)


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in REFERENCE
        if c["design"] == "A" and c["what"] not in (NO_GRAPHS, "newest-token") and c["outcome"] in OUTCOMES
    ],
    ids=lambda case: f"{case['path']} {case['what']}",
)
def test_leaving_a_value_out_does_what_the_plan_says(index, case):
    """The outcomes were seen: test_off_steps_toysgl runs each of them."""
    assert said_of(make_plan(index, case["path"], "A"), case["field"]).without in OUTCOMES[case["outcome"]]


def test_an_old_newest_token_gives_wrong_tokens_and_old_candidates_lose_acceptance(index):
    made = make_plan(index, "v2", "A")
    assert said_of(made, "bonus_tokens").stale == "silent"
    assert said_of(made, "topk_index").stale == "acceptance"


def test_strikes_come_in_the_order_of_a_turn(index):
    stages = [met.stage for met in index.met if met.path == "v2"]
    assert stages == sorted(stages, key=["schedule", "worker", "launch", "result"].index)
    assert {met.later for met in index.met if met.stage == "result"} == {True}
    assert not any(met.later for met in index.met if met.stage != "result")


def test_a_second_set_of_graphs_is_told_with_its_memory(index):
    made = make_plan(index, "v2", "B")
    runner = made.graphs[0]
    assert (runner.mode, runner.width) == ("DECODE", "1")
    assert "max_bs" in runner.memory
    assert "num_draft_tokens" not in runner.memory


def test_a_renamed_field_is_followed(tmp_path):
    shutil.copytree(TOY / "sglang", tmp_path / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (tmp_path / "sglang").rglob("*.py"):
        file.write_text(file.read_text("utf-8").replace("accept_lens", "kept_counts"), "utf-8")
    made = make_plan(indexed(tmp_path, tmp_path / "sglang"), "v2", "B")
    assert said_of(made, "kept_counts").value == "ones: one token for each request"


def test_the_command(workspace, capsys):
    capsys.readouterr()
    assert run(["plan", "-w", str(workspace), "--path", "v2", "--design", "B", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["path"], told["design"]) == ("v2", "B")
    wanted = {"id", "title", "points", "supply", "leave_alone", "functions", "after", "failure", "size", "test"}
    assert all(wanted <= set(item) for item in told["items"])
    assert all({"field", "shape", "value"} <= set(value) for item in told["items"] for value in item["supply"])
    assert {item["size"] for item in told["items"]} <= {"S", "M", "L"}
    assert run(["plan", "-w", str(workspace)]) == 0
    said = capsys.readouterr().out
    assert "critical path: 1 -> " in said
    assert "must exist in addition" in said


def test_a_configuration_cuts_it_down(workspace, capsys):
    capsys.readouterr()
    assert run(["plan", "-w", str(workspace), "--json", "--config", "eagle,no-cuda-graph,tp=1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["path"] == "v2"
    assert {"graphs", "decide-tensor-parallelism"}.isdisjoint(item["id"] for item in told["items"])
    assert told["left_out"]
    assert run(["plan", "-w", str(workspace), "--path", "v1", "--config", "eagle"]) == 2
    assert "takes path v2" in capsys.readouterr().err


def decode(*arguments: str) -> tuple[str, list[list[int]] | None]:
    command = [sys.executable, str(ROOT / "tests/toysgl_off_step.py"), *arguments]
    environment = os.environ | {"PYTHONPATH": str(TOY)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 0:
        return "", json.loads(done.stdout)
    return ("leak" if "KV slots leaked" in done.stderr else "crash"), None


@pytest.fixture(scope="module")
def plain():
    pytest.importorskip("torch")
    return decode("none")[1]


def words_of(item, path):
    """What an off step gets for an item, in the words of the program that takes it."""
    fields = {value.field.rpartition(".")[2] for value in item.supply if value.requirement == "required"}
    asked = [c["what"] for c in REFERENCE if c["path"] == path and c["design"] == "A"]
    named = [c["what"] for c in REFERENCE if c["path"] == path and c["design"] == "A" and c["field"] in fields]
    return [NO_GRAPHS] if item.id == "graphs" and NO_GRAPHS in asked else named


@pytest.mark.parametrize("path", ["v1", "v2"])
def test_an_off_step_of_all_items_works_and_without_one_fails_as_the_item_says(index, path, plain):
    assert decode(path) == ("", plain)
    for item in make_plan(index, path, "A").items:
        words = words_of(item, path)
        if (item.condition != "always" and item.id != "graphs") or not words:
            continue
        failed, tokens = decode(path, *words)
        seen = failed or ("none" if tokens == plain else "silent")
        assert seen == item.failure.partition(" ")[0], item.id
