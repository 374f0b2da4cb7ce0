"""What `compare` says of runs recorded on an H200, held against what the client measured, and off steps as judges."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from trace_edit import TRACES

from sgltrace.insight.compare_runs import compare_runs
from sgltrace.insight.figures import figures
from sgltrace.insight.join import join
from sgltrace.model import ContractField, Index, Place, Source
from sgltrace.runtime import aggregates, read_trace

CLIENT = json.loads((TRACES / "client.json").read_text())
SCHEDULER = "sglang.srt.managers.scheduler:Scheduler.run_batch"
WORKER = "sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.forward_batch_generation"


def rates(name: str) -> dict[int, float]:
    """Tokens a second by batch size, by the client: long answers less short ones, which take the prefill out."""
    found = {}
    for row in CLIENT[name]:
        pairs = list(pairwise(zip(row["tokens"], row["seconds"], strict=True)))[::2]
        tokens = sum(after[0] - before[0] for before, after in pairs)
        found[row["batch"]] = row["batch"] * tokens / sum(after[1] - before[1] for before, after in pairs)
    return found


def crossing(fast: dict[int, float], slow: dict[int, float]) -> float | None:
    """Where the client's own curves cross, the first one falling below the second."""
    ratios = [(batch, fast[batch] / slow[batch]) for batch in sorted(fast.keys() & slow.keys())]
    for (batch, above), (larger, below) in pairwise(ratios):
        if above >= 1 > below:
            return batch + (larger - batch) * math.log(above) / (math.log(above) - math.log(below))
    return None


@pytest.mark.parametrize("name", ["0512_standalone_v2", "0512_eagle3_v2", "0512_eagle3_v1"])
def test_the_crossing_is_the_clients(name):
    wanted = crossing(rates(name), rates("0512_base"))
    found = compare_runs([figures(TRACES / run, run) for run in (name, "0512_base")])
    if wanted is None:
        assert found.crossing is None and "slower" in found.switches[0].why_none
    else:
        assert found.crossing is not None and found.crossing.low < wanted < found.crossing.high
        assert found.switches[0].off_from == math.ceil(found.crossing.batch)


def test_speed_ups_are_the_clients_within_their_range():
    for name in ("0512_standalone_v2", "0512_eagle3_v2", "0512_eagle3_v1"):
        fast, slow = rates(name), rates("0512_base")
        for row in compare_runs([figures(TRACES / run, run) for run in (name, "0512_base")]).batch_sizes:
            told = row.runs[name].speed_up
            assert told is not None and told.ratio == pytest.approx(fast[row.batch] / slow[row.batch], rel=0.06)


def test_on_and_off_steps_of_a_release_are_told_apart_by_batch_size():
    rows = [r for r in aggregates(read_trace(TRACES / "0514_eagle3_v2_off4")) if "DECODE" in r.mode]
    assert {(row.batch, row.speculation) for row in rows} == {
        *((batch, "on") for batch in (1, 2, 3)),
        *((batch, "off") for batch in (4, 5, 6, 7, 8, 12)),
    }
    run = figures(TRACES / "0514_eagle3_v2_off4", "own")
    costs = compare_runs([run, figures(TRACES / "0514_base", "plain")]).switch_costs
    assert {cost.to for cost in costs} == {"on", "off"} and all(len(cost.after) == 4 for cost in costs)


@pytest.mark.parametrize(
    ("trace", "shape", "verdict"),
    [
        ("0514_eagle3_v2_off4", "(bs*num_draft_tokens,)", "confirmed"),
        ("0514_eagle3_v2_off4", "(bs*3,)", "refuted"),
        ("0514_eagle3_v2", "(bs*num_draft_tokens,)", "seen, not judged"),
        ("0514_base", "(bs,)", "confirmed"),
        ("0512_base", "(bs,)", "confirmed"),
    ],
)
def test_a_releases_own_off_steps_judge_the_contract(trace, shape, verdict):
    row = ContractField(path="v2", field="result.next_token_ids", shape=shape, dtype=None, stride=None,
                        requirement="required", off_step_value="", writers=[],
                        readers=[Place(function=SCHEDULER, line=1)])  # fmt: skip
    version = "0.5.14" if trace.startswith("0514") else "0.5.12.post1"
    source = Source(name="sglang", version=version, root="", kind="folder", requested="")
    index = Index(source=source, entry_points={"v1": None, "v2": WORKER}, functions=[], calls=[], unresolved=[],
                  contract=[row])  # fmt: skip
    run = join(read_trace(TRACES / trace), index, "a run")
    assert [evidence.verdict for evidence in run.contract] == [verdict]
    assert run.about["GPU"] == "NVIDIA H200" and "random" in run.about["weights"]
