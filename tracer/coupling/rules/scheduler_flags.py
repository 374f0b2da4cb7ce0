"""Scheduler flags: overlap scheduling, which the algorithm switches, and gives up for a batch."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import NONE, SOFT, Finding, site, sites
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
        """The flag that the arguments set, and the batches for which overlap is given up."""
        yield from self._switched(universe)
        yield from self._given_up(universe)

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

    def _given_up(self, universe: Universe) -> Iterator[Finding]:
        """Scheduler functions that return a decision from both the regime and the grammar."""
        flags = universe.fields("sampling", "grammar")
        for function, facts in sorted(universe.facts.items()):
            fn = universe.fns[function]
            if fn.side != SCHEDULER or not fn.per_step:
                continue
            asked = [a for a in facts.accesses if not a.write and a.field in flags and a.regime == "spec"]
            if not asked or not facts.returns or (not any(b.reading.known for b in facts.branches) and not asked):
                continue
            users = [c for c in sorted(universe.callers.get(function, ())) if c in universe.fns]
            if not users or any(a.write and a.how != "keyword" for a in facts.accesses):
                continue
            reason = "the decision is made for a speculative batch with a grammar; an off step of it would not need it"
            yield Finding(
                kind=self.kind,
                title="Overlap is given up for speculation with a grammar",
                producers=sites(asked, reads_of, 5),
                consumers=[
                    site(c, "acts by the decision", 5)
                    for c in universe.calls.get(fn.name, ())
                    if function in universe.callees.get(c.function, ())
                ],
                binding_time="per step",
                why=(
                    "A batch with a grammar is not overlapped with the next while the process "
                    "speculates, off steps included."
                ),
                refactor="Ask whether the batch's last step was speculative.",
                verdicts=dict.fromkeys("ABC", (SOFT, reason)),
                condition="grammar in use",
                only=("v2",),
                weight=1,
            )
            return


def _near_config(universe: Universe, access: Access) -> bool:
    facts = universe.facts[access.function]
    return any(universe.vocabulary.spec.is_config(m.name) for m in facts.mentions)
