"""Log-probabilities: who computes them and who puts them on the requests."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, sites
from sgltrace.coupling.query import spec_writes, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class Logprob(Rule):
    """The worker puts log-probabilities on the requests with speculation, the scheduler without."""

    kind = "logprob"
    positive = (
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def note(self, batch: ScheduleBatch, values):
                            for req in batch.reqs:
                                req.output_token_logprobs_val.append(values[req])
                """,
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch, values):
                            for req in batch.reqs:
                                if req.return_logprob and batch.spec_algorithm.is_none():
                                    req.output_token_logprobs_val.append(values[req])
                """,
            },
            producers=("worker:EAGLEWorker.note",),
            consumers=("scheduler:Scheduler.process",),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch, values):
                            for req in batch.reqs:
                                req.output_token_logprobs_val.append(values[req])
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Writes of the requests' output log-probabilities on both sides."""
        names = universe.fields("sampling", "logprob")
        spec = [a for a in spec_writes(universe, names, resets=True) if universe.fn(a).per_step]
        plain = [
            a
            for a in universe.written(names)
            if a.regime == "plain" and universe.fn(a).side == SCHEDULER and universe.fn(a).per_step
        ]
        reads = list(step_reads(universe, names, (SCHEDULER, WORKER, TARGET)))
        gated = [a for a in reads if a.regime is not None and universe.fn(a).side == SCHEDULER]
        if not spec or not (plain or gated):
            return
        lost = any(universe.fn(a).side == WORKER and a.how == "in-place" for a in spec)
        reason = (
            "the scheduler's branch asks for no algorithm, and the worker's is not run: the token has no "
            "log-probability"
        )
        kept = "the layout of log-probabilities follows the accepted tokens: a plain result must follow it"
        level = HARD if plain else SOFT
        yield Finding(
            kind=self.kind,
            title="Log-probabilities are put on the requests by the worker or by the scheduler",
            producers=sites(spec, writes_of, 5) + sites(plain, writes_of, 3),
            consumers=sites(plain, writes_of, 5) + sites(gated, reads_of, 4) + sites(reads, reads_of, 1),
            binding_time="per step",
            why=(
                "With speculation the log-probabilities of all accepted tokens are computed and "
                "stored by speculation's own code; the scheduler stores the one of a plain step only "
                "where the process has no algorithm. Lists then get out of step with the tokens."
            ),
            refactor="Store the off step's log-probabilities in the same place as those of accepted tokens.",
            verdicts={
                "A": (level, reason if level == HARD else kept),
                "B": (level, reason if level == HARD else kept),
                "C": (NONE, "verify stores them"),
            },
            condition="logprobs requested",
            fields=sorted({f"{a.cls or a.owner}.{a.field}" for a in (*spec, *plain)}),
            weight=3 + lost,
        )
