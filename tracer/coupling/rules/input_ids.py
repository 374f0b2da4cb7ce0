"""Input token source: where the token that a step feeds in comes from."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, Finding, sites
from sgltrace.coupling.query import BATCHES, held_by, is_copy, plain_writes, shared_writes, spec_writes, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class InputIds(Rule):
    """A plain step feeds the last output; speculation feeds the draft state's token."""

    kind = "input_ids"
    positive = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            if not self.spec_algorithm.is_none():
                                return
                            self.input_ids = self.output_ids
                """,
                "worker": """
                    class EAGLEWorker:
                        def feed(self, batch: ScheduleBatch, draft: EagleDraftInput):
                            batch.input_ids = draft.verified_id
                """,
            },
            producers=("worker:EAGLEWorker.feed",),
            consumers=("scheduler:ScheduleBatch.next_step",),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            self.input_ids = self.output_ids
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The writers of the two sources, and who takes its input from which."""
        fields = universe.fields("input_ids")
        tokens = universe.fields("input_ids", "tokens")
        spec = [a for a in held_by(universe, spec_writes(universe, fields), (*BATCHES, "future_map")) if not is_copy(a)]
        spec += [a for a in spec_writes(universe, tokens) if not is_copy(a)]
        plain = held_by(universe, plain_writes(universe, fields), (*BATCHES, "future_map"))
        shared = [a for a in held_by(universe, shared_writes(universe, fields), ("scheduler_batch",)) if not is_copy(a)]
        if not spec or not (plain or shared):
            return
        reads = held_by(universe, step_reads(universe, fields, (SCHEDULER,)), (*BATCHES, "future_map"))
        consumers = sites(plain, writes_of, 6) + sites([a for a in reads if a.regime == "plain"], reads_of, 6)
        consumers += sites(step_reads(universe, tokens, (WORKER,)), reads_of, 4) + sites(reads, reads_of, 2)
        reason = "the token that a plain step would feed is kept on the draft state; the batch holds another value"
        yield Finding(
            kind=self.kind,
            title="The next input token lives on the draft state, not on the batch",
            producers=sites([a for a in spec if universe.role(a.cls) in BATCHES[:2]], writes_of, 6)
            + sites(shared, writes_of, 4)
            + sites([a for a in spec if a.field in tokens], writes_of, 4)
            + sites(spec, writes_of, 2),
            consumers=consumers,
            binding_time="per step",
            why=(
                "A plain step takes its input from the batch's last outputs. With speculation the "
                "last token of each request "
                f"is {' or '.join(sorted(tokens & set(universe.writes)))} of the draft state, and "
                "what the batch holds is an "
                "unresolved future, or a list of all accepted tokens, of another length than the batch."
            ),
            refactor="Take the off step's input from the draft state's token, one for each request.",
            verdicts={
                "A": (HARD, reason),
                "B": (HARD, reason),
                "C": (NONE, "verify builds its input from the draft state"),
            },
            formula="plain: input_ids = output_ids (bs,); speculative: one token for each request on the draft state",
            fields=sorted({universe.field_name(a) for a in (*spec, *shared)}),
            weight=7,
        )
