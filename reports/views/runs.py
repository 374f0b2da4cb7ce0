"""The pages of recorded runs: steps over time, shapes, ranks beside each other, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sgltrace.insight.observed import Run, Step
from sgltrace.insight.off_step import design
from sgltrace.reports.context import Context
from sgltrace.reports.links import addresses
from sgltrace.reports.views.chart import Chart, Series, chart
from sgltrace.reports.views.common import FunctionLink, PointRow, function_link, point_row
from sgltrace.reports.views.seen import ORDER, SeenTable, seen_table, verdict_rank
from sgltrace.runtime.tables import HEAD as FIGURES_HEAD
from sgltrace.runtime.tables import LEGEND, excluded, figure_rows

TELLING = ("spec", "topk", "num_", "graph", "page", "overlap", "model", "attention_backend", "tp_size", "dp_size")
"""What is in the names of options that a reader wants at once."""
BEYOND = 20.0
"""Times the median period above which a step is not drawn."""
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
    kind: str
    """The path, or that it does not speculate."""
    charts: list[Chart]
    figures: list[list[str]]
    """The table of figures by mode and batch size, under ``figures_head``."""
    figures_head: tuple[str, ...]
    excluded: str
    """What the times leave out."""
    legend: str
    histograms: list[tuple[str, list[tuple[int, int, float]]]]
    """For each batch size: accept length, how often, share."""
    points: list[tuple[PointRow, str]]
    """Coupling points of whose fields it recorded shapes, what differs from a formula first."""
    contract: list[tuple[str, str, str, str, str]]
    """Rows of the contract that its steps judge: path, field, off-step value, verdict, why."""
    silent: int
    """Coupling points of which it says nothing."""
    modes: list[ModeRow]
    differences: list[Difference]
    differing: int
    seen: SeenTable
    unmatched: SeenTable
    """What was recorded and has no formula."""
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
    rows = [*run.figures.aggregates, *run.figures.others] if run.figures is not None else []
    by_id = {point.id: point for point in context.index.coupling_points}
    said = [(by_id[e.point], e.verdict) for e in run.points if e.point in by_id and e.verdict in ORDER]
    said.sort(key=lambda pair: (verdict_rank(pair[1]), pair[0].rank or 10**6, pair[0].id))
    return RunPage(
        run=run,
        file=file,
        steps=_steps(run),
        kind=run.path or ("no speculation" if run.kinds == ["plain"] else ""),
        figures=figure_rows(rows),
        figures_head=FIGURES_HEAD,
        excluded=excluded(rows),
        legend=LEGEND,
        histograms=_histograms(run),
        contract=_contract(context, run),
        charts=[drawn for drawn in _charts(run) if drawn is not None],
        points=[(point_row(context, point), verdict) for point, verdict in said],
        silent=len(by_id) - len(said),
        modes=_modes(run),
        differences=differences[:LAST],
        differing=len(differences),
        seen=seen_table(context, run.tensors),
        unmatched=seen_table(context, run.unmatched),
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

    def per_rank(value: Callable[[Step], float | None], name: str = "") -> list[Series]:
        return [_series(run, f"{name} rank {rank}".strip() if len(ranks) > 1 else name, rank, value) for rank in ranks]

    def of_first(name: str, value: Callable[[Step], float | None]) -> list[Series]:
        return [_series(run, name, rank, value) for rank in first]

    return [
        chart("Batch size", "requests", [*of_first("live", lambda s: s.batch), *_padded(run, first)]),
        chart("Mean accept length", "tokens", per_rank(_accepted)),
        chart(
            "Step time",
            "ms",
            [
                *per_rank(lambda s: s.period_ms, "period"),
                *of_first("host", lambda s: s.host_ms),
                *of_first("GPU", lambda s: s.gpu_ms),
            ],
            _windows(run),
            _cut(run),
        ),
        chart(
            "KV slots",
            "slots",
            of_first("allocated", lambda s: s.allocated) + of_first("committed", lambda s: s.committed),
        ),
    ]


def _series(run: Run, name: str, rank: int, value: Callable[[Step], float | None]) -> Series:
    points = [(step.number, found) for step in run.steps if step.rank == rank and (found := value(step)) is not None]
    return Series(name, sorted(points))


def _steps(run: Run) -> int:
    """Steps of the run, of the rank with the most; the ones that are drawn may be fewer."""
    if run.figures is None:
        return len({step.number for step in run.steps})
    return sum(row.steps for row in run.figures.aggregates)


def _padded(run: Run, ranks: list[int]) -> list[Series]:
    """The size that each step ran with; where some do not say, the live size of those that do stands beside it."""
    found = []
    for rank in ranks:
        steps = [s for s in run.steps if s.rank == rank and s.batch is not None]
        told = [s for s in steps if s.padded is not None or s.how == "eager"]
        name = "padded"
        if told and len(told) < len(steps):
            live = sum(s.batch or 0 for s in told) / len(told)
            name = f"padded, of {len(told)} steps that say so, live there {live:.3g} on average"
        found.append(Series(name, sorted((s.number, float(s.padded or s.batch or 0)) for s in told)))
    return found


def _windows(run: Run) -> list[tuple[int, int, str]]:
    """Stretches of steps that a window slowed down."""
    found: list[tuple[int, int, str]] = []
    for step in sorted((s for s in run.steps if s.rank == 0), key=lambda s: s.number):
        if step.window and found and found[-1][2] == step.window and step.number - found[-1][1] <= 1:
            found[-1] = (found[-1][0], step.number, step.window)
        elif step.window:
            found.append((step.number, step.number, step.window))
    return found


def _cut(run: Run) -> float | None:
    """The period above which a step is left out of the chart, so that the others can be told apart."""
    periods = sorted(step.period_ms for step in run.steps if step.period_ms is not None)
    return BEYOND * periods[len(periods) // 2] if periods else None


def _histograms(run: Run) -> list[tuple[str, list[tuple[int, int, float]]]]:
    found = []
    for row in run.figures.decoding if run.figures is not None else []:
        counted = sum(row.accept_histogram.values())
        if counted:
            bars = [(length, times, times / counted) for length, times in sorted(row.accept_histogram.items())]
            found.append((f"batch {row.batch}", bars))
    return found


def _contract(context: Context, run: Run) -> list[tuple[str, str, str, str, str]]:
    """What its steps without speculation say of the contract, what differs first."""
    values = {(row.path, row.field, design(row)): row.off_step_value for row in context.index.contract}
    said = [e for e in run.contract if e.verdict in ORDER and set(run.kinds) & {"plain", "off"}]
    said.sort(key=lambda e: (verdict_rank(e.verdict), e.path, e.design, e.field))
    return [
        (
            f"{e.path} {e.design}".strip(),
            e.field,
            values.get((e.path, e.field, e.design), ""),
            e.verdict,
            e.why,
        )
        for e in said
    ]


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
