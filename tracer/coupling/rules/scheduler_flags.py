"""Scheduler flags: overlap scheduling, which the algorithm switches."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import NONE, SOFT, Finding, sites
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class SchedulerFlags(Rule):
    """How the scheduler runs its loop depends on the algorithm, whatever a batch does."""

    kind = "scheduler_flags"
    positive = (
        Example(
            {
                "start": """
                    class ServerArgs:
                        def settle(self):
                            if self.speculative_algorithm is not None:
                                self.disable_overlap_schedule = True
                """,
                "scheduler": """
                    class Scheduler:
                        def pick(self):
                            return not self.server_args.disable_overlap_schedule
                """,
            },
            producers=("start:ServerArgs.settle",),
            consumers=("scheduler:Scheduler.pick",),
            severity={"v1": "soft", "v2": "none"},
        ),
    )
    negative = (
        Example(
            {
                "start": """
                    class ServerArgs:
                        def settle(self):
                            if self.device == "cpu":
                                self.disable_overlap_schedule = True
                """,
                "scheduler": """
                    class Scheduler:
                        def pick(self):
                            return not self.server_args.disable_overlap_schedule
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The flag that the arguments set."""
        yield from self._switched(universe)

    def _switched(self, universe: Universe) -> Iterator[Finding]:
        """The overlap flag that the configuration sets by the algorithm."""
        names = universe.vocabulary.spec.overlap_fields
        chosen = [a for a in universe.written(names) if universe.is_args(universe.fn(a))]
        chosen = [a for a in chosen if a.regime == "spec" or _near_config(universe, a)]
        copies = [
            a for a in universe.written(names) if not universe.is_args(universe.fn(a)) and universe.fn(a).at_start
        ]
        reads = [a for a in universe.read(names) if universe.fn(a).side == SCHEDULER]
        if not chosen or not reads:
            return
        reason = (
            "without overlap an off step is slower than a plain server's: launch and processing do not run beside it"
        )
        yield Finding(
            kind=self.kind,
            title="Overlap scheduling is switched by the algorithm when the process starts",
            producers=sites(chosen, writes_of, 6),
            consumers=sites(copies, writes_of, 5) + sites(reads, reads_of, 3),
            binding_time="process start",
            why=(
                "The first worker runs without overlap, the second needs it: the flag is set by the "
                "algorithm, and chooses the event loop, the relay and the class of batch. Off steps "
                "run in the loop that was chosen."
            ),
            refactor="None for correctness; v1's off steps cannot win back what overlap would give.",
            verdicts=dict.fromkeys("ABC", (NONE, "overlap stays on")),
            by_path={"v1": dict.fromkeys("ABC", (SOFT, reason))},
            weight=2,
        )


def _near_config(universe: Universe, access: Access) -> bool:
    facts = universe.facts[access.function]
    return any(universe.vocabulary.spec.is_config(m.name) for m in facts.mentions)
