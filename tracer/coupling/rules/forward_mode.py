"""Forward mode: what each stage leaves on the batch, and who decides by it."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import NONE, SOFT, Finding, sites
from sgltrace.coupling.query import held_by, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class ForwardModes(Rule):
    """Each stage of speculation has a mode of its own, and sets it on the batch that the scheduler keeps."""

    kind = "forward_mode"
    positive = (
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def check(self, batch: ScheduleBatch):
                            batch.forward_mode = ForwardMode.TARGET_VERIFY
                """,
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch):
                            return batch.forward_mode.is_target_verify()
                """,
            },
            producers=("worker:EAGLEWorker.check",),
            consumers=("scheduler:Scheduler.process",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            self.forward_mode = ForwardMode.DECODE
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Who rewrites the mode on the batch, and who reads what is left."""
        writes = [
            a
            for a in universe.writes.get("forward_mode", ())
            if universe.fn(a).side == WORKER and universe.fn(a).per_step and a.how != "keyword"
        ]
        writes = held_by(universe, writes, ("scheduler_batch", "worker_batch"))
        reads = [
            a for a in step_reads(universe, {"forward_mode"}, (SCHEDULER,)) if universe.role(a.cls) == "scheduler_batch"
        ]
        forward = [
            a for a in step_reads(universe, {"forward_mode"}, (TARGET,)) if universe.role(a.cls) == "forward_batch"
        ]
        if not writes or not (reads or forward):
            return
        reason = "the off step must leave the batch in decode mode, and its forward copy must not be a verify"
        yield Finding(
            kind=self.kind,
            title="Each stage rewrites the batch's forward mode, and the scheduler reads what is left",
            producers=sites(writes, writes_of, 5),
            consumers=sites(reads, reads_of, 4) + sites(forward, reads_of, 2),
            binding_time="per step",
            why=(
                "Verify and the draft's extend put modes of their own on the batch. What is left "
                "decides how results are processed, which graph runs, and which metadata is built: "
                "verify counts as an extend in many of these questions."
            ),
            refactor="Keep DECODE on the scheduler's batch in an off step; set other modes only on forward copies.",
            verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "verify sets and restores it")},
            formula=" -> ".join(["DECODE", *sorted(universe.vocabulary.spec.spec_modes)]),
            fields=["ScheduleBatch.forward_mode"],
            weight=3,
        )
