"""Log-probabilities: who computes them and who puts them on the requests."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import NONE, SOFT, Finding, sites
from sgltrace.coupling.query import held_by, paths_of, spec_writes, step_reads
from sgltrace.coupling.regime import PLAIN
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
            severity={"v1": "soft", "v2": "soft"},
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
        kept = [a for a in held_by(universe, universe.written(names), ("request",)) if universe.fn(a).per_step]
        kept = [a for a in kept if universe.fn(a).side == SCHEDULER and a.how in ("in-place", "assign")]
        plain = [a for a in universe.written(names) if a.regime == PLAIN and a in kept]
        reads = list(step_reads(universe, names, (SCHEDULER, WORKER, TARGET)))
        gated = [a for a in reads if a.regime is not None and universe.fn(a).side == SCHEDULER]
        own = [a for a in held_by(universe, spec, ("request",), unknown=False) if universe.fn(a).side == WORKER]
        if not spec or not (kept or gated):
            return
        reason = (
            "the scheduler's branch asks for no algorithm, and the worker's is not run: the token has no "
            "log-probability"
        )
        layout = "the layout of log-probabilities follows the accepted tokens: a plain result must follow it"
        lost = {"A": (SOFT, reason), "B": (SOFT, reason)}
        done = (NONE, "verify stores them")
        yield Finding(
            kind=self.kind,
            title="Log-probabilities are put on the requests by the worker or by the scheduler",
            producers=sites(spec, writes_of, 5) + sites(plain, writes_of, 3),
            consumers=sites(plain or kept, writes_of, 5) + sites(gated, reads_of, 4) + sites(reads, reads_of, 1),
            binding_time="per step",
            why=(
                "With speculation the log-probabilities of all accepted tokens are computed and "
                "stored by speculation's own code; the scheduler stores the one of a plain step only "
                "where the process has no algorithm. Lists then get out of step with the tokens."
            ),
            refactor="Store the off step's log-probabilities in the same place as those of accepted tokens.",
            verdicts={**lost, "C": done} if plain else {"A": (SOFT, layout), "B": (SOFT, layout), "C": done},
            by_path=dict.fromkeys(paths_of(universe, [a.function for a in own]), lost),
            condition="logprobs requested",
            fields=sorted({universe.field_name(a) for a in (*spec, *plain)}),
            weight=3 + bool(own),
        )
