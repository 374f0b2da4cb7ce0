"""The figures of a run as a table of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sgltrace.terminal import columns

from .aggregate import Aggregate

HEAD = (
    "rank", "mode", "speculation", "batch", "steps", "period ms", "p99", "host", "waits", "GPU ms", "tok/s", "accepted",
    "per verify", "slots/token", "replayed", "graph",
)  # fmt: skip
LEGEND = (
    "period: from a step's start to the next one's, median and p99; host: the part of it inside run_batch; "
    "waits: the part in which the host waited for the device in an event; "
    "accepted: tokens that a request kept of a verify, the bonus token included; per verify: the whole batch's; "
    "slots/token: KV slots asked for, for each token kept; graph: mean size of the graphs replayed."
)


def aggregate_lines(rows: Iterable[Aggregate]) -> Iterator[str]:
    """The table, what it leaves out, and what its columns mean."""
    found = list(rows)
    if not found:
        return
    yield from columns(HEAD, figure_rows(found))
    left_out = excluded(found)
    if left_out:
        yield f"not in the times: {left_out}"
    yield LEGEND


def figure_rows(found: Sequence[Aggregate]) -> list[list[str]]:
    """The cells of the table under ``HEAD``; the rank is empty where there is one."""
    ranks = {row.rank for row in found}
    return [_cells(row, len(ranks) > 1) for row in found]


def excluded(rows: Iterable[Aggregate]) -> str:
    """What the times leave out, in words; empty where nothing."""
    found = list(rows)
    once, spent = sum(row.one_off for row in found), sum(row.one_off_ms for row in found)
    some = sum(row.counted for row in found)
    windowed, last = sum(row.windowed for row in found), sum(row.last_of_mode for row in found)
    parts = [
        f"{_steps(once)} in which something was compiled, or early ones of more than three times the usual period "
        f"({spent / 1000:.1f} s)"
        if once
        else "",
        f"{_steps(windowed)} that a window slowed down" if windowed else "",
        f"{_steps(last)} after which another mode or a wait came" if last else "",
        f"at {some} batch sizes not all steps are in the trace; those figures are what was counted" if some else "",
    ]
    return "; ".join(part for part in parts if part)


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def _cells(row: Aggregate, ranks: bool) -> list[str]:
    return [
        row.rank if ranks else "",
        row.mode,
        row.speculation,
        "" if row.batch is None else str(row.batch),
        str(row.steps),
        number(row.period_ms["p50"], 2),
        number(row.period_ms["p99"], 2),
        percent(row.host_share),
        percent(row.waiting),
        number(row.gpu_ms, 2),
        number(row.tokens_per_s, 0),
        number(row.accept_length, 2),
        number(row.tokens_per_verify, 1),
        number(row.slots_per_token, 2),
        percent(row.replayed),
        number(row.padded, 1),
    ]


def number(value: float | None, digits: int) -> str:
    """A number with so many digits after the point; empty where it is not known."""
    return "" if value is None else f"{value:.{digits}f}"


def percent(share: float | None) -> str:
    """A share in percent; empty where it is not known."""
    return "" if share is None else f"{100 * share:.0f}%"
