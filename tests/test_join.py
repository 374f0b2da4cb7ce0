"""Formulas held against shapes that were seen, and a trace joined with an index."""

from pathlib import Path

import msgspec
import pytest

from sgltrace.insight.formula import Symbols, Unknown, agrees, alternatives
from sgltrace.insight.join import join
from sgltrace.model import CallEdge, ContractField, Index, Place, Source, Tensor
from sgltrace.runtime import read_trace

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"
VERIFY = Place(function="sglang.srt.speculative.eagle_info:EagleVerifyInput.verify", line=566)


def observed(shape: str, version: str = "0.5.12.post1"):
    """What the H200's v1 trace, in which eight requests finish one by one, says of the tokens that are extended."""
    # When all have finished, none are.
    rows = [Tensor(path="v1", stage="verify out", name="num_accept_tokens", cls="EagleDraftExtendInput",
                   field="num_accept_tokens", shape=form, dtype="int32", producer=VERIFY, consumers=[])
            for form in (shape, "(0,)")]  # fmt: skip
    source = Source(name="sglang", version=version, root="", kind="folder", requested="")
    worker = "sglang.srt.speculative.eagle_worker:EAGLEWorker.forward_batch_generation"
    index = Index(source=source, entry_points={"v1": worker, "v2": None}, functions=[], calls=[], unresolved=[],
                  tensors=rows)  # fmt: skip
    run = join(read_trace(TRACES / "eagle3_v1"), index, "a run")
    return run, run.tensors[0]


def holds(shape: str, seen: tuple[int, ...], **known: int) -> bool:
    return agrees(shape, seen, Symbols(known))


@pytest.mark.parametrize(
    ("shape", "seen"),
    [
        ("(bs*num_draft_tokens,)", (24,)),
        ("(bs, topk)", (8, 1)),
        ("(max(num_steps*topk, num_draft_tokens),)", (3,)),
        ("(bs*(num_steps + 1), hidden_size)", (24, 1024)),
        ("(bs, ?)", (8, 77)),
    ],
)
def test_a_formula_that_holds(shape, seen):
    assert holds(shape, seen, bs=8, topk=1, num_steps=2, num_draft_tokens=3)


@pytest.mark.parametrize(("shape", "seen"), [("(bs,)", (9,)), ("(bs,)", (8, 1)), ("(bs*topk, bs)", (8, 7))])
def test_a_formula_that_does_not_hold(shape, seen):
    assert not holds(shape, seen, bs=8, topk=1)


def test_a_free_symbol_speaks_for_a_formula_and_never_against_it():
    symbols = Symbols({"bs": 2})
    assert agrees("(hidden_size,)", (64,), symbols)
    assert agrees("(bs, hidden_size)", (2, 32), symbols)
    with pytest.raises(Unknown):
        agrees("(hidden_size,)", (32,), symbols)


@pytest.mark.parametrize(
    "shape", ["(?,)", "bs + 1", "", "__import__('os')", "(some(bs),)", "(bs.__class__,)", "(9**9**9,)"]
)
def test_what_is_not_known_is_neither_true_nor_false(shape):
    with pytest.raises(Unknown):
        holds(shape, (8,), bs=8)


def test_alternatives():
    assert alternatives("(bs,) or (bs*topk,)") == ["(bs,)", "(bs*topk,)"]


def test_rows_of_the_batch_after_it_are_told_and_refute_nothing():
    run, tensor = observed("(bs,)")
    assert tensor.verdict == "confirmed" and tensor.changing == 7
    assert [(s.batch, s.shape) for s in tensor.shapes if s.first_step == s.last_step == 8] == [(8, [7])]
    assert not any("SGLang" in note for note in run.notes)


def test_rows_that_differ_in_a_steady_batch_refute():
    assert observed("(bs - 1,)")[1].verdict == "refuted"


def test_a_run_of_another_release_refutes_nothing_and_says_so():
    run, tensor = observed("(bs - 1,)", version="0.5.9")
    assert tensor.verdict == "seen, not judged" and tensor.shapes
    assert run.notes[0].startswith("This run is of SGLang 0.5.12.post1, the index of 0.5.9:")
    assert observed("(bs,)", version="0.5.9")[1].verdict == "confirmed"


def judged(trace: str, field: str, shape: str | None, requirement: str = "required", value: str = "", design: str = ""):
    """What a recorded run says of one row of a contract."""
    reader = Place(function="sglang.srt.managers.scheduler:Scheduler.run_batch", line=1)
    row = ContractField(path="v2", field=field, shape=shape, dtype="int64", stride=None, requirement=requirement,
                        off_step_value=value, writers=[], readers=[reader])  # fmt: skip
    if design:
        row = msgspec.defstruct("Row", [("design", str)], bases=(ContractField,), kw_only=True)(
            design=design, **{name: getattr(row, name) for name in row.__struct_fields__}
        )
    source = Source(name="sglang", version="0.5.12.post1", root="", kind="folder", requested="")
    worker = "sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.forward_batch_generation"
    index = Index(source=source, entry_points={"v1": None, "v2": worker}, functions=[], calls=[], unresolved=[],
                  contract=[row])  # fmt: skip
    (evidence,) = join(read_trace(TRACES / trace), index, "a run").contract
    return evidence


