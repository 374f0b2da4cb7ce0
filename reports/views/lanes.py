"""One decode step as swim lanes: a lane for each part of the engine, calls and tensors that cross from lane to lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sgltrace.model import Place
from sgltrace.reports.context import Context
from sgltrace.reports.views.chain import Call, Chain
from sgltrace.reports.views.common import FunctionLink, GuardText, PlaceLink, function_link, place_link
from sgltrace.reports.views.tensors import stage_rank

WIDTHS = (84, 68, 52, 40)
"""Widths of a lane in pixels, from which the widest is taken that keeps the drawing below ``WIDEST``."""
WIDEST = 640
DEEPEST_CALL = 5
MOST_CALLS = 36
"""Calls drawn: the way to the worker, and of the rest those with the most coupling points."""


@dataclass(frozen=True)
class Mark:
    """A row's drawing: from the middle of one lane to that of others; equal where nothing crosses."""

    start: int
    ends: list[int]
    hue: int

    @property
    def low(self) -> int:
        """The left end of the line."""
        return min(self.start, *self.ends) if self.ends else self.start

    @property
    def high(self) -> int:
        """The right end of the line."""
        return max(self.start, *self.ends) if self.ends else self.start


@dataclass(frozen=True)
class CallRow:
    """A call from one part to another."""

    caller: FunctionLink
    callee: FunctionLink
    guards: list[GuardText]
    mark: Mark


@dataclass(frozen=True)
class TensorCrossing:
    """A tensor, from the part that makes it to those that use it."""

    name: str
    shape: str | None
    dtype: str | None
    producer: PlaceLink
    users: int
    mark: Mark


@dataclass(frozen=True)
class Lanes:
    """The lanes of one path."""

    path: str
    lanes: list[tuple[str, int]]
    """Name and colour, in the order in which a step comes to them."""
    lane: int
    """Width of a lane."""
    width: int
    overlap: bool
    calls: list[CallRow]
    stages: list[tuple[str, list[TensorCrossing]]]
    inside: int
    """Tensors that stay within one lane, which are left to the tensors' page."""


def lanes(context: Context, chain: Chain) -> Lanes:
    """Draws a path that the release has."""
    path = chain.path
    first: dict[tuple[str, str], tuple[FunctionLink, Call]] = {}
    for caller, call in (pair for root in chain.roots for pair in _calls(root)):
        first.setdefault((caller.component, call.function.id), (caller, call))
    worth = sorted(first, key=lambda key: (not first[key][1].open, -first[key][1].points))[:MOST_CALLS]
    crossing = [pair for key, pair in first.items() if key in set(worth)]
    tensors = [tensor for tensor in context.index.tensors if tensor.path == path]
    named = {name for caller, call in crossing for name in (caller.component, call.function.component)}
    for tensor in tensors:
        named |= {context.component(place.function) for place in (tensor.producer, *tensor.consumers)}
    order = [name for name in context.components if name in named]
    lane = next((width for width in WIDTHS if width * len(order) <= WIDEST), WIDTHS[-1])
    at = {name: lane * number + lane // 2 for number, name in enumerate(order)}
    stages: dict[str, list[TensorCrossing]] = {}
    inside = 0
    for tensor in sorted(tensors, key=lambda tensor: stage_rank(tensor.stage)):
        mark = _mark(context, at, tensor.producer, tensor.consumers)
        if mark.low == mark.high:
            inside += 1
            continue
        stages.setdefault(tensor.stage, []).append(
            TensorCrossing(
                tensor.name,
                tensor.shape,
                tensor.dtype,
                place_link(context, tensor.producer),
                len({place.function for place in tensor.consumers}),
                mark,
            )
        )
    return Lanes(
        path=path,
        lanes=[(name, context.hues[name]) for name in order],
        lane=lane,
        width=lane * len(order),
        overlap=any(worker.path == path and worker.overlap for worker in context.index.workers),
        calls=[
            CallRow(
                caller,
                call.function,
                call.guards,
                Mark(at[caller.component], [at[call.function.component]], caller.hue),
            )
            for caller, call in crossing
        ],
        stages=list(stages.items()),
        inside=inside,
    )


def _calls(call: Call, depth: int = 0) -> Iterator[tuple[FunctionLink, Call]]:
    """Calls into another component, in the order of the source."""
    if depth >= DEEPEST_CALL:
        return
    for inner in call.calls:
        if inner.function.component != call.function.component:
            yield call.function, inner
        yield from _calls(inner, depth + 1)


def _mark(context: Context, at: dict[str, int], producer: Place, consumers: list[Place]) -> Mark:
    start = context.component(producer.function)
    ends = {at[context.component(place.function)] for place in consumers} - {at[start]}
    return Mark(at[start], sorted(ends), function_link(context, producer.function).hue)
