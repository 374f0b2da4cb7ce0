"""Formulas held against shapes that were seen, and a trace joined with an index."""

from pathlib import Path

import pytest

from sgltrace.insight.formula import Symbols, Unknown, agrees, alternatives
from sgltrace.insight.join import join
from sgltrace.model import Index, Place, Source, Tensor
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
