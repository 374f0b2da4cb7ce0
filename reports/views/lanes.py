"""One decode step as swim lanes: a lane for each part, and the calls and tensors that cross lanes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sgltrace.model import Tensor
from sgltrace.reports.context import Context
from sgltrace.reports.graph import STEP
from sgltrace.reports.views.chain import Call, Chain
from sgltrace.reports.views.common import FunctionLink, GuardText, PlaceLink, place_link
from sgltrace.reports.views.tensors import stage_rank

SCHEDULER, WORKER, TARGET, DRAFT = "scheduler", "worker", "target model", "draft model"
GRAPHS, POOL, RESULT, OTHER = "graphs", "memory pool", "result processing", "other"
LANES = (SCHEDULER, WORKER, TARGET, DRAFT, GRAPHS, POOL, RESULT, OTHER)
"""In the order of a step; a lane's colour is its place here."""
OF_COMPONENT = {
    "scheduler": SCHEDULER, "disaggregation": SCHEDULER, "metrics": SCHEDULER, "overlap": SCHEDULER,
    "grammar": SCHEDULER, "configuration": SCHEDULER,
    "speculative worker": WORKER, "draft worker": WORKER, "speculative inputs": WORKER,
    "target worker": TARGET, "model runner": TARGET, "models": TARGET, "layers": TARGET, "attention": TARGET,
    "sampling": TARGET, "distributed": TARGET,
    "graph runner": GRAPHS, "speculative graph runner": GRAPHS, "memory pool": POOL,
}  # fmt: skip
"""The lanes of the vocabulary's components. Target and draft model run the same code: what asks for it tells."""
TARGET_WORKER = "target worker"
DRAFTING = "draft"
"""How the names of the stages begin in which the draft model runs."""

LANE = 42
"""Width of a lane in pixels."""
DEEPEST_CALL = 4
"""Calls below the event loop, and again below the worker."""
MOST_CALLS = 40
"""Calls drawn: the way to the worker, what it calls, and of the rest those with the most coupling points."""


@dataclass(frozen=True)
class Mark:
    """A row's drawing: from the middle of one lane to that of others."""

    start: int
    ends: list[int]
    hue: int
    text: str


@dataclass(frozen=True)
class Row:
    """A call from one part to another, or a tensor from the part that makes it to those that use it."""

    mark: Mark
    call: FunctionLink | None = None
    guards: list[GuardText] | None = None
    name: str = ""
    shape: str | None = None
    dtype: str | None = None
    producer: PlaceLink | None = None
    users: int = 0
    same: int = 1
    """Tensors of the same name and shape that cross alike, which are one row."""


@dataclass(frozen=True)
class Block:
    """What happens in one stage, by path: a path that lacks it has no row."""

    title: str
    anchor: str
    rows: dict[str, list[Row]]


@dataclass(frozen=True)
class Lanes:
    """The step of each path side by side."""

    paths: list[str]
    lanes: list[tuple[str, int]]
    """Name and colour of those that have something on any path."""
    lane: int
    width: int
    overlap: list[str]
    """Paths that overlap the next step, or may: a worker that serves both ways."""
    calls: Block
    stages: list[Block]
    inside: dict[str, int]
    """Tensors that stay within one lane, which are left to the tensors' page."""


@dataclass(frozen=True)
class _Crossing:
    """A row before its drawing: lanes by name."""

    row: Row
    start: str
    ends: list[str]
    text: str


def lanes(context: Context, chains: list[Chain]) -> Lanes:
    """Draws the paths that the release has."""
    calls: dict[str, list[_Crossing]] = {}
    tensors: dict[str, dict[str, list[_Crossing]]] = {}
    inside: dict[str, int] = {}
    for chain in chains:
        sorter = _Sorter(context, chain)
        calls[chain.path] = sorter.calls()
        of_path = sorted((t for t in context.index.tensors if t.path == chain.path), key=lambda t: stage_rank(t.stage))
        inside[chain.path] = 0
        for tensor in of_path:
            crossing = sorter.tensor(tensor)
            inside[chain.path] += not crossing.ends
            if crossing.ends:
                tensors.setdefault(tensor.stage, {}).setdefault(chain.path, []).append(crossing)
    every = [c for found in calls.values() for c in found]
    every += [c for stage in tensors.values() for found in stage.values() for c in found]
    used = {name for crossing in every for name in (crossing.start, *crossing.ends)}
    order = [name for name in LANES if name in used]
    stages = sorted(tensors.items(), key=lambda item: stage_rank(item[0]))
    return Lanes(
        paths=[chain.path for chain in chains],
        lanes=[(name, LANES.index(name)) for name in order],
        lane=LANE,
        width=LANE * len(order),
        overlap=[w.path for w in context.index.workers if w.overlap is not False and w.path in inside],
        calls=Block("Calls, in the order of the source", "calls", _drawn(calls, order)),
        stages=[Block(stage, f"stage-{number}", _drawn(found, order)) for number, (stage, found) in enumerate(stages)],
        inside=inside,
    )


