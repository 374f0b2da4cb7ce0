"""Formulas held against shapes that were seen, and a trace joined with an index."""

import pytest

from sgltrace.insight.formula import Symbols, Unknown, agrees, alternatives


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
