"""Answers cut down to one configuration: what applies, what only to others, and what is not known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sgltrace.cli import run
from sgltrace.configuration import Configuration
from sgltrace.insight.configured import ALWAYS, OTHERS, UNKNOWN, YOURS, Configured
from sgltrace.insight.reach import Reach, leaves_of
from sgltrace.model import CallEdge, CallSite, Conditions, Function, Guard, Index, Made, Source
from sgltrace.workspace import Workspace

TOY = Path(__file__).parent.parent / "fixtures/toysgl/sglang"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Path:
    """The toy engine, indexed; what it parallelises by is the number of ranks."""
    folder = tmp_path_factory.mktemp("configured")
    shutil.copytree(TOY, folder / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
    assert run(["index", str(folder / "sglang"), "-o", str(folder / "work"), "--no-report", "--jobs", "1"]) == 0
    return folder / "work"


def states(workspace, capsys, config, *more):
    capsys.readouterr()
    code = run(["points", "-w", str(workspace), "--json", "--config", config, *more])
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    return told, {point["id"]: point["applies"] for point in told["coupling_points"]}


def of_condition(told, condition):
    return [p["applies"]["state"] for p in told["coupling_points"] if p["condition"] == condition]


def test_every_point_has_a_state_and_none_is_dropped(workspace, capsys):
    every = len(Workspace.open(workspace).load_index().coupling_points)
    told, found = states(workspace, capsys, "eagle,topk=1")
    assert len(found) == every
    assert {a["state"] for a in found.values()} <= {ALWAYS, YOURS, OTHERS, UNKNOWN}
    assert told["configuration"]["path"] == "v2"
    assert told["configuration"]["values"]["speculative_eagle_topk"] == 1


def test_graphs_switched_off_leave_their_points_to_others(workspace, capsys):
    condition = "CUDA graph enabled"
    assert set(of_condition(states(workspace, capsys, "eagle")[0], condition)) == {YOURS}
    assert set(of_condition(states(workspace, capsys, "eagle,no-cuda-graph")[0], condition)) == {OTHERS}


def test_ranks_that_must_agree_concern_several_ranks(workspace, capsys):
    condition = "tensor parallelism"
    assert of_condition(states(workspace, capsys, "eagle,tp=1")[0], condition) == [OTHERS]
    assert of_condition(states(workspace, capsys, "eagle,tp=2")[0], condition) == [YOURS]


def test_without_overlap_the_other_path_is_taken(workspace, capsys):
    told, found = states(workspace, capsys, "eagle,no-overlap")
    assert told["configuration"]["path"] == "v1"
    only_v2 = [p for p in told["coupling_points"] if p["severity"]["v1"] is None]
    assert only_v2
    assert {found[p["id"]]["state"] for p in only_v2} == {OTHERS}


def test_what_requests_decide_is_not_known(workspace, capsys):
    _, found = states(workspace, capsys, "eagle")
    assert any(a["state"] == UNKNOWN and "requests decide it" in a["why"] for a in found.values())


def test_a_launch_command_and_a_saved_explanation_say_the_same(workspace, capsys, tmp_path):
    words = "--speculative-algorithm EAGLE --disable-cuda-graph"
    told, found = states(workspace, capsys, f"python -m sglang.launch_server {words}")
    source = Workspace.open(workspace).stamp().requested
    capsys.readouterr()
    assert run(["explain", source, "--json", "--", "python", "-m", "sglang.launch_server", *words.split()]) == 0
    saved = tmp_path / "mine.json"
    saved.write_text(capsys.readouterr().out)
    again, same = states(workspace, capsys, str(saved))
    assert found == same
    assert told["configuration"]["values"] == again["configuration"]["values"]


def test_places_that_do_not_run_are_left_out(workspace, capsys):
    whole = {p.id: p for p in Workspace.open(workspace).load_index().coupling_points}
    told, _ = states(workspace, capsys, "eagle,no-overlap")
    for point in told["coupling_points"]:
        for side in ("producers", "consumers"):
            every = {(p.function, p.line) for p in getattr(whole[point["id"]], side)}
            assert {(p["function"], p["line"]) for p in point[side]} <= every
    fewer = sum(len(p["consumers"]) for p in told["coupling_points"])
    assert fewer < sum(len(p.consumers) for p in whole.values())


def test_the_contract_and_the_index_take_it_too(workspace, capsys):
    capsys.readouterr()
    assert run(["contract", "-w", str(workspace), "--json", "--config", "eagle"]) == 0
    rows = json.loads(capsys.readouterr().out)["contract"]
    assert {row["applies"]["state"] for row in rows if row["path"] == "v1"} == {OTHERS}
    source = Workspace.open(workspace).stamp().requested
    arguments = ["index", source, "-o", str(workspace), "--no-report"]
    assert run([*arguments, "--json", "--config", "eagle,tp=1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {answer["path"] for answer in told["answers"]} == {"v2"}
    assert {answer["verdict"] for answer in told["answers"]} <= {"no", "slower", "yes", "not known"}
    assert run(arguments) == 0
    assert "v2, design B" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "eagle,nothing=3"], "no such option"),
        (["--gpu", "h200"], "give that, too"),
        (["--config", "eagle,topk=8"], "refuses such a server"),
        (["--config", "python -m sglang.launch_server --speculative-algorithm NOPE"], "refuses the command"),
        (["--config", "missing.json"], "name a file of"),
    ],
)
def test_a_configuration_that_is_none_is_an_error_of_one_line(workspace, capsys, arguments, said):
    assert run(["points", "-w", str(workspace), *arguments]) in (2, 3)
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1


# --- conditions over the call graph ---


def index_of(edges, meanings=None, made=None):
    names = sorted({name for edge in edges for name in edge[:2]})
    return Index(
        source=Source(name="x", version=None, root="", kind="folder", requested=""),
        entry_points={},
        functions=[Function(id=n, file="f.py", line=1, end_line=2, phase=[], paths=[]) for n in names],
        calls=[
            CallEdge(caller=a, callee=b, kind="direct", confidence=1, sites=[CallSite(1, [Guard(text, holds, 1)])])
            for a, b, text, holds in edges
        ],
        unresolved=[],
        conditions=Conditions(meanings=meanings or {}, arguments=["ranks", "graphs"], made=made or {}),
    )


def reach(index, **values):
    return Reach(index, Configuration(values=values, meanings=index.conditions.meanings))


def test_a_call_behind_a_condition_that_does_not_hold_is_not_made():
    index = index_of([("m:a", "m:b", "self.args.ranks > 1", True), ("m:b", "m:c", "True", True)])
    assert reach(index, ranks=1).may == {"m:a"}
    assert reach(index, ranks=2).must == {"m:a", "m:b", "m:c"}
    assert reach(index).may == {"m:a", "m:b", "m:c"}
    assert reach(index).must == {"m:a"}


def test_what_the_configuration_does_not_decide_stands_in_nobodys_way():
    index = index_of([("m:a", "m:b", "batch.is_empty()", True)])
    assert reach(index).must == {"m:a", "m:b"}


def test_a_name_stands_for_what_the_source_says():
    meanings = {"several": ["needs_several(args)"], "needs_several()": ["args.ranks > 1 or args.graphs"]}
    index = index_of([("m:a", "m:b", "self.several", True)], meanings)
    assert reach(index, ranks=1, graphs=False).may == {"m:a"}
    assert reach(index, ranks=1, graphs=True).must == {"m:a", "m:b"}


def test_methods_of_a_class_run_where_an_object_of_it_is_made():
    made = {"m:C": [Made("m:make", 1, [Guard("graphs", True, 1)])]}
    edges = [("m:a", "m:C.step", "True", True), ("m:a", "m:make", "True", True)]
    index = index_of(edges, made=made)
    assert "m:C.step" not in reach(index, graphs=False).may
    assert "m:C.step" in reach(index, graphs=True).must


def test_the_names_that_a_condition_asks():
    assert leaves_of("self.args.ranks > 1 and not batch.mode.is_idle()") == {"ranks", "is_idle()"}


def test_the_words_of_a_condition():
    index = index_of([])
    made = Configured(index, Configuration(values={"disable_cuda_graph": True}))
    assert made.words("CUDA graph enabled") == (False, "CUDA graph enabled: disable_cuda_graph is True")
    assert made.words("always") == (True, "")
    assert made.words("where the batch carries no spec_info") == (True, "")
    assert made.words("grammar in use")[0] is None
    assert made.words("a condition that nobody knows") == (None, "a condition that nobody knows")
