"""Log-probabilities: who computes them and who puts them on the requests."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, Judgement, of, sites
from sgltrace.coupling.query import call_line, callers, held_by, is_reset, on_path, spec_writes, step_reads
from sgltrace.coupling.regime import PLAIN
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.scan import deep
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s

RESULTS = ("logits_output", "result", None)


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
        yield Finding(
            kind=self.kind,
            title="Log-probabilities are put on the requests by the worker or by the scheduler",
            producers=sites(spec, writes_of, 5)
            + sites(plain, writes_of, 3)
            + [
                of(c, "has them put on the requests", 4, call_line(universe, c, fn))
                for fn in {a.function: universe.fn(a) for a in own}.values()
                for c in callers(universe, fn)
                if c.in_worker
            ],
            consumers=sites(plain or kept, writes_of, 5) + sites(gated, reads_of, 4) + sites(reads, reads_of, 1),
            binding_time="per step",
            why=(
                "With speculation the log-probabilities of all accepted tokens are computed and "
                "stored by speculation's own code; the scheduler stores the one of a plain step only "
                "where the process has no algorithm. Lists then get out of step with the tokens."
            ),
            refactor="Store the off step's log-probabilities in the same place as those of accepted tokens.",
            verdicts={},
            by_path={p: self._verdicts(universe, p, spec, kept, own) for p in sorted(universe.paths)},
            condition="logprobs requested",
            fields=sorted({universe.field_name(a) for a in (*spec, *plain)}),
            weight=3 + bool(own),
        )

    @staticmethod
    def _verdicts(
        universe: Universe, path: str, spec: list[Access], kept: list[Access], own: list[Access]
    ) -> dict[str, Judgement]:
        """What an off step's log-probabilities meet on a path."""
        made = [a for a in on_path(universe, spec, path) if not is_reset(a) and universe.role(a.cls) in RESULTS]
        if on_path(universe, own, path):
            worst = (
                SOFT,
                "the worker puts them on the requests, and the scheduler does not: the token has no log-probability",
            )
        elif not made:
            return dict.fromkeys("ABC", (NONE, "no step of this path hands on log-probabilities of its own"))
        elif any(_of_row(universe, a) for a in on_path(universe, kept, path)):
            worst = HARD, "the scheduler takes a row of accepted tokens for each request, and a plain result has none"
        else:
            worst = SOFT, "the layout of log-probabilities follows the accepted tokens: a plain result must follow it"
        return {"A": worst, "B": worst, "C": (NONE, "verify stores them")}


def _of_row(universe: Universe, access: Access) -> bool:
    """Whether a write takes an element of what is itself one row of a table."""
    if access.value is None:
        return False
    taken = {
        part.value.id for part in s.descend(access.value) if isinstance(part, s.Sub) and isinstance(part.value, s.Name)
    }
    return any(
        isinstance(statement, s.Assign)
        and isinstance(statement.value, s.Sub)
        and not isinstance(statement.value.index, s.Slice)
        and any(isinstance(t, s.Name) and t.id in taken for t in statement.targets)
        for statement in deep(universe.fn(access).body())
    )
