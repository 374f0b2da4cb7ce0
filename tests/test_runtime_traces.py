"""What was recorded on an H200 from the real SGLang is read, and says what is known of these configurations."""

from __future__ import annotations

from pathlib import Path

import pytest

from sgltrace.runtime import observations, rank_differences, read_trace, sharing, steps

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"


@pytest.fixture(scope="module")
def at_batch_8():
    return {
        name: {
            (o.stage, o.path): (o.shape, o.stride, o.dtype, o.padded)
            for o in observations(read_trace(TRACES / name))
            if o.mode == "DECODE" and o.batch_size == 8
        }
        for name in ("base", "eagle3_v1", "eagle3_v2")
    }


def test_v2_draft_and_verify(at_batch_8):
    seen = at_batch_8["eagle3_v2"]
    assert seen["draft", "return[0].out_cache_loc"][0] == (16,)
    assert seen["verify", "return[0].out_cache_loc"][0] == (24,)
    assert seen["step entry", "return.next_token_ids"] == ((24,), (1,), "int32", 8)
    assert seen["step entry", "return.accept_lens"][0] == (8,)


@pytest.mark.parametrize(
    "stage, path, shape",
    [
        ("step entry (after resolve_future)", "arg.model_worker_batch.spec_info.bonus_tokens", (8,)),
        ("step entry (after resolve_future)", "arg.model_worker_batch.spec_info.topk_p", (8, 1)),
        ("step entry (after resolve_future)", "arg.model_worker_batch.spec_info.hidden_states", (8, 1024)),
        ("draft", "return[0].positions", (8,)),
        ("draft out", "return.draft_token", (24,)),
        ("verify input", "return[2]", (8, 3)),
        ("verify", "return[0].input_ids", (24,)),
        ("verify out", "return[1]", (8,)),
        ("verify out", "return[2]", (8, 3)),
        ("verify out", "return.next_draft_input.bonus_tokens", (8,)),
        ("verify out", "return.next_draft_input.new_seq_lens", (8,)),
        ("verify out", "return.logits_output.next_token_logits", (24, 32000)),
        ("verify out", "return.logits_output.hidden_states", (24, 3072)),
        ("draft-extend", "return.seq_lens", (8,)),
        ("draft-extend", "return.extend_seq_lens", (8,)),
        ("draft-extend out", "arg.batch_result.next_draft_input.topk_p", (8, 1)),
        ("relay", "return.indices", (8,)),
        ("step", "arg.batch.output_ids", (8,)),
    ],
)
def test_v2_tensors_of_the_reference(at_batch_8, stage, path, shape):
    assert at_batch_8["eagle3_v2"][stage, path][0] == shape


def test_graph_buffers_are_of_the_largest_batch():
    seen = {
        (o.function.rpartition(":")[2], o.path): o.shape
        for o in observations(read_trace(TRACES / "eagle3_v2"))
        if o.stage == "graph buffers"
    }
    assert seen["CudaGraphRunner.__init__", "self.buffers.input_ids"] == (24,)
    assert seen["EAGLEDraftCudaGraphRunner.__init__", "self.buffers.out_cache_loc"] == (16,)


def test_v1_tree(at_batch_8):
    seen = at_batch_8["eagle3_v1"]
    assert seen["draft out", "return.draft_token"][0] == (128,)
    assert seen["verify", "arg.batch.out_cache_loc"][0] == (128,)


def test_base_has_one_token_for_each_request(at_batch_8):
    assert at_batch_8["base"]["target forward", "return.next_token_ids"][0] == (8,)


def test_batches_shrink_and_are_padded_to_a_graph():
    (process,) = read_trace(TRACES / "base").recording()
    sizes = [(s.batch_size, s.padded) for s in steps(read_trace(TRACES / "base"), process) if s.mode == "DECODE"]
    assert sizes[0] == (8, 8) and (3, 4) in sizes and (5, 8) in sizes and (1, 1) in sizes


def test_kv_slots_are_allocated_ahead_on_v2_only():
    ahead = {}
    for name in ("base", "eagle3_v1", "eagle3_v2"):
        trace = read_trace(TRACES / name)
        (process,) = trace.recording()
        done = [s for s in steps(trace, process) if s.mode == "DECODE" and s.allocated]
        ahead[name] = {a - c for s in done[2:] for a, c in zip(s.allocated, s.committed, strict=True)}
    assert ahead["base"] == ahead["eagle3_v1"] == {0} and ahead["eagle3_v2"] == {5}


def test_two_ranks_agree():
    trace = read_trace(TRACES / "eagle3_v2_tp2")
    assert [p.rank for p in trace.recording()] == ["tp0", "tp1"]
    assert rank_differences(trace) == []
    assert all(not p.loss.any for p in trace.recording())


def test_shared_storage_and_calls():
    trace = read_trace(TRACES / "eagle3_v2")
    assert any({s.first, s.second} == {"arg.batch.input_ids", "return.input_ids"} for s in sharing(trace))
    pairs = {(p.caller.rpartition(".")[2], p.callee.rpartition(".")[2]) for p in trace.call_pairs()}
    assert ("forward_batch_generation", "verify") in pairs and len(pairs) > 200


def test_every_draft_of_a_draft_model_with_the_targets_weights_is_accepted():
    trace = read_trace(TRACES / "standalone_v2_http")
    (process,) = trace.recording()
    done = [s for s in steps(trace, process) if s.mode == "DECODE" and s.accept_lens]
    assert max(s.batch_size for s in done) == 12 and done[-1].batch_size == 3
    # The server's own first requests ask for few tokens; of the others all three are accepted.
    assert {n for s in done if s.batch_size > 1 for n in s.accept_lens} == {3}


def test_a_batch_larger_than_every_graph_runs_eagerly():
    trace = read_trace(TRACES / "standalone_v2_http")
    (process,) = trace.recording()
    graphs = {s.batch_size: s.graph for s in steps(trace, process) if s.mode == "DECODE" and s.graph is not None}
    assert graphs[12] is False and graphs[6] is True
