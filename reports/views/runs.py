"""The pages of recorded runs: steps over time, shapes, ranks beside each other, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sgltrace.insight.observed import Run, Step
from sgltrace.reports.context import Context
from sgltrace.reports.links import addresses
from sgltrace.reports.views.chart import Chart, Series, chart
from sgltrace.reports.views.common import FunctionLink, PointRow, function_link, point_row
from sgltrace.reports.views.seen import ORDER, SeenTable, seen_table, verdict_rank

TELLING = ("spec", "topk", "num_", "graph", "page", "overlap", "model", "attention_backend", "tp_size", "dp_size")
"""What is in the names of options that a reader wants at once."""
LAST = 12
"""Steps shown before the end."""


@dataclass(frozen=True)
class EdgeRow:
    """A call that ran."""

    caller: FunctionLink
    callee: FunctionLink
    count: int


@dataclass(frozen=True)
class Difference:
    """A step on which the ranks did not do the same."""

    number: int
    what: str
    values: list[tuple[int, str]]


@dataclass(frozen=True)
class ModeRow:
    """Steps that ran alike, of all ranks: forward mode, how, and the batch size that a graph was captured for."""

    mode: str
    how: str
    padded: int | None
    live: str
    """From the fewest requests to the most."""
    steps: int


@dataclass(frozen=True)
class RunPage:
    """Everything on a run's page."""

    run: Run
    file: str
    steps: int
    charts: list[Chart]
    points: list[tuple[PointRow, str]]
    """Coupling points that the run confirms or refutes, what is refuted first."""
    silent: int
    """Coupling points of which it says nothing."""
    modes: list[ModeRow]
    differences: list[Difference]
    differing: int
    seen: SeenTable
    tensors: int
    refuted: int
    last: list[Step]
    config: list[tuple[str, int | str | None]]
    """Options that concern speculation, graphs, pages or scheduling by their names."""
    other_config: list[tuple[str, int | str | None]]
    edges: int
    missing: list[EdgeRow]


def run_pages(context: Context) -> list[RunPage]:
    """A page for each run."""
    files = dict(addresses("runs", [run.name for run in context.runs]))
    return [_page(context, run, files[run.name]) for run in context.runs]


def _page(context: Context, run: Run, file: str) -> RunPage:
    differences = _differences(run)
    by_id = {point.id: point for point in context.index.coupling_points}
    said = [(by_id[e.point], e.verdict) for e in run.points if e.point in by_id and e.verdict in ORDER]
    said.sort(key=lambda pair: (verdict_rank(pair[1]), pair[0].rank or 10**6, pair[0].id))
    return RunPage(
        run=run,
        file=file,
        steps=len({step.number for step in run.steps}),
        charts=[drawn for drawn in _charts(run) if drawn is not None],
        points=[(point_row(context, point), verdict) for point, verdict in said],
        silent=len(by_id) - len(said),
        modes=_modes(run),
        differences=differences[:LAST],
        differing=len(differences),
        seen=seen_table(context, run.tensors),
        tensors=sum(bool(seen.shapes) for seen in run.tensors),
        refuted=sum(seen.verdict == "refuted" for seen in run.tensors),
        last=sorted(run.steps, key=lambda step: (step.number, step.rank))[-LAST * max(1, len(run.ranks)) :],
        config=[item for item in sorted(run.config.items()) if _telling(*item)],
        other_config=[item for item in sorted(run.config.items()) if not _telling(*item)],
        edges=len(run.edges),
        missing=[
            EdgeRow(function_link(context, caller), function_link(context, callee), count)
            for caller, callee, count in sorted(run.missing_edges, key=lambda edge: (-edge[2], edge[0], edge[1]))
        ],
    )


def _modes(run: Run) -> list[ModeRow]:
    found: dict[tuple[str, str, int], list[Step]] = {}
    for step in run.steps:
        found.setdefault((step.mode, step.how, step.padded or 0), []).append(step)
    rows = []
    for (mode, how, padded), steps in sorted(found.items()):
        live = [step.batch for step in steps if step.batch is not None]
        told = "" if not live else str(min(live)) if min(live) == max(live) else f"{min(live)} to {max(live)}"
        rows.append(ModeRow(mode or "not recorded", how or "not recorded", padded or None, told, len(steps)))
    return rows


def _telling(name: str, value: int | str | None) -> bool:
    return value not in (None, "") and any(word in name for word in TELLING)


def _charts(run: Run) -> list[Chart | None]:
    ranks = run.ranks or sorted({step.rank for step in run.steps})
    first = ranks[:1]

    def per_rank(value: Callable[[Step], float | None]) -> list[Series]:
        return [_series(run, f"rank {rank}" if len(ranks) > 1 else "", rank, value) for rank in ranks]

    def of_first(name: str, value: Callable[[Step], float | None]) -> list[Series]:
        return [_series(run, name, rank, value) for rank in first]

    return [
        chart("Batch size", "requests", of_first("live", lambda s: s.batch) + of_first("padded", lambda s: s.padded)),
        chart("Mean accept length", "tokens", per_rank(_accepted)),
        chart("Step time", "ms", per_rank(lambda s: s.duration_ms)),
        chart(
            "KV slots",
            "slots",
            of_first("allocated", lambda s: s.allocated) + of_first("committed", lambda s: s.committed),
        ),
    ]


def _series(run: Run, name: str, rank: int, value: Callable[[Step], float | None]) -> Series:
    points = [(step.number, found) for step in run.steps if step.rank == rank and (found := value(step)) is not None]
    return Series(name, sorted(points))


def _accepted(step: Step) -> float | None:
    return sum(step.accept_lens) / len(step.accept_lens) if step.accept_lens else None


def _differences(run: Run) -> list[Difference]:
    """Steps where ranks differ in what must agree among them."""
    by_number: dict[int, list[Step]] = {}
    for step in run.steps:
        by_number.setdefault(step.number, []).append(step)
    found = []
    for number, steps in sorted(by_number.items()):
        for what in ("mode", "how", "batch", "padded", "accept_lens"):
            values = [(step.rank, str(getattr(step, what))) for step in sorted(steps, key=lambda step: step.rank)]
            if len({value for _, value in values}) > 1:
                found.append(Difference(number, what.replace("_", " "), values))
    return found
