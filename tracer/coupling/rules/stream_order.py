"""Stream order: events and streams that keep what one step writes from what the next reads."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import (
    paths_of,
    start_writes,
    step_reads,
    targets,
)
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class StreamOrder(Rule):
    """An event that speculation records and the scheduler waits for, or a stream that only speculation plans on."""

    kind = "stream_order"
    positive = (
        Example(
            {
                "v2": """
                    class EAGLEWorkerV2:
                        def __init__(self):
                            self.plan_stream, self.plan_stream_ctx = make_stream()

                        def verify(self, batch: ScheduleBatch):
                            with self.plan_stream_ctx:
                                self.prepare(batch)
                """,
            },
            consumers=("v2:EAGLEWorkerV2.verify",),
            severity={"v1": None, "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def wait(self, result: GenerationBatchResult):
                            if result.copy_done is not None:
                                result.copy_done.synchronize()
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Streams: where they are joined, and what is replaced under them."""
        yield from self._planning(universe)
        yield from self._overlap(universe)

    def _planning(self, universe: Universe) -> Iterator[Finding]:
        streams = universe.fields("stream_order", "streams")
        writes = [a for a in start_writes(universe, streams) if _speculative_owner(universe, a.function)]
        streams = frozenset(a.field for a in writes)
        reads = step_reads(universe, streams, (WORKER,))
        if not writes or not reads:
            return
        entered = {a.function for a in reads if a.how != "test" and not universe.elsewhere(universe.fn(a))}
        joined = {
            function
            for function in entered
            for call in universe.facts[function].calls
            if call.name in ("wait_stream", "wait_event", "synchronize")
            and (call.owner in streams or any(last_name(arg.value) in streams for arg in call.node.args))
        }
        handed = {c.id: universe.fns[c.id] for f in sorted(entered) for c in _handed(universe, f, streams)}
        joined |= {f for f in entered if any(c.id in handed for c in _handed(universe, f, streams))}
        open_ended = sorted(f for f in entered - joined if not universe.fns[f].other)
        reason = "a stage leaves the planning stream unjoined: what runs after must wait for it"
        verdict = (SOFT, reason) if open_ended else (NONE, "each stage that enters the stream joins it before it ends")
        makers = {c for a in writes for c in universe.callees.get(a.function, ()) if universe.facts[c].returns}
        makers = {c for c in makers if any(call.name == "Stream" for call in universe.facts[c].calls)}
        after = [
            universe.fns[c]
            for f in sorted(entered)
            for c in sorted(universe.callees.get(f, ()))
            if universe.is_a(universe.fns[c].cls, universe.vocabulary.names("attention", "classes"))
        ]
        yield Finding(
            kind=self.kind,
            title="Verify and the draft's extend are planned on a stream of their own",
            producers=sites(writes, writes_of, 4)
            + [of(universe.fns[c], "makes the stream", 5) for c in sorted(makers)]
            + sites(reads, reads_of, 5),
            consumers=sites(reads, reads_of, 5)
            + [of(fn, "is handed the stream", 4) for fn in handed.values()]
            + [of(fn, "fills metadata again after the draft", 3) for fn in after],
            binding_time="process start",
            why=(
                "Attention metadata of verify and of the draft's extend is prepared on a planning "
                "stream, and buffers that depend on the draft are filled again after it. A plain "
                "step prepares its own on the forward stream."
            ),
            refactor="Prepare the off step on the forward stream, and leave the planning stream alone.",
            verdicts=dict.fromkeys("ABC", verdict),
            condition="overlap plan stream enabled",
            only=paths_of(universe, [a.function for a in reads]),
            weight=2,
        )

    def _overlap(self, universe: Universe) -> Iterator[Finding]:
        """Tensors that live on two streams: recorded on one, replaced on the other."""
        recorded = [c for c in universe.calls.get("record_stream", ()) if universe.fn(c).side in (SCHEDULER, WORKER)]
        replaced = [
            a
            for a in universe.written(universe.fields("seq_lens") | universe.vocabulary.spec.info_fields)
            if universe.fn(a).side == SCHEDULER and a.regime == "spec" and universe.fn(a).per_step
        ]
        isolated = [
            of(fn, "keeps the batch as it was while the worker runs", 5)
            for fn in map(universe.fns.__getitem__, sorted(universe.generators & universe.facts.keys()))
            if fn.per_step
            and fn.cls in universe.scheduler_classes
            and any(b.reading.known for b in universe.facts[fn.id].branches)
        ]
        if not (recorded or isolated) or not replaced:
            return
        reason = "an in-place change of what two streams share is seen by the step in flight"
        yield Finding(
            kind=self.kind,
            title="Lengths and draft state are replaced while the step that reads them is in flight",
            producers=sites(replaced, writes_of, 5),
            consumers=sites(recorded, "keeps the tensor alive for the forward stream", 5) + isolated,
            binding_time="per step",
            why=(
                "After launch the scheduler puts the step's future lengths and draft state on the "
                "batch, while the worker still reads the old ones on the forward stream. Each shared "
                "tensor must be recorded there, and none changed in place."
            ),
            refactor="Make new tensors in the off step, and record the shared ones on the forward stream.",
            verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "the speculative step already does")},
            fields=sorted({f"ScheduleBatch.{a.field}" for a in replaced}),
            only=("v2",),
            weight=3,
        )


def _handed(universe: Universe, function: str, streams: frozenset[str]) -> list[Fn]:
    """The functions to which a function hands a stream."""
    return [
        callee
        for call in universe.facts[function].calls
        if any(arg.name in streams for arg in call.node.args)
        for callee in targets(universe, call)
    ]


def _speculative_owner(universe: Universe, function: str) -> bool:
    role = universe.role(universe.fns[function].cls)
    return role in ("spec_worker", "draft_worker")
