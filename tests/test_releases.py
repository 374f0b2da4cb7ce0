"""Real releases from the package registry, from one end to the other.

Where ``SGLTRACE_REFERENCE`` names a folder of hand-read references, the scores that the project holds itself to are
checked against them as well.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
WORKERS = {
    "v1": "sglang.srt.speculative.eagle_worker:EAGLEWorker",
    "v2": "sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2",
}


@pytest.fixture(scope="session", params=["0.5.9", "0.5.12.post1"])
def indexed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A release's version, its workspace, and its index as JSON."""
    workspace = tmp_path_factory.mktemp("releases") / request.param
    run = sgltrace("index", f"sglang=={request.param}", "-o", workspace)
    assert run.returncode == 0, run.stderr
    return request.param, workspace, json.loads((workspace / "index.json").read_bytes())


def sgltrace(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sgltrace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_entry_points_are_the_workers_steps(indexed):
    version, _, index = indexed
    assert index["source"]["version"] == version
    for path, worker in WORKERS.items():
        assert index["entry_points"][path] == f"{worker}.forward_batch_generation"
    assert len(index["workers"]) >= 6
    assert index["skipped"] == []


def test_the_graph_reaches_from_the_event_loop_into_the_draft(indexed):
    _, workspace, _ = indexed
    found = sgltrace(
        "path", "Scheduler.event_loop_overlap", "EagleDraftWorker.draft_forward", "-w", workspace, "--json"
    )
    assert found.returncode == 0, found.stderr
    assert "EAGLEWorkerV2.forward_batch_generation" in found.stdout


def test_coupling_points_are_a_readable_number_and_have_both_ends(indexed):
    _, _, index = indexed
    functions = {function["id"] for function in index["functions"]}
    points = index["coupling_points"]
    assert 40 <= len(points) <= 100
    assert all(point["producers"] and point["consumers"] for point in points)
    known = [p["function"] in functions for point in points for p in point["producers"] + point["consumers"]]
    assert sum(known) >= 0.9 * len(known)
    assert {p["severity"]["v2"] for p in points} >= {"hard", "soft", "none"}


def test_the_contract_of_v2(indexed):
    _, _, index = indexed
    rows = {row["field"]: row for row in index["contract"] if row["path"] == "v2"}
    assert rows["GenerationBatchResult.next_token_ids"]["shape"] == "(bs*num_draft_tokens,)"
    assert rows["GenerationBatchResult.accept_lens"]["shape"] == "(bs,)"
    assert "ones" in rows["GenerationBatchResult.accept_lens"]["off_step_value"]


def test_nothing_is_done_twice(indexed):
    version, workspace, _ = indexed
    before = (workspace / "index.json").stat().st_mtime_ns
    again = sgltrace("index", f"sglang=={version}", "-o", workspace, "--json")
    assert json.loads(again.stdout)["unchanged"] is True
    assert (workspace / "index.json").stat().st_mtime_ns == before


def test_scores_against_hand_read_references(indexed):
    version, workspace, _ = indexed
    folder = os.environ.get("SGLTRACE_REFERENCE")
    if not folder:
        pytest.skip("SGLTRACE_REFERENCE names no folder of references")
    index = workspace / "index.json"
    if version == "0.5.9":
        assert score("call_graph_recall.py", index, folder, "call_edges_v2_0.5.9.json", r"recall ([\d.]+)") >= 0.97
        coupling = "coupling_points_0.5.9.json"
        assert score("coupling_recall.py", index, folder, coupling, r"hard +found +\d+ of +\d+ +([\d.]+)") >= 0.9
        assert score("coupling_recall.py", index, folder, coupling, r"soft +found +\d+ of +\d+ +([\d.]+)") >= 0.75
        assert score("coupling_recall.py", index, folder, coupling, r"right: .* ([\d.]+)") >= 0.8
        assert score("coupling_recall.py", index, folder, coupling, r"decoys reported hard: (\d+)") == 0
    else:
        observed = "observed_calls_v2_0.5.12.post1.json"
        assert score("call_graph_recall.py", index, folder, observed, r"recall ([\d.]+)") >= 0.95


def score(benchmark: str, index: Path, folder: str, reference: str, pattern: str) -> float:
    command = [sys.executable, BENCHMARKS / benchmark, index, Path(folder) / reference]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])