@pytest.mark.parametrize(
    ("field", "shape", "value", "verdict"),
    [
        ("ScheduleBatch.seq_lens", "(bs,)", "", "confirmed"),
        ("ScheduleBatch.seq_lens", "(bs + 1,)", "", "refuted"),
        ("ScheduleBatch.seq_lens", "(some(bs),)", "", "seen, not judged"),
        ("ScheduleBatch.seq_lens", None, "", "seen, not judged"),
        ("result.next_token_ids", "(bs*num_draft_tokens,)", "", "confirmed"),
        ("result.next_token_ids", "(2*bs,)", "(2*bs,) with gaps, or (bs,) without", "confirmed"),
        ("Req.kv_committed_len", "kv_committed_len + num_steps + 1", "one longer", "confirmed"),
        ("Req.kv_committed_len", None, "kv_committed_len + 1", "confirmed"),
        ("Req.kv_committed_len", "kv_committed_len + 2", "", "refuted"),
        ("Req.kv_committed_len", None, "as a plain step: req.kv_committed_len += 1", "confirmed"),
        ("ScheduleBatch.seq_lens", None, "what it sets: torch.zeros((bs, 2), dtype=x)", "seen, not judged"),
        ("Req.nothing_of_that_name", "(bs,)", "", "not exercised"),
    ],
)
def test_a_plain_run_judges_what_an_off_step_must_look_like(field, shape, value, verdict):
    assert judged("base", field, shape, value=value).verdict == verdict


def test_on_steps_never_judge_an_off_step():
    for shape in ("(bs,)", "(bs*num_draft_tokens,)", "(7,)"):
        said = judged("eagle3_v2", "result.next_token_ids", shape)
        assert said.verdict == "seen, not judged" and said.observed[0].shapes


def test_a_plain_run_says_nothing_of_the_design_that_stays_in_the_worker():
    assert judged("base", "ScheduleBatch.seq_lens", "(bs,)", design="B").verdict == "confirmed"
    assert judged("base", "ScheduleBatch.seq_lens", "(bs + 1,)", design="C").verdict == "seen, not judged"


def test_what_must_stay_unset_is_seen_to_be_none():
    assert judged("base", "ScheduleBatch.spec_info", None, "must stay unset").verdict == "confirmed"
    assert judged("base", "ScheduleBatch.seq_lens", None, "must stay unset").verdict == "refuted"


def test_a_dtype_that_differs_is_told():
    assert judged("base", "ScheduleBatch.seq_lens", "(bs,)").why == ""
    assert "int32, not int64" in judged("base", "ScheduleBatch.orig_seq_lens", "(bs,)").why


def test_formulas_of_on_steps_are_held_against_plain_steps_at_one_token_and_not_refuted_by_them():
    reader = Place(function="sglang.srt.managers.scheduler:Scheduler.run_batch", line=1)
    rows = [Tensor(path="v2", stage="step entry", name=shape, cls="ScheduleBatch", field="output_ids", shape=shape,
                   dtype="int64", producer=reader, consumers=[])
            for shape in ("(bs*num_draft_tokens,)", "(bs*7,)")]  # fmt: skip
    source = Source(name="sglang", version="0.5.12.post1", root="", kind="folder", requested="")
    found = []
    for row in rows:
        index = Index(source=source, entry_points={"v1": None, "v2": None}, functions=[], calls=[], unresolved=[],
                      tensors=[row])  # fmt: skip
        run = join(read_trace(TRACES / "base"), index, "a run")
        found += [(t.verdict, t.one_token) for t in run.tensors]
        assert run.kinds == ["plain"] and run.unmatched
    assert found == [("confirmed", True), ("seen, not judged", True)]


def test_generated_constructors_are_not_missing_from_the_graph():
    source = Source(name="sglang", version="0.5.12.post1", root="", kind="folder", requested="")
    caller = "sglang.srt.speculative.eagle_worker_v2:EAGLEWorkerV2.verify"
    made = "sglang.srt.managers.utils:GenerationBatchResult"
    edge = CallEdge(caller=caller, callee=made, kind="constructor", confidence=1.0, sites=[])
    index = Index(source=source, entry_points={"v1": None, "v2": None}, functions=[], calls=[edge], unresolved=[])
    run = join(read_trace(TRACES / "eagle3_v2"), index, "a run")
    assert (caller, made, 6) in run.edges and made not in {callee for _, callee, _ in run.missing_edges}
    other = "sglang.srt.speculative.eagle_info:__init__ of a dataclass"
    assert other in {callee for who, callee, _ in run.missing_edges if who == caller}


def test_a_run_is_told_with_what_it_was_of():
    about = observed("(bs,)")[0].about
    assert about["release"] == "0.5.12.post1" and about["model"] == "/models/target"
    assert about["GPU"] == about["weights"] == "not recorded"
    source = Source(name="sglang", version="0.5.12.post1", root="", kind="folder", requested="")
    index = Index(source=source, entry_points={"v1": None, "v2": None}, functions=[], calls=[], unresolved=[])
    run = join(read_trace(TRACES / "standalone_v2_http"), index, "a run")
    assert "random" in run.about["weights"] and any("weights are random" in note for note in run.notes)
