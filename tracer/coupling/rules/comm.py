"""Collectives and MoE: choices of communication that are made by the process's algorithm."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import callers, decides
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class Comm(Rule):
    """A communicator or dispatcher that keeps to what is safe under speculation."""

    kind = "comm"
    positive = (
        Example(
            {
                "target": """
                    class LayerCommunicator:
                        def gather(self, states):
                            if get_global_server_args().speculative_algorithm is None:
                                return fused(states)
                            return plain(states)

                        def run(self, states):
                            return self.gather(states)
                """,
            },
            producers=("target:LayerCommunicator.gather",),
            consumers=("target:LayerCommunicator.run",),
            severity={"v1": "none", "v2": "none"},
        ),
    )
    negative = (
        Example(
            {
                "target": """
                    class LayerCommunicator:
                        def gather(self, states):
                            return plain(states)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Choices by the algorithm in communication classes; then backends that are swapped around the draft."""
        classes = {fn.id for fn in universe.of_class("comm")}
        branches = [b for b in universe.branches if b.function in classes and b.reading.scope == "process"]
        mentions = [
            m
            for name, found in universe.mentions.items()
            for m in found
            if m.function in classes and universe.vocabulary.spec.is_config(name)
        ]
        fields = universe.predicates.algorithm_fields
        bound = [a for a in universe.written(fields) if a.function in classes]
        if branches or mentions or bound:
            bound_names = {a.field for a in bound}
            reads = [a for a in universe.read(bound_names) if a.function in classes]
            lines = {b.function: [x.line for x in branches if x.function == b.function] for b in branches}
            users = [s for f, found in lines.items() for s in decides(universe, f, found)]
            yield Finding(
                kind=self.kind,
                title="Collectives and expert dispatch keep to what is safe under speculation",
                producers=sites(bound, writes_of, 5) + sites(mentions, lambda m: f"asks for {m.name}", 5) + users,
                consumers=users
                + sites(reads, reads_of, 5)
                + [of(c, "uses the choice", 2) for f in lines for c in callers(universe, universe.fns[f])],
                binding_time="process start",
                why=(
                    "Some fused or smaller collectives are left out while the process has an algorithm. "
                    "Off steps keep the safe choice."
                ),
                refactor="None.",
                verdicts=dict.fromkeys("ABC", (NONE, "the choice is right for both kinds of step")),
            )
        yield from self._swapped(universe)

    def _swapped(self, universe: Universe) -> Iterator[Finding]:
        """Process-wide backends that the worker swaps while the draft model runs."""
        names = universe.vocabulary.names("comm", "backends")
        getters = {
            m.function for n in sorted(names) for m in universe.mentions.get(n, ()) if universe.fn(m).side != WORKER
        }
        contexts = [
            fn
            for fn in universe.fns.values()
            if fn.side == WORKER
            and fn.per_step
            and fn.cls is None
            and fn.id in universe.facts
            and fn.id in universe.generators
        ]
        users = {c.id: c for fn in contexts for c in callers(universe, fn) if c.side == WORKER}
        if not contexts or not users:
            return
        yield Finding(
            kind=self.kind,
            title="Process-wide backends and groups are swapped while the draft runs",
            producers=[of(fn, "swaps a process-wide choice", 4) for fn in contexts]
            + [of(universe.fns[f], "holds the draft's choice", 3) for f in sorted(getters) if f in universe.fns],
            consumers=[of(fn, "runs the draft inside it", 4) for fn in users.values()],
            binding_time="per stage",
            why=(
                "Experts and tensor-parallel groups of the draft are set for the time of its forward "
                "passes and put back after."
            ),
            refactor="Run the off step's target forward outside these contexts.",
            verdicts={
                "A": (NONE, "the target runs outside them"),
                "B": (SOFT, "an off step's target forward inside them would run with the draft's backends"),
                "C": (NONE, "the target runs outside them"),
            },
            condition="DP attention or a MoE backend of the draft",
            weight=1,
        )
