"""The arithmetic of dimensions, what two ways make of a value, and branches that are undone."""

from __future__ import annotations

import pytest
import sympy

from sgltrace.index.shapes.symbolic.dims import (
    ONE,
    ZERO,
    Dim,
    const,
    maximum,
    minimum,
    perhaps,
    some_of,
    sum_over,
    symbol,
    times,
)
from sgltrace.index.shapes.symbolic.formulas import expression
from sgltrace.index.shapes.symbolic.joins import join
from sgltrace.index.shapes.symbolic.store import Store
from sgltrace.index.shapes.symbolic.values import NONE, Either, Int, Run, Tensor, Unknown, number

bs, topk, steps, width = map(symbol, ("bs", "topk", "num_steps", "num_draft_tokens"))


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (bs * topk * steps, "bs*num_steps*topk"),
        (bs * (steps + ONE), "bs*(num_steps + 1)"),
        (topk + (steps - ONE) * topk * topk, "topk*(num_steps*topk - topk + 1)"),
        ((bs * topk * steps) // (bs * steps), "topk"),
        ((bs * (steps + ONE)) // (steps + ONE), "bs"),
        ((width + const(7)) // const(8) * bs, "((num_draft_tokens + 7)//8)*bs"),
        ((bs * width) % bs, "0"),
        (maximum([steps * topk, width]), "max(num_draft_tokens, num_steps*topk)"),
        (maximum([width, width - ONE, width]), "num_draft_tokens"),
        (minimum([const(3), const(5)]), "3"),
        (topk ** const(2), "topk**2"),
        (bs - bs, "0"),
        (const(2) * bs - topk, "2*bs - topk"),
        (times(some_of(ONE), bs), "some(bs)"),
        (sum_over(bs, "reqs"), "sum(bs, reqs)"),
    ],
)
def test_text_of_dims(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_equal_dims_are_equal_however_they_came_about() -> None:
    assert bs * (steps + ONE) == bs * steps + bs
    assert hash(bs * topk) == hash(topk * bs)
    assert (bs * topk).substitute({"topk": ONE}) == bs
    assert maximum([bs, topk]).substitute({"topk": bs}) == bs


@pytest.mark.parametrize(
    ("dim", "positive"), [(bs, True), (bs - ONE, False), (bs * topk + ONE, True), (ZERO, False), (bs // topk, False)]
)
def test_sizes_are_positive(dim: Dim, positive: bool) -> None:
    assert dim.is_positive is positive


def test_sympy_says_the_same() -> None:
    b, k = sympy.symbols("bs num_steps", integer=True, positive=True)
    assert sympy.simplify(expression(bs * (steps + ONE)) - b * (k + 1)) == 0
    assert expression(maximum([bs, steps])) == sympy.Max(b, k)
    assert expression((bs + ONE) // steps) == sympy.floor((b + 1) / k)


def tensor(*dims: Dim | None) -> Tensor:
    return Tensor(dims)


@pytest.mark.parametrize(
    ("left", "right", "joined"),
    [
        (tensor(bs), tensor(bs), tensor(bs)),
        (tensor(ZERO), tensor(bs), tensor(bs)),
        (tensor(bs, topk), tensor(ZERO, topk), tensor(bs, topk)),
        (Unknown("?"), tensor(bs), tensor(bs)),
        (tensor(None), tensor(bs), tensor(bs)),
        (Tensor(None), tensor(bs), tensor(bs)),
        (tensor(bs), tensor(topk), Either((tensor(bs), tensor(topk)))),
        (NONE, Int(bs), Either((NONE, Int(bs)))),
        (number(0), Int(bs), Int(bs)),
        (Run(()), Run(((NONE, ONE),)), Run(((NONE, perhaps(ONE)),))),
    ],
)
def test_two_ways_meet(left: Tensor, right: Tensor, joined: Tensor) -> None:
    assert join(left, right) == joined


def test_what_a_way_takes_for_granted() -> None:
    assert join(tensor(bs, ONE), tensor(bs, topk), {"topk": ONE}) == tensor(bs, topk)
    assert join(tensor(bs, ONE), tensor(bs, topk)) == Either((tensor(bs, ONE), tensor(bs, topk)))


def test_too_many_ways_are_unknown() -> None:
    value = tensor(const(1))
    for i in range(2, 9):
        value = join(value, tensor(const(i)))  # type: ignore[assignment]
    assert isinstance(value, Unknown)


def test_branches_are_undone_and_joined() -> None:
    store = Store()
    store.set((1, "x"), Int(bs))
    mark = store.mark()
    store.set((1, "x"), Int(topk))
    store.set((1, "y"), NONE)
    changes = store.undo(mark)
    assert (store.get((1, "x")), store.get((1, "y"))) == (Int(bs), None)
    store.merge([(changes, None), ({}, None)])
    assert store.get((1, "x")) == Either((Int(topk), Int(bs)))
    assert dict(store.under(1)) == {"x": Either((Int(topk), Int(bs))), "y": NONE}


def test_what_holds_for_good_is_not_undone() -> None:
    store = Store()
    outer = store.mark()
    inner = store.mark()
    store.set((1, "x"), NONE)
    store.keep(inner)
    store.undo(outer)
    assert store.get((1, "x")) == NONE
