"""A run in figures, with what tells runs apart: what `compare` sets side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgltrace import runtime
from sgltrace.errors import InputError
from sgltrace.runtime import Aggregate


class RunFigures(msgspec.Struct, kw_only=True):
    """One run: its configuration, its figures by batch size, and how its batches changed."""

    name: str
    release: str | None
    config: dict[str, Any]
    rank: str
    """The rank whose figures these are."""
    other_ranks: list[str]
    aggregates: list[Aggregate]
    others: list[Aggregate] = []
    """Those of the other ranks, where they were asked for."""
    stays: list[list[int]]
    switches: dict[str, int]
    after_switch: list[runtime.AfterSwitch]

    @property
    def speculates(self) -> bool:
        """Whether any step speculated, or was one of a run that does."""
        return any(row.speculation in ("on", "off") for row in self.aggregates)

    @property
    def what(self) -> str:
        """The configuration in words: ``EAGLE3, 2 steps, topk 1, 3 draft tokens, overlap``."""
        if not self.config:
            return "configuration not recorded"
        algorithm = self.config.get("speculative_algorithm")
        overlap = {False: "overlap", True: "no overlap"}.get(self.config.get("disable_overlap_schedule", ""), "")
        if not algorithm:
            return ", ".join(part for part in ("no speculation", overlap) if part)
        parts = [
            str(algorithm),
            *(
                text.format(self.config[name])
                for name, text in (
                    ("speculative_num_steps", "{} steps"),
                    ("speculative_eagle_topk", "topk {}"),
                    ("speculative_num_draft_tokens", "{} draft tokens"),
                )
                if self.config.get(name) is not None
            ),
            overlap,
        ]
        return ", ".join(part for part in parts if part)

    def at(self, batch: int, speculation: str = "") -> Aggregate | None:
        """The decode steps of a batch size: those of a kind, or of the kind that most are of."""
        rows = [r for r in self.decoding if r.batch == batch and speculation in ("", r.speculation)]
        return max(rows, key=lambda row: row.steps, default=None)

    @property
    def decoding(self) -> list[Aggregate]:
        """The figures of decode steps."""
        return [row for row in self.aggregates if runtime.DECODE in row.mode and row.batch]

    @property
    def batches(self) -> list[int]:
        """The batch sizes with a rate."""
        return sorted({row.batch for row in self.decoding if row.batch and row.tokens_per_s})


def figures(folder: Path, name: str) -> RunFigures:
    """The figures of a trace's first rank. Raises ``InputError`` for what is no trace or has no step."""
    trace = runtime.read_trace(folder)
    found = trace.recording()
    if not found:
        raise InputError(f"{folder}: nothing was recorded in it; there is nothing to compare")
    return figures_of(trace, name, [runtime.aggregate(trace, found[0])])


def figures_of(trace: runtime.Trace, name: str, taken: Sequence[runtime.Aggregator]) -> RunFigures:
    """The figures of a trace whose steps were taken in; those of ``compare`` are the first rank's."""
    first = taken[0]
    return RunFigures(
        name=name,
        release=trace.run.version if trace.run is not None else trace.plan.version,
        config=trace.config(),
        rank=first.rank,
        other_ranks=[process.rank for process in trace.recording()[1:]],
        aggregates=first.aggregates(),
        others=[row for rank in taken[1:] for row in rank.aggregates()],
        stays=first.stays.found,
        switches=dict(first.switches.count),
        after_switch=first.switches.after,
    )


def names(folders: Sequence[Path]) -> list[str]:
    """Short names that tell folders apart: the last part of the path, with a number where two are alike."""
    found: list[str] = []
    for folder in folders:
        base = folder.resolve().name or str(folder)
        name, number = base, 2
        while name in found:
            name, number = f"{base}-{number}", number + 1
        found.append(name)
    return found