class _Sorter:
    """Finds the lane of each end of what crosses on one path."""

    def __init__(self, context: Context, chain: Chain) -> None:
        self.context, self.chain = context, chain
        self.stages: dict[str, set[str]] = {}
        for tensor in context.index.tensors:
            if tensor.path == chain.path:
                self.stages.setdefault(tensor.producer.function, set()).add(tensor.stage)
        self.results = self._result_functions()

    def calls(self) -> list[_Crossing]:
        first: dict[tuple[str, str], tuple[tuple[bool, bool, int], _Crossing]] = {}
        for root in self.chain.roots:
            for call, way, crossing in self._walk(root, [], 0):
                if call.open or call.points:
                    below = any(function.id == self.chain.entry.id for function in way)
                    worth = (call.open, below, call.points)
                    first.setdefault((crossing.start, call.function.id), (worth, crossing))
        most = set(sorted(first, key=lambda key: first[key][0], reverse=True)[:MOST_CALLS])
        return [crossing for key, (_, crossing) in first.items() if key in most]

    def tensor(self, tensor: Tensor) -> _Crossing:
        model = DRAFT if tensor.stage.startswith(DRAFTING) else TARGET
        start = self._lane(tensor.producer.function, model)
        ends = {self._lane(place.function, model) for place in tensor.consumers} - {start}
        row = Row(
            Mark(0, [], 0, ""),
            name=tensor.name,
            shape=tensor.shape,
            dtype=tensor.dtype,
            producer=place_link(self.context, tensor.producer),
            users=len({place.function for place in tensor.consumers}),
        )
        return _Crossing(row, start, sorted(ends, key=LANES.index), f"{tensor.name} crosses from {start} to")

    def _walk(
        self, call: Call, above: list[FunctionLink], depth: int
    ) -> Iterator[tuple[Call, list[FunctionLink], _Crossing]]:
        """Calls from lane to lane, in the order of the source."""
        if depth >= DEEPEST_CALL:
            return
        way = [*above, call.function]
        start = self._lane(call.function.id, self._model(way))
        for inner in call.calls:
            end = self._lane(inner.function.id, self._model([*way, inner.function]))
            if start != end:
                row = Row(Mark(0, [], 0, ""), call=inner.function, guards=inner.guards)
                yield inner, way, _Crossing(row, start, [end], f"{start} calls")
            yield from self._walk(inner, way, 0 if inner.entry else depth + 1)

    def _lane(self, function: str, model: str) -> str:
        if function in self.results:
            return RESULT
        lane = OF_COMPONENT.get(self.context.component(function), OTHER)
        return model if lane == TARGET else lane

    def _model(self, way: list[FunctionLink]) -> str:
        """Which model code runs for: the target where its worker asks, else as the nearest caller's stage says."""
        if any(function.component == TARGET_WORKER for function in way):
            return TARGET
        for function in reversed(way):
            drafts = {stage.startswith(DRAFTING) for stage in self.stages.get(function.id, ())}
            if len(drafts) == 1:
                return DRAFT if drafts == {True} else TARGET
        return TARGET

    def _result_functions(self) -> set[str]:
        """What the event loop calls beside the way to the worker to read the result, within the scheduler's lane."""
        readers = {
            access.function for field in self.context.index.fields if field.role == "result" for access in field.reads
        }
        inside: set[str] = set()
        outside: set[str] = set()
        for root in self.chain.roots:
            for call in root.calls:
                found = self._within_scheduler(call.function.id)
                reads = not call.open and bool(found & readers)
                (inside if reads else outside).update(found)
        return inside - outside

    def _within_scheduler(self, start: str) -> set[str]:
        graph, path = self.context.graph, self.chain.path
        found = {start}
        queue = deque(found)
        while queue:
            for edge in graph.calls.get(queue.popleft(), []):
                function = graph.functions.get(edge.callee)
                if function is None or edge.callee in found or path not in function.paths or STEP not in function.phase:
                    continue
                if OF_COMPONENT.get(self.context.component(edge.callee)) == SCHEDULER:
                    found.add(edge.callee)
                    queue.append(edge.callee)
        return found


def _drawn(found: dict[str, list[_Crossing]], order: list[str]) -> dict[str, list[Row]]:
    at = {name: LANE * number + LANE // 2 for number, name in enumerate(order)}
    return {path: _joined([_row(crossing, at) for crossing in crossings]) for path, crossings in found.items()}


def _joined(rows: list[Row]) -> list[Row]:
    """Tensors that read the same as one row, where the first of them stands."""
    found: dict[object, list[Row]] = {}
    for number, row in enumerate(rows):
        key = (row.name, row.shape, row.mark.start, *row.mark.ends) if row.call is None else number
        found.setdefault(key, []).append(row)
    return [replace(same[0], same=len(same), users=max(row.users for row in same)) for same in found.values()]


def _row(crossing: _Crossing, at: dict[str, int]) -> Row:
    row = crossing.row
    ends = [at[name] for name in crossing.ends]
    mark = Mark(at[crossing.start], ends, LANES.index(crossing.start), f"{crossing.text} {', '.join(crossing.ends)}")
    return replace(row, mark=mark)
