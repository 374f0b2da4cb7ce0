"""Draft KV: the draft model's own KV for the tokens that a step makes."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Call
from sgltrace.coupling.point import NONE, SOFT, Finding, of, site, sites
from sgltrace.coupling.query import calls_on, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class DraftKv(Rule):
    """The draft attends to KV that only its own extend writes, at slots that it shares with the target."""

    kind = "draft_kv"
    positive = (
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def extend(self, batch: ForwardBatch, draft: EagleDraftInput):
                            draft.hidden_states = self.draft_model_runner.forward(batch)

                        def propose(self, batch: ForwardBatch):
                            for _ in range(self.speculative_num_steps):
                                self.draft_model_runner.forward(batch)
                """,
            },
            producers=("worker:EAGLEWorker.extend",),
            consumers=("worker:EAGLEWorker.propose",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "target": """
                    class TpModelWorker:
                        def run(self, batch: ForwardBatch):
                            return self.model_runner.forward(batch)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Who runs the draft model to fill KV, who drafts over it, and the pools that both models share."""
        runners = universe.vocabulary.names("draft_kv", "runners")
        forward = [c for c in calls_on(universe, runners) if universe.fn(c).side == WORKER and universe.fn(c).per_step]
        fills: list[Call] = []
        drafts: list[Call] = []
        for call in forward:
            (drafts if call.loops else fills).append(call)
        modes = {
            m.function
            for name in universe.vocabulary.spec.spec_modes
            for m in universe.mentions.get(name, ())
            if universe.fn(m).side == WORKER and universe.fn(m).per_step
        }
        extends = [universe.fns[f] for f in sorted(modes) if any(c.function == f for c in forward)]
        if fills or extends:
            yield self._hole(universe, fills, extends, drafts or fills)
        yield from self._shared_pools(universe)

    def _hole(self, universe: Universe, fills: list[Call], extends: list[Fn], drafts: list[Call]) -> Finding:
        producers = [site(c, "runs the draft model over the step's tokens", 5) for c in fills]
        producers += [of(fn, "extends the draft's KV", 5) for fn in extends]
        consumers = [site(c, "drafts on top of that KV", 5) for c in drafts]
        attended = universe.fields("kv_alloc", "table") | universe.fields("seq_lens")
        consumers += sites(step_reads(universe, attended, (WORKER,)), reads_of, 1)
        reason = (
            "the draft's KV of the off step's tokens is never written, and later drafts attend to it: verify keeps the "
            "output right, fewer drafts are accepted"
        )
        return Finding(
            kind=self.kind,
            title="Only the draft's extend writes the draft's KV of new tokens",
            producers=producers,
            consumers=consumers,
            binding_time="per step",
            why=(
                "Draft and target use the same slots in pools of their own. An off step writes the "
                "target's KV of its token and not the draft's: after n of them the draft's KV has n holes in "
                "each request. The next draft attends over the whole sequence, holes and recycled slots included."
            ),
            refactor=(
                "Extend the draft on every off step (keep warm), or run the draft over the missed tokens "
                "before the next on step."
            ),
            verdicts={
                "A": (SOFT, reason),
                "B": (SOFT, reason),
                "C": (SOFT, "as long as the draft's extend is skipped: " + reason),
            },
            fields=["KV pool of the draft model"],
            weight=7,
        )

    def _shared_pools(self, universe: Universe) -> Iterator[Finding]:
        pools = universe.fields("draft_kv", "pools")
        writes = [
            a
            for a in universe.written(pools)
            if universe.fn(a).at_start and universe.is_a(universe.fn(a).cls, _worker_classes(universe))
        ]
        reads = list(step_reads(universe, pools, (WORKER,)))
        if not writes or not reads:
            return
        yield Finding(
            kind=self.kind,
            title="Draft and target share one request-to-token table and one slot allocator",
            producers=sites(writes, writes_of, 4),
            consumers=sites(reads, reads_of, 3),
            binding_time="process start",
            why=(
                "The draft worker takes the target's table and allocator, so slots that an off step "
                "reserves for the target are slots of the draft's pool as well, whether the draft "
                "fills them or not."
            ),
            refactor="None for the target; the draft's rows of an off step must be filled or marked.",
            verdicts=dict.fromkeys("ABC", (NONE, "one slot number serves both pools")),
            weight=1,
        )


def _worker_classes(universe: Universe) -> frozenset[str]:
    return universe.vocabulary.roles.get("spec_worker", frozenset()) | universe.vocabulary.roles.get(
        "draft_worker", frozenset()
    )
