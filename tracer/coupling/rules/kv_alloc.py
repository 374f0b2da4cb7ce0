"""KV-slot allocation: who reserves the slots that a step writes, and how many."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.offsteps import off_steps
from sgltrace.coupling.point import HARD, NONE, Finding, Judgement, Site, of, site, sites
from sgltrace.coupling.query import callers, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.slots import allocating, before_the_worker, keeps_up, reserves, reserving
from sgltrace.coupling.universe import WORKER, Fn, Universe
from sgltrace.coupling.widths import widths_behind
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
        yield from self._before_the_worker(universe, distance)
        yield from self._in_the_worker(universe, distance)

    def _before_the_worker(self, universe: Universe, distance: dict[str, int]) -> Iterator[Finding]:
        """Slots that the scheduler reserves ahead, where the amount does not fall with a narrower step."""
        chain = [f for f in sorted(distance) if before_the_worker(universe.fns[f])]
        found = [universe.fns[f] for f in chain if reserves(universe, f)]
        bounded = any(keeps_up(universe, f) for fn in found for f in (fn.id, *universe.callees.get(fn.id, ())))
        if bounded and off_steps(universe):
            safe = (NONE, "the amount is never less than what is reserved already, however narrow the step")
            yield self._amount(universe, found, safe)

    def _amount(self, universe: Universe, found: list[Fn], safe: Judgement) -> Finding:
        """The amount that is reserved ahead, where it is kept from falling below what is there."""
        widths = [site for fn in found for site in widths_behind(universe, fn)]
        asking = {
            c.id: c
            for s in widths
            for c in callers(universe, universe.fns[s.function], 2)
            if c.per_step and not c.other and not universe.elsewhere(c)
        }
        own = [universe.fns[f] for fn in found for f in universe.callees.get(fn.id, ()) if keeps_up(universe, f)]
        return Finding(
            kind=self.kind,
            title="What is reserved ahead does not fall with a narrower step",
            producers=[*widths, *(of(fn, "reserves slots for speculation", 5) for fn in found)],
            consumers=[of(fn, "keeps the amount from falling", 6) for fn in own]
            + [of(fn, "reserves, or estimates, by the amount", 4) for fn in (*found, *asking.values())],
            binding_time="per step (schedule time)",
            why="The amount is bounded by what is reserved already: off steps reserve more than they need, never less.",
            refactor="None.",
            verdicts={"C": safe},
            fields=["Req.kv_allocated_len"],
        )

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
