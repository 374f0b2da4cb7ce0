"""A comparison of runs in lines of text. The report says the same in the same words."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.insight.compare_runs import Cell, RunComparison, Switch, SwitchCost
from sgltrace.insight.crossing import NEAR_SWITCH, Band
from sgltrace.terminal import columns

HEAD = ("batch", "run", "steps", "period ms", "p99", "host", "tok/s", "speed-up", "accepted", "slots/token", "replayed")
_BAR = 48


def table_lines(found: RunComparison) -> Iterator[str]:
    """The table: a line for each batch size and run."""
    yield from columns(HEAD, table_rows(found))


def table_rows(found: RunComparison) -> list[list[str]]:
    """The cells of the table, as text."""
    rows = []
    for row in found.batch_sizes:
        for at, (name, cell) in enumerate(row.runs.items()):
            rows.append(["" if at else str(row.batch), name, *_cells(cell)])
    return rows


def _cells(cell: Cell) -> list[str]:
    return [
        str(cell.steps),
        _number(cell.period_ms["p50"], 2),
        _number(cell.period_ms["p99"], 2),
        _percent(cell.host_share),
        _number(cell.tokens_per_s, 0),
        speed_up_text(cell),
        _number(cell.accept_length, 2),
        _number(cell.slots_per_token, 2),
        _percent(cell.replayed),
    ]


def speed_up_text(cell: Cell) -> str:
    """``0.46 (0.45 to 0.47)``, or without the range where too few steps tell one."""
    told = cell.speed_up
    if told is None:
        return ""
    if told.low is None or told.high is None:
        return f"{told.ratio:.2f}"
    return f"{told.ratio:.2f} ({told.low:.2f} to {told.high:.2f})"


def plot_lines(found: RunComparison) -> list[str]:
    """Tokens a second as bars, by batch size."""
    cells = [(row.batch, name, cell) for row in found.batch_sizes for name, cell in row.runs.items()]
    top = max((cell.tokens_per_s or 0 for _, _, cell in cells), default=0)
    if not top:
        return []
    width = max(len(name) for _, name, _ in cells)
    lines, before = [], None
    for batch, name, cell in cells:
        bar = "█" * max(1, round(_BAR * (cell.tokens_per_s or 0) / top)) if cell.tokens_per_s else "not recorded"
        shown = "" if batch == before else str(batch)
        lines.append(f"{shown:>5} {name:<{width}} {bar} {_number(cell.tokens_per_s, 0)}".rstrip())
        before = batch
    return lines


def switch_lines(found: RunComparison) -> list[str]:
    """Where curves cross, from which batch size off pays, and which hysteresis keeps the switch from flapping."""
    return [line for switch in found.switches for line in _switch(switch)]


def _switch(switch: Switch) -> Iterator[str]:
    crosses = switch.crossing
    if crosses is None:
        yield f"{switch.on} does not cross {switch.off} from above: {switch.why_none}"
        return
    sure = ""
    if crosses.low is not None and crosses.high is not None:
        sure = f" (between {crosses.low:.1f} and {crosses.high:.1f} at 95 %)"
    pays = "" if switch.off_from is None else f": off pays from {switch.off_from} on"
    yield f"{switch.on} falls below {switch.off} at a batch of {crosses.batch:.1f}{sure}{pays}"
    if switch.slower_below:
        yield f"it is slower at a batch of {', '.join(map(str, switch.slower_below))} as well"
    if crosses.low is None or crosses.high is None:
        yield "how sure that is cannot be said: too few steps, or the curve's edge stays on one side of 1"
    if not switch.bands:
        return
    none = switch.bands[0]
    partly = ", as far as its steps are in the trace" if switch.batches_partly else ""
    yield (
        f"on the batches of {switch.batches_of}{partly}, off from {none.off_from} and on below it would have switched "
        f"{_switches(none)}"
    )
    if switch.advised is None:
        last = switch.bands[-1]
        yield f"no hysteresis keeps switches rare there: on again at {last.on_at} still switches {_switches(last)}"
    elif switch.advised.on_at != none.on_at:
        yield f"off from {none.off_from}, on again at {switch.advised.on_at}: {_switches(switch.advised)}"


def _switches(band: Band) -> str:
    if not band.switches:
        return "never"
    return (
        f"{band.switches} time{'s' * (band.switches != 1)}, every {band.steps_between or 0:.0f} steps; "
        f"{100 * band.disturbed:.0f}% of the steps are among the {NEAR_SWITCH} after a switch"
    )


def cost_lines(found: RunComparison) -> list[str]:
    """What one switch costs, in runs that switch."""
    if not found.switch_costs:
        return ["what one switch costs: not recorded, no run switches between on and off"]
    return [_cost(cost) for cost in found.switch_costs]


def _cost(cost: SwitchCost) -> str:
    steps = ", ".join(f"{step.extra_ms:+.2f}" for step in cost.after)
    lengths = [step.accept_length for step in cost.after if step.accept_length is not None]
    accepted = f"; accepted {', '.join(f'{length:.2f}' for length in lengths)}" if cost.to == "on" and lengths else ""
    times = f"{cost.switches} switch{'es' * (cost.switches != 1)}"
    return (
        f"{cost.run}, to {cost.to}: the {len(cost.after)} steps after it took {cost.extra_ms:+.2f} ms beyond the usual "
        f"({steps}{accepted}; {times})"
    )


def difference_lines(found: RunComparison) -> list[str]:
    """What a patch changed; empty where runs of other configurations are compared."""
    told = found.differences
    if told is None:
        return []
    lines = [
        f"{row['function']} {row['value']} at batch {row['batch']}: {' or '.join(row['before'])} before, "
        f"{' or '.join(row['after'])} after"
        for row in told["shapes"]
    ]
    lines += [
        f"{row['function']} {row['value']} at batch {row['batch']}: only {row['in']}"
        for row in told["values_of_one_run"]
    ]
    for side, functions in told["functions_of_one_run"].items():
        lines += [f"{function} was recorded only {side}" for function in functions]
    lines += [
        f"slots for each token kept at batch {row['batch']}: {row['before']:.2f} before, {row['after']:.2f} after"
        for row in told["allocations"]
    ]
    if told["left_out"]:
        lines.append(f"and {told['left_out']} more")
    return lines or ["no shape and no allocation"]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}%"
