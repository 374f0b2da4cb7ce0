"""Sequence-length meaning: whether a length counts the token that is fed in."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, Site, sites
from sgltrace.coupling.query import BATCHES, held_by, is_copy, plain_writes, spec_writes, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, Universe
from sgltrace.coupling.wording import reads_of, writes_of

_MOVED = ("augment", "in-place")


class SeqLens(Rule):
    """A plain step advances the lengths before its forward pass, speculation after: the same field, two meanings."""

    kind = "seq_lens_semantics"
    positive = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            if not self.spec_algorithm.is_none():
                                return
                            self.seq_lens = self.seq_lens + 1
                """,
                "target": """
                    class ForwardBatch:
                        def positions_of(self, batch: ScheduleBatch):
                            return batch.seq_lens - 1
                """,
                "worker": """
                    class EAGLEWorker:
                        def settle(self, batch: ScheduleBatch, accepted):
                            batch.seq_lens.add_(accepted)
                """,
            },
            producers=("worker:EAGLEWorker.settle", "scheduler:ScheduleBatch.next_step"),
            consumers=("target:ForwardBatch.positions_of",),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            self.seq_lens = self.seq_lens + 1
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The length itself, and the copies of it that only one regime keeps up."""
        fields = universe.fields("seq_lens")
        plain = held_by(universe, plain_writes(universe, fields), BATCHES)
        spec = [a for a in held_by(universe, spec_writes(universe, fields), BATCHES) if not is_copy(a)]
        relay = universe.fields("result", "relay")
        spec += [a for a in spec_writes(universe, relay) if a.field != "next_draft_input" and not is_copy(a)]
        advanced = [a for a in plain if universe.fn(a).per_step]
        if advanced and spec:
            consumers = self._readers(universe, fields)
            yield self._meaning(universe, advanced, spec, sites(consumers, reads_of, 3) + sites(advanced, writes_of, 2))
        mirrors = universe.fields("seq_lens", "mirrors")
        kept = held_by(universe, plain_writes(universe, mirrors), BATCHES)
        synced = [a for a in held_by(universe, spec_writes(universe, mirrors), BATCHES) if not is_copy(a)]
        if kept and synced:
            yield self._copies(universe, kept, synced, mirrors)

    @staticmethod
    def _readers(universe: Universe, fields: frozenset[str]) -> list[Access]:
        """What a plain forward pass makes of the lengths: positions, attention metadata, the slots it writes."""
        reads = step_reads(universe, fields, (TARGET, SCHEDULER))
        attention = {fn.id for fn in universe.of_class("attention")}
        return [a for a in reads if a.function in attention or universe.fn(a).side == TARGET or a.regime == "plain"] + [
            a for a in reads if universe.fn(a).side == SCHEDULER and universe.role(a.cls) == "scheduler_batch"
        ]

    def _meaning(self, universe: Universe, plain: list[Access], spec: list[Access], consumers: list[Site]) -> Finding:
        reason = (
            "the length that reaches the target does not count the token that is fed in: positions and "
            "KV are off by one"
        )
        return Finding(
            kind=self.kind,
            title="seq_lens leaves out the pending token under speculation",
            producers=sites(spec, writes_of, 6) + sites(plain, writes_of, 6),
            consumers=consumers,
            binding_time="per step",
            why=(
                "Without speculation the lengths are advanced while the step is prepared, so that "
                "the forward pass sees the new token counted; with it they are advanced after "
                "verify, and the pending token is not counted. A plain forward on speculation's "
                "lengths computes positions one too low and leaves the current token out of the "
                "attention window."
            ),
            refactor=(
                "Feed the off step a copy of the lengths plus one, positions of the old lengths, and return old + 1."
            ),
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify counts its own tokens")},
            formula="speculative: seq_lens = committed n; plain forward: seq_lens = n + 1, position = seq_lens - 1",
            fields=[universe.field_name(a) for a in (*plain, *spec)],
            weight=9,
        )

    def _copies(self, universe: Universe, kept: list[Access], synced: list[Access], mirrors: frozenset[str]) -> Finding:
        reason = "the host copies follow speculation's writers; an off step must bring them up itself"
        return Finding(
            kind=self.kind,
            title="Host copies and sums of the lengths are kept up by each regime on its own",
            producers=sites(synced, writes_of, 5) + sites(kept, writes_of, 4),
            consumers=sites(step_reads(universe, mirrors), reads_of, 2),
            binding_time="per step",
            why=(
                f"{', '.join(sorted(mirrors))} are advanced with the lengths in a plain step; with "
                "speculation the worker or "
                "the draft state writes them at other moments, and those that only the plain step writes go stale."
            ),
            refactor="Update every copy where the off step advances the lengths.",
            verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "the speculative writers still run")},
            fields=sorted({f"ScheduleBatch.{a.field}" for a in (*kept, *synced)}),
            weight=3,
        )
