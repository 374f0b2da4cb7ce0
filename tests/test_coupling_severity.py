"""Severity by path: each path is judged by what its own functions write and read."""

from __future__ import annotations

import textwrap

import pytest
from test_coupling_rules import found

from sgltrace.coupling.rule import Example
from sgltrace.coupling.rules import all_rules

RULES = {rule.kind: rule for rule in all_rules()}


def joined(*texts: str) -> str:
    """Several texts of one part, each with its own indent."""
    return "\n".join(map(textwrap.dedent, texts))


def severities(kind: str, title: str, **parts: str) -> list[dict[str, str | None]]:
    """Of the points of a kind whose titles have some words in them, the severities."""
    return [p.severity for p in found(RULES[kind], Example(parts)) if title in p.title]


PROCESS = """
    class Scheduler:
        def process(self, batch: ScheduleBatch, result: GenerationBatchResult):
            if batch.is_spec_v2():
                for i, req in enumerate(batch.reqs):
                    row = result.next_token_logprobs[i]
                    for j in range(len(row)):
                        req.output_token_logprobs_val.append(row[j])
            elif batch.spec_algorithm.is_none():
                for i, req in enumerate(batch.reqs):
                    req.output_token_logprobs_val.append(result.next_token_logprobs[i])
"""
V1_NOTES = """
    class EAGLEWorker:
        def note(self, batch: ScheduleBatch, values):
            for req in batch.reqs:
                req.output_token_logprobs_val.append(values[req])
"""
V2_MAKES = """
    class EAGLEWorkerV2:
        def rows(self, logits_output: LogitsProcessorOutput, values):
            logits_output.next_token_logprobs = values.reshape(4, 2)
"""


def test_logprobs_that_a_worker_stores_are_lost_and_rows_of_accepted_tokens_are_cut():
    assert severities("logprob", "", scheduler=PROCESS, v1=V1_NOTES, v2=V2_MAKES) == [{"v1": "soft", "v2": "hard"}]


def test_logprobs_of_a_path_that_makes_none_do_not_block():
    assert severities("logprob", "", scheduler=PROCESS, v1=V1_NOTES) == [{"v1": "soft", "v2": "none"}]


def test_only_the_path_that_unsets_the_wish_for_hidden_states_loses_them():
    kept = """
        class Scheduler:
            def process(self, batch: ScheduleBatch, result):
                for i, req in enumerate(batch.reqs):
                    if batch.return_hidden_states:
                        req.hidden_states.append(result.hidden_states[i])
    """
    unset = (
        "class EAGLEWorker:\n    def draft(self, batch: ScheduleBatch):\n        batch.return_hidden_states = False\n"
    )
    rows = """
        class EAGLEWorkerV2:
            def verify(self, logits_output: LogitsProcessorOutput, out):
                logits_output.hidden_states = out.hidden_states
    """
    found = severities("hidden_capture", "client asked", scheduler=kept, v1=unset, v2=rows)
    assert found == [{"v1": "soft", "v2": "none"}]


def test_verify_that_adjusts_logits_agrees_with_the_plain_sampler():
    sampler = """
        class Sampler:
            def prepare(self, logits, sampling_info: SamplingBatchInfo):
                if sampling_info.has_custom_logit_processor:
                    logits = logits + sampling_info.logit_bias
                return logits
    """
    same = """
        class EagleVerifyInput:
            def verify(self, sampling_info: SamplingBatchInfo):
                if sampling_info.has_custom_logit_processor or sampling_info.logit_bias is not None:
                    return sampling_info.temperatures
    """
    less = """
        class EagleVerifyInputV2Mixin:
            def sample(self, sampling_info: SamplingBatchInfo):
                return sampling_info.temperatures
    """
    assert severities("sampling", "Biases", target=sampler, v1=same, v2=less) == [{"v1": "none", "v2": "soft"}]
    assert severities("sampling", "Biases", target=sampler) == []


RESULT = "class GenerationBatchResult:\n    num_accepted_tokens: Optional[int] = {default}\n"
COUNTED = """
    class Scheduler:
        def process(self, batch: ScheduleBatch, result: GenerationBatchResult):
            self.count(result.num_accepted_tokens)

        def count(self, accepted):
            self.spec_num_accepted_tokens += accepted

        def log(self):
            return 1.0 / self.spec_num_accepted_tokens
"""
SET_BY_WORKER = """
    class EAGLEWorker:
        def forward_batch_generation(self, batch: ScheduleBatch):
            return GenerationBatchResult(num_accepted_tokens=sum(batch.accepted))
"""
SET_BEFORE = """
    class Resolver:
        def resolve(self, result: GenerationBatchResult):
            result.num_accepted_tokens = len(result.next_token_ids)
"""


