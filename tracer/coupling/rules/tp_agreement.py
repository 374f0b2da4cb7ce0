"""Tensor-parallel agreement: what ranks of one group must decide alike."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, Finding, of, site
from sgltrace.coupling.query import call_line, callers, calls_on, targets
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, WORKER, Universe


class TpAgreement(Rule):
    """Each rank runs its own scheduler on the same requests: a choice from anything else makes ranks part."""

    kind = "tp_agreement"
    positive = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def receive(self):
                            return broadcast_pyobj(self.requests, self.rank)

                        def run(self, batch: ScheduleBatch):
                            return self.model_worker.forward_batch_generation(batch)
                """,
                "worker": """
                    class EAGLEWorker:
                        def forward_batch_generation(self, batch: ScheduleBatch):
                            return self.check(batch)
                """,
            },
            producers=("scheduler:Scheduler.receive",),
            consumers=("scheduler:Scheduler.run", "worker:EAGLEWorker.forward_batch_generation"),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def receive(self):
                            return broadcast_pyobj(self.requests, self.rank)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Where requests are made alike on all ranks, and where speculation's own code has ranks agree."""
        names = universe.vocabulary.names("tp_agreement", "collectives")
        calls = [
            c
            for name in sorted(names)
            for c in universe.calls.get(name, ())
            if universe.fn(c).per_step and universe.fn(c).side in (SCHEDULER, WORKER)
        ]
        shared = [
            c
            for c in calls
            if universe.fn(c).side == SCHEDULER
            and universe.is_a(universe.fn(c).cls, universe.vocabulary.names("worker_dispatch", "schedulers"))
        ]
        spec = [c for c in calls if universe.fn(c).side == WORKER]
        runs = [
            c
            for c in calls_on(universe, universe.fields("worker_dispatch", "workers"))
            if universe.fn(c).side == SCHEDULER
            and universe.fn(c).per_step
            and any(t.id in universe.entries for t in targets(universe, c))
        ]
        entries = [universe.fns[e] for e in sorted(universe.entries) if universe.fns[e].side == WORKER]
        if not (shared or spec) or not runs:
            return
        producers = [site(c, f"has ranks share by {c.name}", 5) for c in (*spec, *shared)]
        consumers = [site(c, "runs the batch on every rank", 5) for c in runs] + [
            of(e, "takes part in each stage's collectives", 4) for e in entries
        ]
        for call in spec:
            for caller in callers(universe, universe.fn(call)):
                consumers.append(
                    of(caller, "goes on by what ranks agreed", 4, call_line(universe, caller, universe.fn(call)))
                )
        reason = "a rank that decides by local timing or memory runs other collectives than its peers, and both hang"
        yield Finding(
            kind=self.kind,
            title="Ranks must turn speculation on and off alike",
            producers=producers,
            consumers=consumers,
            binding_time="per step",
            why=(
                "Ranks of a tensor-parallel group see the same requests, and make the same choices "
                "as long as these depend on requests and configuration only. Draft, verify and "
                "extend each run collectives; a rank in an off step runs fewer."
            ),
            refactor=(
                "Decide from what all ranks share (batch size, accepted lengths of the result), or "
                "broadcast the decision."
            ),
            verdicts=dict.fromkeys("ABC", (HARD, reason)),
            condition="tensor parallelism",
            weight=2,
        )
