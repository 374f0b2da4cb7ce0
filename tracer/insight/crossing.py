"""Where the curves of two runs cross, and what a switch between the two would need.

Everything is by batch size. A ratio is tokens a second with speculation over those without; its uncertainty is that of
both runs. Between the sizes that both recorded, the ratio's logarithm is taken to be straight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

SIGMAS = 2.0
"""Standard errors to either side of a ratio: 95 % where they are known well."""
NEAR_SWITCH = 4
"""Steps after a switch that it is taken to disturb."""
DISTURBED = 0.05
"""The part of the steps that a hysteresis may leave disturbed."""


class Ratio(msgspec.Struct, frozen=True):
    """A speed-up at one batch size; ``low`` and ``high`` are None where too few steps tell."""

    batch: int
    ratio: float
    low: float | None
    high: float | None


class Crossing(msgspec.Struct, frozen=True):
    """The batch size at which a ratio passes 1, downwards; ``low`` to ``high`` is how sure that is.

    None for an end means that the curve's edge does not cross at any size that both runs have.
    """

    batch: float
    low: float | None
    high: float | None


class Band(msgspec.Struct, frozen=True):
    """One hysteresis: off from ``off_from`` requests on, on again at ``on_at`` and fewer."""

    off_from: int
    on_at: int
    switches: int
    steps_between: float | None
    """Mean number of steps from one switch to the next."""
    disturbed: float
    """The part of the steps that come right after a switch."""


def ratio(batch: int, fast: tuple[float, float | None], slow: tuple[float, float | None]) -> Ratio:
    """The quotient of two rates, each with its relative standard error."""
    value = fast[0] / slow[0]
    if fast[1] is None or slow[1] is None:
        return Ratio(batch, value, None, None)
    spread = math.exp(SIGMAS * math.hypot(fast[1], slow[1]))
    return Ratio(batch, value, value / spread, value * spread)


def crossing(ratios: Sequence[Ratio]) -> Crossing | None:
    """Where the ratio first falls below 1 as batches grow; None where it does not."""
    middle = _passes_one([(r.batch, r.ratio) for r in ratios])
    if middle is None:
        return None
    low = _passes_one([(r.batch, r.low) for r in ratios if r.low is not None])
    high = _passes_one([(r.batch, r.high) for r in ratios if r.high is not None])
    return Crossing(middle, None if low is None else min(low, middle), None if high is None else max(high, middle))


def _passes_one(points: Iterable[tuple[int, float]]) -> float | None:
    for (batch, value), (larger, then) in pairwise(points):
        if value >= 1 > then:
            above, below = math.log(value), math.log(then)
            return batch + (larger - batch) * above / (above - below)
    return None


def bands(stays: Sequence[Sequence[int]], off_from: int) -> list[Band]:
    """What would have happened to recorded batches under each hysteresis, from none to the widest that makes sense.

    ``stays`` are batch sizes in order, each with how many steps it stayed.
    """
    found = []
    for on_at in range(off_from - 1, 0, -1):
        switches = _switches(stays, off_from, on_at)
        steps = sum(length for _, length in stays)
        disturbed = min(1.0, switches * NEAR_SWITCH / steps) if steps else 0.0
        found.append(Band(off_from, on_at, switches, steps / switches if switches else None, disturbed))
        if not switches:
            break
    return found


def advised(found: Sequence[Band]) -> Band | None:
    """The narrowest hysteresis that keeps the steps right after a switch rare; None where none does."""
    return next((band for band in found if band.disturbed <= DISTURBED), None)


def _switches(stays: Sequence[Sequence[int]], off_from: int, on_at: int) -> int:
    count, off = 0, None
    for batch, _ in stays:
        wanted = True if batch >= off_from else False if batch <= on_at else off
        count += off is not None and wanted != off
        off = wanted
    return count
