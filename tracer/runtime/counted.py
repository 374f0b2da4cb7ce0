"""Figures of steps that are not all in the trace: light ones are sampled, old segments go; what was counted is true."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from .histogram import Kind
from .probe import wire
from .step import DECODE, OFF, ON, PLAIN
from .trace import ProcessTrace

if TYPE_CHECKING:
    from .aggregate import Aggregate


def counted(process: ProcessTrace) -> list[Kind]:
    """What the process counted of every step; empty where it did not, or its file is damaged."""
    try:
        return process.histogram()
    except (OSError, ValueError) as error:
        process.loss.why.append(f"{process.name}.hist: {error}")
        return []


def with_counted(rows: Sequence[Aggregate], kinds: Sequence[Kind], speculates: bool) -> list[Aggregate]:
    """The rows, with those that lack steps taken from what was counted."""
    found = {(row.mode, row.speculation, row.batch): row for row in rows}
    together: dict[tuple[str, str, int | None], Kind] = {}
    for kind in kinds:
        key = (kind.mode, _speculation(kind, speculates), kind.size if kind.size >= 0 else None)
        if key in together:
            together[key].add(kind)
        else:
            together[key] = msgspec.structs.replace(kind)
    for key, kind in together.items():
        row = found.get(key)
        if row is not None and kind.steps > row.steps:
            found[key] = _from_counts(row, kind)
    return [found[key] for key in sorted(found, key=lambda key: (key[0], key[2] or 0, key[1]))]


def _speculation(kind: Kind, speculates: bool) -> str:
    if DECODE not in kind.mode:
        return ""
    if not speculates:
        return PLAIN
    return OFF if kind.width == 1 else ON


def _from_counts(row: Aggregate, kind: Kind) -> Aggregate:
    """A row with everything that was counted; the rest stays that of the steps that are in the trace."""
    lengths = {at: times for at, times in enumerate(kind.kept_per_request, 1) if times}
    changed = {
        "period_ms": {
            "p50": _ms(kind.quantile(0.5)),
            "p99": _ms(kind.quantile(0.99)),
            "mean": _ms(kind.period_ns),
        },
        "tokens_per_s": kind.tokens_per_s,
        "tokens_per_s_error": _relative_error(kind),
        "accept_length": kind.accept_length if lengths else None,
        "accept_histogram": lengths,
        "tokens_per_verify": kind.kept_per_step if lengths else None,
        "replayed": kind.replay_share,
        "padded": kind.padded_mean,
        "waiting": kind.wait_ns / kind.wait_period_ns if kind.wait_period_ns else None,
    }
    told = {
        name: value
        for name, value in changed.items()
        if value not in (None, {}) and (name != "period_ms" or kind.steady)
    }
    if row.speculation == PLAIN:  # nothing is accepted there; what was kept is a token for each request
        for name in ("accept_length", "accept_histogram", "tokens_per_verify"):
            told.pop(name, None)
    timed = kind.steady or row.timed
    return msgspec.structs.replace(row, steps=kind.steps, timed=timed, windowed=kind.window_steps, counted=True, **told)


def _relative_error(kind: Kind) -> float | None:
    """Standard error of the mean period over it, from the histogram; None for too few."""
    pairs = [(sum(wire.bucket_bounds(at)) / 2, count) for at, count in enumerate(kind.periods) if count]
    count = sum(n for _, n in pairs)
    if count < _ALIKE * 5:
        return None
    mean = sum(ns * n for ns, n in pairs) / count
    spread = sum(n * (ns - mean) ** 2 for ns, n in pairs) / (count - 1)
    return math.sqrt(spread * _ALIKE / count) / mean


_ALIKE = 16
"""Steps that follow each other are alike: so many of them are taken to tell as much as one does."""


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
