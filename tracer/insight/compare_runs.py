"""Recorded runs set side by side: one table by batch size, where the curves cross, and what a switch would need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sgltrace.insight.crossing import Band, Crossing, Ratio, advised, bands, crossing, ratio
from sgltrace.insight.figures import RunFigures
from sgltrace.runtime import Aggregate

FEW = 20
"""Timed steps below which a batch size is said to have few."""
OTHER_LENGTH = 1.25
"""Times longer from which contexts are said to differ."""


class Cell(msgspec.Struct, kw_only=True):
    """One run at one batch size. None is what was not recorded."""

    steps: int
    timed: int
    speculation: str
    period_ms: dict[str, float | None]
    host_share: float | None
    tokens_per_s: float | None
    tokens_per_s_error: float | None
    accept_length: float | None
    tokens_per_verify: float | None
    slots_per_token: float | None
    replayed: float | None
    speed_up: Ratio | None = None
    """Against the baseline at the same batch size."""


class Row(msgspec.Struct, kw_only=True):
    """One batch size; runs that never had it are missing."""

    batch: int
    runs: dict[str, Cell]


class Side(msgspec.Struct, kw_only=True):
    """A run, as it was configured."""

    name: str
    release: str | None
    what: str
    rank: str
    baseline: bool


class AfterStep(msgspec.Struct, kw_only=True):
    """The steps that came so many after a switch: what they took beyond the usual, and what they accepted."""

    at: int
    steps: int
    extra_ms: float
    accept_length: float | None


class SwitchCost(msgspec.Struct, kw_only=True):
    """What a switch to ``on`` or ``off`` cost in a run that switches."""

    run: str
    to: str
    switches: int
    extra_ms: float
    after: list[AfterStep]


class Switch(msgspec.Struct, kw_only=True):
    """Where a run falls below the baseline; and, if that does not speculate, what switching would need."""

    on: str
    off: str
    crossing: Crossing | None
    why_none: str = ""
    slower_below: list[int] = []
    """Batch sizes smaller than the crossing at which the run is slower as well."""
    off_from: int | None = None
    """The least batch size from which off pays; None where neither of the two is off."""
    advised: Band | None = None
    bands: list[Band] = []
    batches_of: str = ""
    """The run whose batches the hysteresis was tried on."""
    batches_partly: bool = False
    """Whether some of its steps are not in the trace, so that batches may have changed in between."""


class RunComparison(msgspec.Struct, kw_only=True):
    """The whole comparison; ``batch_sizes`` and ``crossing`` are its heart."""

    runs: list[Side]
    batch_sizes: list[Row]
    crossing: Crossing | None
    switches: list[Switch]
    switch_costs: list[SwitchCost]
    differences: dict[str, Any] | None = None
    """What a patch changed, where two runs of one configuration are compared."""
    notes: list[str] = []


def compare_runs(runs: Sequence[RunFigures]) -> RunComparison:
    """Compare two runs or more; the first one that does not speculate is the baseline, or else the first."""
    base = next((run for run in runs if not run.speculates), runs[0])
    rows = [_row(batch, runs, base) for batch in sorted({b for run in runs for b in run.batches})]
    switches = [_switch(run, base, runs) for run in runs if run is not base]
    return RunComparison(
        runs=[
            Side(name=run.name, release=run.release, what=run.what, rank=run.rank, baseline=run is base) for run in runs
        ],
        batch_sizes=rows,
        crossing=next((switch.crossing for switch in switches if switch.crossing is not None), None),
        switches=switches,
        switch_costs=[cost for run in runs for cost in _costs(run)],
        notes=_notes(runs, rows),
    )


def _row(batch: int, runs: Sequence[RunFigures], base: RunFigures) -> Row:
    cells: dict[str, Cell] = {}
    for run in runs:
        rows = sorted((r for r in run.decoding if r.batch == batch), key=lambda r: -r.steps)
        for at, found in enumerate(rows):
            name = run.name if at == 0 else f"{run.name} ({found.speculation or 'not told'})"
            cells[name] = _cell(found)
            if run is not base:
                cells[name].speed_up = _ratio(batch, found, base.at(batch))
    return Row(batch=batch, runs=cells)


def _cell(row: Aggregate) -> Cell:
    return Cell(
        steps=row.steps,
        timed=row.timed,
        speculation=row.speculation,
        period_ms=row.period_ms,
        host_share=row.host_share,
        tokens_per_s=row.tokens_per_s,
        tokens_per_s_error=row.tokens_per_s_error,
        accept_length=row.accept_length,
        tokens_per_verify=row.tokens_per_verify,
        slots_per_token=row.slots_per_token,
        replayed=row.replayed,
    )


def _ratio(batch: int, row: Aggregate | None, base: Aggregate | None) -> Ratio | None:
    if row is None or base is None or not row.tokens_per_s or not base.tokens_per_s:
        return None
    return ratio(batch, (row.tokens_per_s, row.tokens_per_s_error), (base.tokens_per_s, base.tokens_per_s_error))


def _switch(run: RunFigures, base: RunFigures, runs: Sequence[RunFigures]) -> Switch:
    common = [batch for batch in run.batches if batch in base.batches]
    # Where a run has off steps of its own, its curve is that of its on steps.
    on = [run.at(batch, "on") or run.at(batch) for batch in common]
    found = [_ratio(batch, row, base.at(batch)) for batch, row in zip(common, on, strict=True)]
    ratios = [r for r in found if r is not None]
    crosses = crossing(ratios)
    if crosses is None:
        return Switch(on=run.name, off=base.name, crossing=None, why_none=_why_none(ratios))
    below = [r.batch for r in ratios if r.batch < crosses.batch and r.ratio < 1]
    if base.speculates or not run.speculates:
        return Switch(on=run.name, off=base.name, crossing=crosses, slower_below=below)
    off_from = int(-(-crosses.batch // 1))
    busiest = max(runs, key=lambda r: (r.speculates, sum(length for _, length in r.stays)))
    tried = bands(busiest.stays, off_from)
    return Switch(
        on=run.name,
        off=base.name,
        crossing=crosses,
        slower_below=below,
        off_from=off_from,
        advised=advised(tried),
        bands=tried,
        batches_of=busiest.name,
        batches_partly=any(row.counted for row in busiest.decoding),
    )


def _why_none(ratios: Sequence[Ratio]) -> str:
    if not ratios:
        return "no batch size was recorded by both"
    sizes = f"{ratios[0].batch} to {ratios[-1].batch}" if len(ratios) > 1 else f"{ratios[0].batch}, the only one"
    if all(r.ratio >= 1 for r in ratios):
        return f"it is faster, or as fast, at every batch size that both recorded ({sizes})"
    if all(r.ratio < 1 for r in ratios):
        return f"it is slower at every batch size that both recorded ({sizes})"
    return f"it is slower at the smaller ones and faster at the larger ones of the batch sizes recorded ({sizes})"


def _costs(run: RunFigures) -> list[SwitchCost]:
    costs = []
    for to, switches in sorted(run.switches.items()):
        steps = []
        for at in sorted({after.at for after in run.after_switch if after.to == to}):
            mine = [after for after in run.after_switch if after.to == to and after.at == at]
            usual = [run.at(after.batch or 0, to) for after in mine]
            known = [
                after.period_ns / 1e6 - row.period_ms["p50"]
                for after, row in zip(mine, usual, strict=True)
                if row is not None and row.period_ms["p50"] is not None
            ]
            lengths = [after.accepted for after in mine if after.accepted is not None]
            if known:
                steps.append(
                    AfterStep(
                        at=at,
                        steps=len(known),
                        extra_ms=sorted(known)[len(known) // 2],
                        accept_length=sum(lengths) / len(lengths) if lengths else None,
                    )
                )
        if switches and steps:
            extra = sum(step.extra_ms for step in steps)
            costs.append(SwitchCost(run=run.name, to=to, switches=switches, extra_ms=extra, after=steps))
    return costs


def _notes(runs: Sequence[RunFigures], rows: Sequence[Row]) -> list[str]:
    notes = []
    for run in runs:
        missing = [str(row.batch) for row in rows if run.name not in row.runs]
        if missing:
            notes.append(f"{run.name} has no steps at batch size {', '.join(missing)}: nothing is compared there")
        few = [str(row.batch) for row in rows if run.name in row.runs and row.runs[run.name].timed < FEW]
        if few:
            notes.append(f"{run.name} has fewer than {FEW} timed steps at batch size {', '.join(few)}")
        left_out = [
            f"{sum(r.steps for r in run.aggregates if r not in run.decoding)} steps of other modes",
            f"{sum(r.one_off for r in run.decoding)} one-off steps",
            f"{sum(r.windowed for r in run.decoding)} steps of windows",
        ]
        notes.append(f"{run.name}: not in the figures are {', '.join(p for p in left_out if not p.startswith('0 '))}")
        if run.other_ranks:
            notes.append(f"{run.name}: the figures are rank {run.rank}'s; {', '.join(run.other_ranks)} are left out")
        unknown = [str(r.batch) for r in run.decoding if r.tokens_per_s is None and r.timed]
        if unknown:
            notes.append(f"{run.name}: tokens kept were not recorded at batch size {', '.join(sorted(set(unknown)))}")
    notes += _context(runs, rows)
    releases = sorted({run.release or "an unknown release" for run in runs})
    if len(releases) > 1:
        notes.append(f"the runs are of different releases: {', '.join(releases)}")
    models = sorted({str(run.config.get("model_path")) for run in runs if run.config.get("model_path")})
    if len(models) > 1:
        notes.append(f"the runs are of different models: {', '.join(models)}")
    return [note for note in notes if not note.endswith("figures are ")]


def _context(runs: Sequence[RunFigures], rows: Sequence[Row]) -> list[str]:
    """Where the runs' requests were of other lengths, which changes what attention costs."""
    found = []
    for row in rows:
        lengths = {
            run.name: at.context for run in runs if (at := run.at(row.batch)) is not None and at.context is not None
        }
        if len(lengths) > 1 and max(lengths.values()) > OTHER_LENGTH * min(lengths.values()):
            told = ", ".join(f"{name} {value:.0f}" for name, value in lengths.items())
            found.append(f"at batch size {row.batch} the requests' lengths differ: {told} tokens in the KV cache")
    return found