@pytest.mark.parametrize(("default", "expected"), [("None", [{"v1": "hard", "v2": "hard"}]), ("0", [])])
def test_a_count_that_a_plain_result_leaves_none_is_added(default, expected):
    parts = {"start": RESULT.format(default=default), "scheduler": COUNTED, "worker": SET_BY_WORKER}
    assert severities("metrics", "is added to the counters", **parts) == expected


def test_a_count_that_the_scheduler_fills_in_only_dilutes():
    parts = {
        "start": RESULT.format(default="None"),
        "scheduler": COUNTED,
        "worker": SET_BY_WORKER,
        "before": SET_BEFORE,
    }
    assert severities("metrics", "is added to the counters", **parts) == [{"v1": "soft", "v2": "soft"}]


PREFILL = """
    class Prefill:
        def put(self, req: Req, batch: ScheduleBatch):
            {guard}
                req.output_topk_p = batch.spec_info.topk_p
        def take(self, req: Req, batch: ScheduleBatch):
            batch.spec_info = EagleDraftInput(topk_p=req.output_topk_p)
"""


@pytest.mark.parametrize(
    ("guard", "severity"),
    [("if batch.spec_info is not None:", "soft"), ("if batch.spec_algorithm.is_eagle():", "hard")],
)
def test_a_draft_state_that_prefill_asks_for_is_missing_without_harm(guard, severity):
    found = severities("disaggregation", "Prefill sends", disaggregation=PREFILL.format(guard=guard))
    assert found == [{"v1": severity, "v2": severity}]


def test_eviction_that_the_scheduler_drives_goes_on_in_off_steps():
    count = "def prepare(self, req: Req):\n            req.decode_batch_idx += 1\n"
    reads = "class ScheduleBatch:\n    def evict(self, req: Req):\n        return req.decode_batch_idx % 8 == 1\n"
    inside = f"class EAGLEWorker:\n        {count}"
    before = f"class EagleDraftInput:\n        {count}"
    assert severities("kv_bookkeeping", "step counter", scheduler=reads, worker=inside) == [
        {"v1": "soft", "v2": "soft"}
    ]
    assert severities("kv_bookkeeping", "step counter", scheduler=reads, before=before) == [
        {"v1": "none", "v2": "none"}
    ]


def test_retraction_that_is_sorted_only_without_an_algorithm():
    text = """
        class ScheduleBatch:
            def retract(self):
                order = list(range(len(self.reqs)))
                if not self.server_args.speculative_algorithm:
                    order.sort()
                return order

        class Scheduler:
            def shrink(self, batch: ScheduleBatch):
                return batch.retract()
    """
    assert severities("scheduler_policy", "ordered", scheduler=text) == [{"v1": "soft", "v2": "soft"}]
    plain = text.replace("if not self.server_args.speculative_algorithm:", "if len(order) > 1:")
    assert severities("scheduler_policy", "ordered", scheduler=plain) == []


def test_a_factor_that_the_scheduler_works_out_from_the_width():
    start = """
        class Scheduler:
            def __init__(self, server_args):
                self.factor = {value}
    """
    step = """
        class Scheduler:
            def check(self, batch: ScheduleBatch):
                return batch.room(self.factor)

        class ScheduleBatch:
            def room(self, factor):
                return len(self.reqs) * factor
    """
    wide = start.format(value="server_args.speculative_num_draft_tokens + 1")
    assert severities("scheduler_policy", "factor", start=wide, scheduler=step) == [{"v1": "soft", "v2": "soft"}]
    assert severities("scheduler_policy", "factor", start=start.format(value="2"), scheduler=step) == []


def test_two_batch_overlap_cut_by_the_mode_of_a_capture():
    cut = """
        class TboPlugin:
            def split(self, forward_mode, spec_info):
                if forward_mode.is_target_verify():
                    return spec_info.draft_token_num
                return 1
    """
    replay = """
        class CudaGraphRunner:
            def replay(self, forward_batch: ForwardBatch):
                return self.plugin.split({mode}, forward_batch.spec_info), forward_batch.tbo_split_seq_index
    """
    fixed = severities("tbo", "", target=cut + replay.format(mode="self.capture_forward_mode"))
    asked = severities("tbo", "", target=cut + replay.format(mode="forward_batch.forward_mode"))
    assert (fixed, asked) == ([{"v1": "hard", "v2": "hard"}], [{"v1": "soft", "v2": "soft"}])


