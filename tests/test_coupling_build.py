"""The off steps that a release has, and how the points of rules are built."""

from __future__ import annotations

from coupling_support import universe

from sgltrace.coupling.offsteps import off_steps
from sgltrace.coupling.point import PLACES, Finding, Site, build
from sgltrace.coupling.rule import Example

V2 = {
    "v2": """
        class EAGLEWorkerV2:
            def forward_batch_generation(self, batch: ScheduleBatch):
                if self.speculative_num_steps == 0:
                    return self.trivial(batch)
                draft = EagleDraftInput(topk_p=torch.empty((0, self.topk)), verified_id=torch.empty((0,)))
                return GenerationBatchResult(
                    next_token_ids=self.predict, accept_lens=self.lens, next_draft_input=draft
                )

            def propose(self, batch: ScheduleBatch):
                return batch.spec_info.topk_p, batch.spec_info.verified_id
    """,
    "scheduler": """
        class Scheduler:
            def run_batch(self, batch: ScheduleBatch):
                result: GenerationBatchResult = self.model_worker.forward_batch_generation(batch)
                batch.spec_info = result.next_draft_input
                stride = self.draft_worker.speculative_num_draft_tokens
                tokens = result.next_token_ids.tolist()
                return [tokens[i * stride : i * stride + n] for i, n in enumerate(result.accept_lens)]
    """,
    "start": """
        class ServerArgs:
            def adaptive(self):
                if self.speculative_adaptive:
                    if why := adaptive_refused(self):
                        raise ValueError(why)

        def adaptive_refused(server_args: ServerArgs):
            if server_args.speculative_eagle_topk > 1:
                return "topk must be 1"
            return None
    """,
}


def test_a_test_that_asks_for_more_is_told_with_the_off_step_it_narrows():
    more = "if self.speculative_num_steps == 0:", "if self.speculative_num_steps == 0 and self.skip:"
    step = V2["v2"].replace(more[0], f"{more[1]}\n                    self.left_out()\n                {more[0]}")
    found = [o for o in off_steps(universe(Example({**V2, "v2": step}))) if o.path == "v2"]
    assert len(found) == 1 and found[0].what.startswith(
        "runs without draft steps where self.speculative_num_steps == 0;"
    )
    assert found[0].what.endswith("on self.speculative_num_steps == 0 and self.skip")


def test_off_step_of_a_release_is_recognised_with_its_gates():
    [step] = [o for o in off_steps(universe(Example(V2))) if o.path == "v2"]
    assert step.function == "v2:EAGLEWorkerV2.forward_batch_generation"
    assert [gate.what for gate in step.gates] == [
        "refused where server_args.speculative_eagle_topk > 1: topk must be 1"
    ]


def test_a_point_names_few_functions_and_the_heaviest():
    parts = {"scheduler": "\n".join(f"def f{n}():\n    pass\n" for n in range(40)), "worker": "def w():\n    pass\n"}
    made = universe(Example(parts))
    finding = Finding(
        kind="kv_alloc",
        title="t",
        producers=[Site(f"scheduler:f{n}", 1, "x", n) for n in range(40)],
        consumers=[Site("worker:w", 1, "x")],
        binding_time="per step",
        why="w",
        refactor="r",
        verdicts={"A": ("hard", "a"), "C": ("none", "c")},
    )
    point = build(made, finding)
    assert point is not None
    assert len(point.producers) == PLACES
    assert "scheduler:f39" in {p.function for p in point.producers}
    assert point.severity == {"v1": "hard", "v2": "hard"}
    assert point.designs == ["A"]


def test_a_side_that_does_not_run_on_a_path_takes_the_point_off_it():
    made = universe(Example({"v2": "def w():\n    pass\n", "scheduler": "def s():\n    pass\n"}))
    finding = Finding(
        "kv_alloc", "t", [Site("v2:w", 1, "x")], [Site("scheduler:s", 1, "y")], "", "", "", {"A": ("hard", "")}
    )
    point = build(made, finding)
    assert point is not None
    assert point.severity == {"v1": None, "v2": "hard"}
