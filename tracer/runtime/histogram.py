"""What a process counted of every step, by mode, batch size and width: true also where steps were recorded lightly,
every so often only, or dropped again.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from .decode import open_regular
from .probe import wire


class Kind(msgspec.Struct, kw_only=True):
    """The steps of one kind. Times are nanoseconds; counters are those of ``wire.HIST_COUNTERS``."""

    mode: str
    size: int
    """Requests in the batch; -1 where it was not known."""
    width: int
    """Tokens verified for each request; -1 where the engine does not say."""
    steps: int
    run_ns: int
    turns: int
    turn_ns: int
    replayed: int
    eager: int
    padded: int
    padded_steps: int
    replays: int
    replays_steps: int
    compiled_steps: int
    window_steps: int
    steady: int
    steady_ns: int
    wait_ns: int
    wait_steps: int
    wait_period_ns: int
    changed: int
    changed_ns: int
    odd: int
    odd_ns: int
    results: int
    kept: int
    kept_per_request: tuple[int, ...]
    """How many requests kept 1, 2, ... tokens of a step; the last counts that many and more."""
    periods: tuple[int, ...]
    """Histogram of the steady periods, by ``wire.period_bucket``."""

    @property
    def period_ns(self) -> float | None:
        """The mean steady period, exactly."""
        return self.steady_ns / self.steady if self.steady else None

    def quantile(self, share: float) -> float | None:
        """The steady period below which ``share`` of them lie, in ns, to 2 %; None where there is none."""
        return quantile(self.periods, share)

    @property
    def accept_length(self) -> float | None:
        """Tokens kept for a request and step, the bonus token included."""
        requests = self.results * self.size
        return self.kept / requests if requests > 0 else None

    @property
    def kept_per_step(self) -> float | None:
        """Tokens kept in a step, over all requests."""
        return self.kept / self.results if self.results else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens kept a second in steady steps; None where one of the two is not known."""
        period, kept = self.period_ns, self.kept_per_step
        return kept / period * 1e9 if period and kept is not None else None

    @property
    def replay_share(self) -> float | None:
        """The part of the steps whose target pass was a graph's replay."""
        known = self.replayed + self.eager
        return self.replayed / known if known else None

    @property
    def padded_mean(self) -> float | None:
        """The mean batch size of the graphs that were replayed."""
        return self.padded / self.padded_steps if self.padded_steps else None

    @property
    def host_share(self) -> float | None:
        """The part of the period in which the host did not wait for the device in an event.

        Waiting in a copy to the host (``.cpu()``, ``.tolist()``) is not seen, and counts as the host's.
        """
        return 1 - self.wait_ns / self.wait_period_ns if self.wait_period_ns else None

    def add(self, other: Kind) -> None:
        """Count ``other`` in: the same kind on another rank, or in another run."""
        for name in wire.HIST_COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        pairs = zip(self.kept_per_request, other.kept_per_request, strict=True)
        self.kept_per_request = tuple(a + b for a, b in pairs)
        self.periods = tuple(a + b for a, b in zip(self.periods, other.periods, strict=True))


def quantile(periods: tuple[int, ...], share: float) -> float | None:
    """Where ``share`` of a histogram of periods lies below, in ns, interpolated within its bucket."""
    total = sum(periods)
    if not total:
        return None
    rank = share * total
    for bucket, count in enumerate(periods):
        if count and rank <= count:
            low, high = wire.bucket_bounds(bucket)
            return low + (high - low) * max(rank, 0.5) / count if count > 1 else (low + high) / 2
        rank -= count
    return float(wire.bucket_bounds(len(periods) - 1)[1])


def read_histogram(path: Path) -> list[Kind]:
    """The kinds of steps in ``<name>.hist``, in the order they were met. Raises ``ValueError``, ``OSError``."""
    with open_regular(path) as file:
        data = file.read(wire.HIST_HEADER_SIZE + wire.HIST_SLOTS * wire.HIST_SLOT_SIZE)
    if not any(data[: wire.HIST_HEADER.size]):
        return []  # the process ended before it had written anything here
    if len(data) < wire.HIST_HEADER.size or data[:8] != wire.HIST_MAGIC:
        raise ValueError(f"{path.name} is no histogram of a trace")
    _, version, slot_size, slots, used = wire.HIST_HEADER.unpack_from(data)
    if version not in wire.READABLE or slot_size != wire.HIST_SLOT_SIZE:
        raise ValueError(f"{path.name} has version {version}, this sgltrace reads version {wire.VERSION}")
    kinds = []
    for number in range(min(used, slots)):
        offset = wire.HIST_HEADER_SIZE + number * slot_size
        if offset + wire.HIST_SLOT.size > len(data):
            break
        mode, size, width, *rest = wire.HIST_SLOT.unpack_from(data, offset)
        counted = len(wire.HIST_COUNTERS)
        kinds.append(
            Kind(
                mode=mode.rstrip(b"\0").decode("utf-8", "replace"),
                size=size,
                width=width,
                kept_per_request=tuple(rest[counted : counted + wire.HIST_KEPT]),
                periods=tuple(rest[counted + wire.HIST_KEPT :]),
                **dict(zip(wire.HIST_COUNTERS, rest[:counted], strict=True)),
            )
        )
    return kinds
