"""Distributions that take no more room however many values there are, and can be added up."""

from __future__ import annotations

import math
from collections.abc import Iterable

_RATIO = 1.005
"""Each bin is half a percent wide: a quantile read off is within a quarter of a percent."""
_LOG = math.log(_RATIO)
_BLOCKS = 64


class Histogram:
    """Times in nanoseconds, in bins of half a percent. The sum is exact."""

    __slots__ = ("bins", "count", "total")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self.bins: dict[int, int] = {}
        self.count = 0
        self.total = 0
        for value in values:
            self.add(value)

    def add(self, ns: int, times: int = 1) -> None:
        """Count a time."""
        number = int(math.log(ns) / _LOG) if ns > 0 else 0
        self.bins[number] = self.bins.get(number, 0) + times
        self.count += times
        self.total += ns * times

    def merge(self, other: Histogram) -> None:
        """Count in what another one has counted."""
        for number, times in other.bins.items():
            self.bins[number] = self.bins.get(number, 0) + times
        self.count += other.count
        self.total += other.total

    def quantile(self, share: float) -> float | None:
        """The time that ``share`` of all lie at or below, to a quarter of a percent; None where there is none."""
        if not self.count:
            return None
        wanted = max(1, math.ceil(share * self.count))
        for number in sorted(self.bins):
            wanted -= self.bins[number]
            if wanted <= 0:
                return float(_RATIO ** (number + 0.5))
        return None

    @property
    def mean(self) -> float | None:
        """The mean in nanoseconds."""
        return self.total / self.count if self.count else None


class Rate:
    """Tokens over time, with how sure the quotient is.

    Steps that follow each other are alike, so single steps would promise too much: the sums of blocks of steps are
    kept, at most 64 of them; when they are full, every two become one.
    """

    __slots__ = ("_blocks", "_open", "_size", "ns", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.ns = 0
        self._blocks: list[tuple[int, int]] = []
        self._open = [0, 0, 0]
        self._size = 1

    def add(self, tokens: int, ns: int) -> None:
        """Count a step."""
        self.tokens += tokens
        self.ns += ns
        block = self._open
        block[0] += tokens
        block[1] += ns
        block[2] += 1
        if block[2] >= self._size:
            self._blocks.append((block[0], block[1]))
            self._open = [0, 0, 0]
            if len(self._blocks) >= _BLOCKS:
                pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
                self._blocks = [(a + c, b + d) for (a, b), (c, d) in pairs]
                self._size *= 2

    def merge(self, other: Rate) -> None:
        """Count in what another one has counted."""
        self.tokens += other.tokens
        self.ns += other.ns
        self._blocks += other._blocks

    @property
    def per_second(self) -> float | None:
        """Tokens a second; None where nothing was counted."""
        return self.tokens * 1e9 / self.ns if self.ns else None

    @property
    def relative_error(self) -> float | None:
        """Standard error of the quotient over the quotient, from how blocks of steps differ; None for too few."""
        blocks = [(t, n) for t, n in self._blocks if n]
        if len(blocks) < 5 or not self.tokens:
            return None
        tokens, ns = sum(t for t, _ in blocks), sum(n for _, n in blocks)
        if not tokens or not ns:
            return None
        rate, count = tokens / ns, len(blocks)
        off = sum((t - rate * n) ** 2 for t, n in blocks) / (count * (count - 1))
        return float(math.sqrt(off) / (tokens / count))
