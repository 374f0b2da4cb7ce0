"""KV bookkeeping: how far a request's KV is committed and allocated, and what is evicted by the count of steps."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access, Item
from sgltrace.coupling.point import NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import (
    call_line,
    callers,
    decides,
    on_path,
    plain_writes,
    spec_writes,
    step_reads,
    targets,
)
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class KvBookkeeping(Rule):
    """The lengths that say which KV is valid are advanced in one place with speculation, in another without."""

    kind = "kv_bookkeeping"
    positive = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def evict(self, req: Req):
                            return req.decode_batch_idx % 8 == 1
                """,
                "worker": """
                    class EAGLEWorker:
                        def prepare(self, req: Req):
                            req.decode_batch_idx += 1
                """,
            },
            producers=("worker:EAGLEWorker.prepare",),
            consumers=("scheduler:ScheduleBatch.evict",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def settle(self, lengths):
                            for req, length in zip(self.reqs, lengths):
                                req.kv_committed_len += length
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The lengths, what a release checks of them, and the counter that evicts."""
        yield from self._release(universe)
        yield from self._eviction(universe)

    def _release(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("kv_bookkeeping", "lengths")
        for refusal in universe.refusals:
            fn = universe.fn(refusal)
            if refusal.regime != "plain" or fn.side == WORKER or not fn.per_step:
                continue
            facts = universe.facts[fn.id]
            touched: list[Item] = [a for a in facts.accesses if a.field in names]
            for call in facts.calls:
                for callee in targets(universe, call):
                    if any(a.field in names for a in universe.facts[callee.id].accesses):
                        touched.append(call)
            taken = [
                of(caller, "takes the KV lengths, and has them checked", 5, call_line(universe, caller, fn))
                for caller in callers(universe, fn)
                if any(
                    a.field in names
                    for f in (caller.id, *universe.callees.get(caller.id, ()))
                    for a in _of(universe, f)
                )
            ]
            if not touched and not (taken and refusal.how == "assert"):
                continue
            lines = [b.line for b in facts.branches]
            producers = decides(universe, fn.id, lines) + sites(
                [m for m in facts.mentions if universe.vocabulary.spec.is_config(m.name)],
                "reads the process's algorithm",
                6,
            )
            consumers = (
                taken
                + sites(touched, "takes the KV lengths", 5)
                + sites([refusal], "checks it where there is no algorithm", 6)
            )
            yield Finding(
                kind=self.kind,
                title="KV lengths are checked only where the process has no algorithm",
                producers=producers,
                consumers=consumers,
                binding_time="request lifetime",
                why=(
                    "The check is off as long as the process has an algorithm, and what was reserved "
                    "beyond the committed length is freed either way. It would fire only if a toggle "
                    "cleared the process's algorithm."
                ),
                refactor="Keep the process's algorithm; use a flag of its own for the toggle.",
                verdicts=dict.fromkeys("ABC", (NONE, "the tolerance for reserved KV stays on")),
                fields=sorted({universe.field_name(a) for a in facts.accesses if a.field in names}),
            )

    def _eviction(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("kv_bookkeeping", "eviction")
        spec, plain = spec_writes(universe, names), plain_writes(universe, names)
        if not spec:
            return
        reads = step_reads(universe, names, (SCHEDULER, WORKER))
        consumers = sites(reads, reads_of, 4) + sites(plain, writes_of, 3)
        reason = "steps that do not count are not evicted in time: sliding-window slots are freed later"
        kept = dict.fromkeys("ABC", (NONE, "the scheduler prepares every step of the process so, off steps included"))
        yield Finding(
            kind=self.kind,
            title="The step counter that evicts sliding-window KV is advanced by speculation's own code",
            producers=sites(spec, writes_of, 6),
            consumers=consumers,
            binding_time="per step",
            why=(
                f"{', '.join(sorted({a.field for a in spec}))} is counted inside speculation's "
                "preparation of a step, and in "
                "the plain one that a speculative server skips. An off step that runs neither does not evict."
            ),
            refactor="Count the step and evict in the off step too.",
            verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "the preparation still runs")},
            by_path={
                path: kept
                for path in sorted(universe.paths)
                if not any(universe.fn(a).in_worker for a in on_path(universe, spec, path))
            },
            condition="sliding-window models",
            fields=[f"Req.{a.field}" for a in spec],
            weight=2,
        )


def _of(universe: Universe, function: str) -> list[Access]:
    return universe.facts[function].accesses
