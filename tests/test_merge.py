"""Traces of the nodes of one run, put together: two ranks of a real run, taken apart as if each had its own machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from test_verify import EDITS
from trace_edit import TRACES, Editor

from sgltrace.cli import run as sgltrace
from sgltrace.errors import UsageError
from sgltrace.runtime import aggregates, read_trace, steps
from sgltrace.runtime.merge import merge
from sgltrace.runtime.probe import wire

LATER_NS = 7_000_000_000


def nodes(folder: Path, source: Path | None = None, wall_ns: int = 0) -> tuple[Path, Path]:
    """The two ranks in a folder each; the second one's machine has been up seven seconds longer."""
    found = []
    for number, name in enumerate(sorted({p.name.split(".")[0] for p in TRACES.glob("eagle3_v2_tp2/*.seg")})):
        place = folder / f"node{number}"
        shutil.copytree(source or TRACES / "eagle3_v2_tp2", place)
        for path in place.iterdir():
            if path.name[:1].isdigit() and not path.name.startswith(f"{name}."):
                path.unlink()
        found.append(place)
    editor = object.__new__(Editor)
    editor.folder, editor.path = found[1], next(found[1].glob("*.seg"))
    editor.head = editor.path.read_bytes()[: wire.SEGMENT_SIZE]
    from trace_edit import records

    editor.records = list(records(editor.path))
    for record in editor.records:
        record.time_ns += LATER_NS
    editor.save()
    run = json.loads((found[1] / "run.json").read_text())
    run["monotonic_ns"] += LATER_NS
    run["started_ns"] += wall_ns
    (found[1] / "run.json").write_text(json.dumps(run))
    return found[0], found[1]


def test_merged_ranks_are_those_of_the_run(tmp_path):
    whole = read_trace(TRACES / "eagle3_v2_tp2")
    found = merge(nodes(tmp_path), tmp_path / "merged")
    assert set(found.ranks) == {"tp0", "tp1"} and found.matched == 30 and not found.alone and not found.disagreements
    assert [row.steps for row in aggregates(read_trace(tmp_path / "merged"))] == [
        row.steps for row in aggregates(whole)
    ]
    second = found.nodes[1]
    # The ranks themselves begin a step some hundred microseconds apart.
    assert second.matched == 30 and abs(second.shift_ns + LATER_NS) < 5_000_000
    starts = {}
    for process in read_trace(tmp_path / "merged").recording():
        starts[process.rank] = {s.number: s.start_ns for s in steps(read_trace(tmp_path / "merged"), process) if s.ran}
    assert starts["tp0"].keys() == starts["tp1"].keys()


def test_times_of_the_second_node_are_of_the_first_ones_clock(tmp_path):
    merge(nodes(tmp_path), tmp_path / "merged")
    trace = read_trace(tmp_path / "merged")
    first, second = ([s.start_ns for s in steps(trace, p) if s.ran][5:] for p in trace.recording())
    assert max(abs(a - b) for a, b in zip(first, second, strict=True)) < 100_000_000


def test_wall_clocks_that_differ_are_told(tmp_path):
    found = merge(nodes(tmp_path, wall_ns=40_000_000), tmp_path / "merged")
    (note,) = [text for text in found.notes if "wall clock" in text]
    assert "is -4" in note and "30 steps" in note
    other = tmp_path / "other"
    other.mkdir()
    found = merge(nodes(other), tmp_path / "merged too")
    assert not [text for text in found.notes if "wall clock is -4" in text]


def test_ranks_that_disagree_are_told_with_the_step(tmp_path, capsys):
    _, _, edit = EDITS["ranks with other batches"]
    editor = Editor(tmp_path / "edited", "eagle3_v2_tp2")
    edit(editor)
    parts = nodes(tmp_path, editor.save())
    assert sgltrace(["merge", *map(str, parts), "-o", str(tmp_path / "merged"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (9, "batch size") in [(d["step"], d["what"]) for d in told["disagreements"]]
    assert sgltrace(["merge", *map(str, parts), "-o", str(tmp_path / "again")]) == 0
    assert "ranks disagree in step 9, batch size: tp0 5, tp1" in capsys.readouterr().out


def test_what_is_not_one_run_is_refused(tmp_path):
    first, second = nodes(tmp_path)
    with pytest.raises(UsageError, match="two or more nodes"):
        merge([first], tmp_path / "merged")
    with pytest.raises(UsageError, match="exists"):
        merge([first, second], first)
    plan = json.loads((second / "plan.json").read_text())
    plan["sites"] = plan["sites"][1:]
    (second / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(UsageError, match="other sites"):
        merge([first, second], tmp_path / "merged")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node0", "node1"]


def test_two_processes_of_one_rank_stay_two(tmp_path):
    first, second = nodes(tmp_path)
    for path in second.glob("*.json"):
        if path.name[:1].isdigit():
            info = json.loads(path.read_text())
            info["identity"]["tp_rank"] = 0
            path.write_text(json.dumps(info))
    found = merge([first, second], tmp_path / "merged")
    assert len(found.ranks) == 2 and all(rank.startswith("tp0 ") for rank in found.ranks)
