"""KV-slot allocation: who reserves the slots that a step writes, and how many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.offsteps import off_steps
from sgltrace.coupling.point import HARD, NONE, Finding, Judgement, Site, of, site, sites
from sgltrace.coupling.query import call_line, callers, paths_of, plain_writes, step_reads, targets
from sgltrace.coupling.regime import PLAIN
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.slots import allocates, allocating, before_the_worker, formula, keeps_up, reserves, reserving
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Fn, Universe
from sgltrace.coupling.widths import widths_behind
from sgltrace.coupling.wording import reads_of, writes_of


class KvAlloc(Rule):
    """Slots for a step's KV are reserved in one place without speculation and in another, for more tokens, with it."""

    kind = "kv_alloc"
    positive = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            if not self.spec_algorithm.is_none():
                                return
                            self.input_ids = self.output_ids
                            self.out_cache_loc = take_slots(self)

                    def take_slots(batch):
                        return batch.token_to_kv_pool_allocator.alloc(len(batch.reqs))
                """,
            },
            producers=("scheduler:ScheduleBatch.next_step",),
            consumers=("scheduler:take_slots",),
            severity={"v1": "hard", "v2": "hard"},
        ),
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
        yield from self._skipped(universe)
        distance = allocating(universe)
        yield from self._before_the_worker(universe, distance)
        yield from self._in_the_worker(universe, distance)

    def _skipped(self, universe: Universe) -> Iterator[Finding]:
        inputs = universe.fields("kv_alloc", "inputs")
        by_function: dict[str, list[Access]] = defaultdict(list)
        for access in plain_writes(universe, inputs):
            if universe.fn(access).per_step:
                by_function[access.function].append(access)
        slots = universe.fields("kv_alloc", "slots")
        for function, found in sorted(by_function.items()):
            fields = {a.field for a in found}
            if len(fields) < 2 or not fields & slots:
                continue
            facts = universe.facts[function]
            plain = [a for a in facts.accesses if a.write and a.regime == PLAIN]
            guards = [b for b in facts.branches if b.line in {a.via for a in plain}]
            consumers = sites(plain, writes_of, 6)
            for call in facts.calls:
                if call.regime == PLAIN:
                    for callee in targets(universe, call):
                        if callee.side == SCHEDULER and universe.calls and allocates(universe, callee):
                            consumers.append(of(callee, "reserves the plain step's slots", 5))
            reads = step_reads(universe, slots, (TARGET, SCHEDULER))
            consumers += sites([a for a in reads if universe.role(universe.fn(a).cls) == "forward_batch"], reads_of, 3)
            consumers += sites(reads, reads_of, 1)
            reason = (
                f"{', '.join(sorted(fields))} are written only past a condition that a speculative server never meets"
            )
            yield Finding(
                kind=self.kind,
                title="A plain step is prepared only in a process without an algorithm",
                producers=sites(guards, "decides by the process's algorithm", 6),
                consumers=consumers,
                binding_time="per step",
                why=(
                    "Everything that prepares a plain step stands past a condition that a server with an algorithm "
                    "never meets, the KV slot for its token included. An off step reaches the forward pass without "
                    "one, with what the last step left, or with None after a filter or merge. Nothing else before "
                    f"the worker writes {', '.join(sorted({a.field for a in plain}))}."
                ),
                refactor=(
                    "Let the condition ask the batch instead of the process, or repeat this block in the "
                    "worker's off step."
                ),
                verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify writes them itself")},
                formula="plain: one slot for each request; speculative: not set here",
                fields=[universe.field_name(a) for a in plain],
                weight=9,
            )

    def _before_the_worker(self, universe: Universe, distance: dict[str, int]) -> Iterator[Finding]:
        """Slots that the scheduler reserves for speculation before it hands the batch over."""
        chain = [f for f in sorted(distance) if before_the_worker(universe.fns[f])]
        found = [universe.fns[f] for f in chain if reserves(universe, f)]
        if not found:
            return
        lengths = universe.fields("kv_bookkeeping", "lengths")
        producers: list[Site] = []
        consumers: list[Site] = []
        for fn in found:
            facts = universe.facts[fn.id]
            producers += [of(fn, "reserves slots for speculation", 6)]
            producers += sites([a for a in facts.accesses if a.write and a.field in lengths], writes_of, 6)
            near = [a for f in (fn.id, *universe.callees.get(fn.id, ())) for a in universe.facts[f].accesses]
            consumers += sites([a for a in near if not a.write and a.field in lengths], reads_of, 5)
            for caller in callers(universe, fn):
                if caller.side == SCHEDULER or (caller.id in chain and caller not in found):
                    producers.append(of(caller, "has speculation reserve them", 6, call_line(universe, caller, fn)))
            producers += widths_behind(universe, fn)
        table = universe.fields("kv_alloc", "table")
        slots = universe.fields("kv_alloc", "slots")
        consumers += sites(list(step_reads(universe, table, (WORKER,))), reads_of, 3)
        consumers += sites([a for a in universe.written(slots) if universe.fn(a).side == WORKER], writes_of, 3)
        consumers += [
            of(universe.fns[f], "reserves a plain step's slots over what is already reserved", 4)
            for f in sorted(distance)
            if universe.fns[f].side == SCHEDULER and distance[f] <= 1
        ]
        consumers = [c for c in consumers if universe.fns[c.function] not in found or c.weight >= 5]
        reason = (
            "the slots are already in the request-to-token table: a second, plain allocation overwrites and leaks them"
        )
        shrink = "the reserve is computed from the widest step: a narrower one makes the amount to reserve negative"
        bounded = any(keeps_up(universe, f) for fn in found for f in (fn.id, *universe.callees.get(fn.id, ())))
        safe = (NONE, "the amount is never less than what is reserved already, however narrow the step")
        if bounded and off_steps(universe):
            yield self._amount(universe, found, safe)
        yield Finding(
            kind=self.kind,
            title="Decode slots are reserved ahead, for a draft's width, through the draft state",
            producers=producers,
            consumers=consumers,
            binding_time="per step (schedule time)",
            why=(
                "The scheduler reserves a speculative step's slots on the draft state and writes them into the "
                "request-to-token table before the worker runs. Without a draft state on the batch there is nothing to "
                "call; with a plain allocation beside it the same table entries get second owners."
            ),
            refactor=(
                "Move the allocation off the draft state; let an off step take its slot from the "
                "request-to-token table, clamp the amount at zero and size it by the widest step."
            ),
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": safe if bounded else (HARD, shrink)},
            formula=formula(universe, found),
            fields=["Req.kv_allocated_len", "ReqToTokenPool.req_to_token"],
            only=paths_of(universe, [fn.id for fn in found]),
            weight=8,
        )

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
