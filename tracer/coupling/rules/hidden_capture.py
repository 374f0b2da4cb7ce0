"""Hidden-state capture: which hidden states a forward pass of the target keeps for the draft."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import is_copy, on_path, start_writes, step_reads, targets
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import OUTSIDE, SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class HiddenCapture(Rule):
    """The mode of capture is set by the speculative stage that runs; a plain step asks for none."""

    kind = "hidden_capture"
    positive = (
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def prefill(self, batch: ScheduleBatch):
                            batch.capture_hidden_mode = CaptureHiddenMode.FULL
                """,
                "target": """
                    class LogitsProcessor:
                        def keep(self, batch: ForwardBatch, states):
                            if batch.capture_hidden_mode.need_capture():
                                return states
                """,
            },
            producers=("worker:EAGLEWorker.prefill",),
            consumers=("target:LogitsProcessor.keep",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def worker_batch(self):
                            return ModelWorkerBatch(capture_hidden_mode=CaptureHiddenMode.NULL)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Who sets the mode, at start and for each stage, and who keeps hidden states by it."""
        yield from self._returned(universe)
        fields = universe.fields("hidden_capture")
        outputs = universe.fields("hidden_capture", "outputs")
        writes = [a for a in universe.written(fields) if universe.fn(a).side == WORKER and universe.fn(a).per_step]
        at_start = [a for a in start_writes(universe, fields) if a not in writes]
        spec_start = [a for a in at_start if a.regime == "spec" or universe.fn(a).side != OUTSIDE]
        reads = step_reads(universe, fields, (SCHEDULER, TARGET, WORKER))
        modes = [
            m
            for name, found in universe.mentions.items()
            for m in found
            if m.owner in universe.vocabulary.spec.hidden_enums and universe.fn(m).side in (SCHEDULER, TARGET)
        ]
        if not writes or not reads:
            return
        reason = "the mode of a plain step is none: then there are no hidden states to keep the draft current with"
        yield Finding(
            kind=self.kind,
            title="The stage of speculation chooses which hidden states the target keeps",
            producers=sites([a for a in writes if not is_copy(a)], writes_of, 5) + sites(spec_start, writes_of, 3),
            consumers=sites(reads, reads_of, 4)
            + sites(modes, "decides by the mode", 3)
            + sites(step_reads(universe, outputs - {"return_hidden_states"}, (TARGET,)), reads_of, 1),
            binding_time="per stage",
            why=(
                "Prefill and verify ask for all hidden states, drafting for the last. A plain step "
                "asks for none, and leaves nothing to extend the draft with. Auxiliary layers are "
                "chosen on the model when it is loaded and stay on."
            ),
            refactor=(
                "Ask for the last (or all) hidden states in an off step that keeps the draft warm, for "
                "none only if it does not."
            ),
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            formula="hidden states: (tokens, hidden size), three times as wide with auxiliary layers",
            fields=sorted({universe.field_name(a) for a in writes}),
            weight=4,
        )
        aux = [a for a in at_start if a.regime == "spec"]
        layers = [
            c
            for setter in sorted({a.function for a in universe.written(fields)})
            for c in universe.calls.get(universe.fns[setter].name, ())
            if c.regime == "spec"
            and setter in universe.callees.get(c.function, ())
            and universe.fn(c).at_start
            and not universe.fn(c).per_step
        ]
        if aux:
            yield Finding(
                kind=self.kind,
                title="Auxiliary layers are captured from the moment the target is loaded",
                producers=sites(aux, writes_of, 4) + sites(layers, "has the model keep its layers' outputs", 5),
                consumers=[of(t, "chooses the layers", 3) for c in layers for t in targets(universe, c)]
                + sites(step_reads(universe, outputs | fields, (TARGET, WORKER)), reads_of, 2),
                binding_time="process start",
                why=(
                    "The layers whose outputs are kept are an attribute of the model; off steps compute "
                    "and concatenate them too."
                ),
                refactor="None needed; the cost stays.",
                verdicts=dict.fromkeys("ABC", (NONE, "the capture stays on and does no harm")),
                condition="EAGLE-3 with auxiliary hidden states",
                fields=sorted({universe.field_name(a) for a in aux}),
            )

    def _returned(self, universe: Universe) -> Iterator[Finding]:
        """Hidden states that a client asked for: unset by the worker, and read row by row by the scheduler."""
        asked = universe.fields("hidden_capture", "returned")
        unset = [a for a in universe.written(asked) if universe.fn(a).side == WORKER and universe.fn(a).per_step]
        kept = [
            a
            for a in universe.written({"hidden_states"})
            if universe.role(a.cls) == "request" and universe.fn(a).side == SCHEDULER and universe.fn(a).per_step
        ]
        reads = list(step_reads(universe, asked, (SCHEDULER,)))
        rows = [
            a
            for a in universe.written({"hidden_states"})
            if universe.role(a.cls) in ("logits_output", "result") and universe.fn(a).side == WORKER
        ]
        if not (unset or rows) or not (kept or reads):
            return
        reason = "the worker has unset the wish: hidden states of the off step's token are not returned"
        kept_wish = (NONE, "the wish stays on the batch, and a plain result has the row that the scheduler takes")
        yield Finding(
            kind=self.kind,
            title="Hidden states that a client asked for are unset, or laid out by draft token",
            producers=sites(unset, writes_of, 5) + sites(rows, writes_of, 3),
            consumers=sites(kept, writes_of, 5) + sites(reads, reads_of, 3),
            binding_time="per step",
            why=(
                "The worker unsets the wish for hidden states on the batch, and a verify's hidden "
                "states have a row for each draft token, where the scheduler takes row i for request "
                "i."
            ),
            refactor="Keep the wish on the batch, and take rows by the result's stride.",
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            by_path={
                p: dict.fromkeys("ABC", kept_wish) for p in sorted(universe.paths) if not on_path(universe, unset, p)
            },
            condition="hidden states requested",
            fields=["ScheduleBatch.return_hidden_states"],
            weight=1,
        )