OWN = """
    class EAGLEWorker:
        def forward_batch_generation(self, batch: ScheduleBatch):
            if self.speculative_num_steps == 0:
                return self.trivial(batch)
            return self.draft()
"""
POOL = """
    class HybridReqToTokenPool:
        def __init__(self, speculative_num_draft_tokens, overlap):
            self.intermediate_ssm = zeros(speculative_num_draft_tokens)
            self.mamba_ping_pong_track_buffer_size = {size}
"""
COMMIT = """
    class HybridLinearAttnBackend:
        def keep(self, accepted):
            copy(self.intermediate_ssm, accepted)

    class EAGLEWorker:
        def commit(self, batch: ScheduleBatch, accepted):
            if batch.mamba_track_indices is not None:
                self.attn_backend.keep(accepted)

        def verify(self, batch: ScheduleBatch):
            self.commit(batch, 1)
"""
FLIP = """
    class Scheduler:
        def track(self, req: Req, result: GenerationBatchResult):
            if result.num_correct_drafts_per_req_cpu is not None:
                req.mamba_next_track_idx = 1 - req.mamba_next_track_idx
"""
FILL = """
    class Resolver:
        def resolve(self, result: GenerationBatchResult):
            result.num_correct_drafts_per_req_cpu = []
"""


@pytest.mark.parametrize(
    ("size", "before", "severity"),
    [
        ("2 if speculative_num_draft_tokens is None else 1", "", "hard"),
        ("2 if overlap else 1", FILL, "hard"),
        ("2 if overlap else 1", "", "soft"),
    ],
)
def test_track_buffers_block_where_they_are_missing_or_flipped_unwritten(size, before, severity):
    parts = {"start": POOL.format(size=size), "worker": COMMIT, "scheduler": FLIP, "before": before}
    assert severities("mamba_state", "track buffers", **parts) == [{"v1": severity, "v2": severity}]
    assert severities("mamba_state", "that a verify keeps", **parts) == []
    parts["worker"] += OWN
    assert severities("mamba_state", "that a verify keeps", **parts) == [{"v1": "none", "v2": "none"}]


def test_a_function_that_is_told_by_the_algorithm_whether_to_sort():
    text = """
        class ScheduleBatch:
            def retract(self):
                return self.order(may_sort={told})

            def order(self, may_sort):
                found = list(range(len(self.reqs)))
                if may_sort:
                    found.sort()
                return found
    """
    told = text.format(told="self.spec_algorithm.is_none()")
    assert severities("scheduler_policy", "ordered by a policy", scheduler=told) == [{"v1": "soft", "v2": "soft"}]
    assert severities("scheduler_policy", "ordered", scheduler=text.format(told="len(self.reqs) > 1")) == []


def test_the_committed_length_that_a_release_hands_to_the_cache():
    cache = """
        class Req:
            def committed(self):
                return {length}

        def release(req: Req, cache: RadixCache):
            cache.keep(req, req.committed())

        class RadixCache:
            def keep(self, req, length):
                self.held = length
    """
    worker = """
        class EAGLEWorker:
            def settle(self, req: Req, accepted):
                req.kv_committed_len += accepted
    """
    found = [
        severities("prefix_cache", "committed length", scheduler=cache.format(length=length), worker=worker)
        for length in ("self.kv_committed_len", "len(self.output_ids)")
    ]
    assert found == [[{"v1": "soft", "v2": "soft"}], []]


def test_a_width_that_a_function_hands_on_is_not_what_it_gives_back():
    text = """
        class Scheduler:
            def pick(self, batch: ScheduleBatch):
                return {made}(batch, self.server_args.speculative_num_draft_tokens)

            def step(self, batch: ScheduleBatch):
                return self.pick(batch)

            def sync(self, batch, width):
                return batch
    """
    assert severities("scheduler_policy", "is estimated", scheduler=text.format(made="self.sync")) == []
    assert severities("scheduler_policy", "is estimated", scheduler=text.format(made="max")) == [
        {"v1": "soft", "v2": "soft"}
    ]
