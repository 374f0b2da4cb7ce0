"""KV-slot allocation: who reserves the slots that a step writes, and how many."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, Finding, Site, site, sites
from sgltrace.coupling.query import step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.slots import allocating, reserving
from sgltrace.coupling.universe import WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of


class KvAlloc(Rule):
    """Slots for a step's KV are reserved in one place without speculation and in another, for more tokens, with it."""

    kind = "kv_alloc"
    positive = (
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def widen(self, batch: ScheduleBatch):
                            batch.out_cache_loc = batch.token_to_kv_pool_allocator.alloc(self.speculative_num_steps)
                            batch.token_to_kv_pool_allocator.free(batch.out_cache_loc)
                """,
            },
            producers=("worker:EAGLEWorker.widen",),
            consumers=("worker:EAGLEWorker.widen",),
            severity={"v1": "hard", "v2": "hard"},
        ),
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def borrow(self, batch: ScheduleBatch):
                            before = batch.token_to_kv_pool_allocator.backup_state()
                            batch.out_cache_loc = batch.token_to_kv_pool_allocator.alloc(self.speculative_num_steps)
                            batch.token_to_kv_pool_allocator.restore_state(before)
                """,
            },
            producers=("worker:EAGLEWorker.borrow",),
            consumers=("worker:EAGLEWorker.borrow",),
            severity={"v1": "none", "v2": "none"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            self.input_ids = self.output_ids
                            self.out_cache_loc = self.token_to_kv_pool_allocator.alloc(len(self.reqs))
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The block that only a plain server runs; then speculation's own allocations, before and in the worker."""
        distance = allocating(universe)
        yield from self._in_the_worker(universe, distance)

    def _in_the_worker(self, universe: Universe, distance: dict[str, int]) -> Iterator[Finding]:
        """Slots that the worker reserves while it drafts and verifies, and gives back after."""
        found = [
            universe.fns[f]
            for f in sorted(distance)
            if universe.fns[f].side == WORKER and universe.fns[f].in_worker and distance[f] <= 2
        ]
        slots = universe.fields("kv_alloc", "slots")
        users = [f for f in found if any(a.field in slots for a in universe.facts[f.id].accesses)]
        names = universe.vocabulary.names
        given_back = [
            call
            for method in sorted(names("kv_alloc", "release"))
            for call in universe.calls.get(method, ())
            if call.owner in names("kv_alloc", "allocators") and universe.fn(call).side == WORKER
        ]
        undone = {c.function for c in given_back if c.name in names("kv_alloc", "restore")}
        reads = sites(step_reads(universe, slots, (WORKER,)), reads_of, 4)
        freed = [site(c, "gives slots back", 5) for c in given_back]
        if borrowed := [f for f in users if f.id in undone]:
            yield self._borrowed(universe, borrowed, [*freed, *reads])
        kept = [f for f in users if f.id not in undone]
        if not kept:
            return
        reason = "the slot of the off step's token is reserved only inside the worker, for the width of its own step"
        yield Finding(
            kind=self.kind,
            title="The worker reserves and frees the step's slots itself",
            producers=reserving(universe, kept, "reserves slots for a draft's width"),
            consumers=reads + freed,
            binding_time="per step",
            why=(
                "Slots are reserved for every draft token, and freed for the rejected ones, inside the worker. A plain "
                "step that runs none of it has no slot for its token."
            ),
            refactor="Reserve one slot for each request in the off step, and write it into the request-to-token table.",
            verdicts={
                "A": (HARD, reason),
                "B": (HARD, reason),
                "C": (NONE, "verify reserves and frees by its own width"),
            },
            formula="bs * num_draft_tokens, rejected ones freed",
            fields=["ScheduleBatch.out_cache_loc"],
            weight=6,
        )

    def _borrowed(self, universe: Universe, users: list[Fn], consumers: list[Site]) -> Finding:
        """Slots that are reserved, and given back by the same function."""
        reason = "nothing of it is outstanding between two steps: an off step reserves from a clean state"
        return Finding(
            kind=self.kind,
            title="The draft's slots are taken and given back inside one step",
            producers=reserving(universe, users, "reserves slots for the draft, and restores the allocator"),
            consumers=consumers,
            binding_time="per step",
            why=(
                "The state of the allocator is kept before the draft's slots are reserved and restored after. Table "
                "entries past the committed length hold stale slots, which the next allocation overwrites."
            ),
            refactor="None; an off step must not restore the allocator to an older state.",
            verdicts=dict.fromkeys("ABC", (NONE, reason)),
            formula="draft: bs * topk * num_steps, restored",
            fields=["ScheduleBatch.out_cache_loc"],
        )
