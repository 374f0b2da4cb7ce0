"""Draft state: what the next draft starts from."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import (
    BATCHES,
    DRAFTS,
    call_line,
    callers,
    held_by,
    is_copy,
    spec_writes,
    start_writes,
    step_reads,
)
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.rules.graphs import Graphs
from sgltrace.coupling.universe import SCHEDULER, WORKER, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s

_HOLDERS = (*DRAFTS, "future_map", "future_indices")


class DraftState(Rule):
    """A field that each speculative step reads from the one before, and that only drafting code writes."""

    kind = "draft_state"
    positive = (
        Example(
            {
                "v2": """
                    class EagleDraftWorker:
                        def widen(self, batch: ModelWorkerBatch):
                            batch.seq_lens = batch.seq_lens + self.speculative_num_draft_tokens
                            batch.forward_mode = ForwardMode.DRAFT_EXTEND

                        def extend(self, batch: ModelWorkerBatch):
                            self.widen(batch)
                """,
            },
            producers=("v2:EagleDraftWorker.widen",),
            consumers=("v2:EagleDraftWorker.extend",),
            severity={"v1": None, "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Sampler:
                        def keep(self, logits):
                            self.topk_p = logits.softmax(-1)
                            return self.topk_p
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The loop-carried fields, the token the draft continues from, and the inputs of the draft's own extend."""
        yield from self._extend(universe)
        yield from self._fixed_extend(universe)
        yield from self._placeholders(universe)
        yield from self._vocabulary_map(universe)

    def _extend(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("draft_state", "extend")
        writes = [a for a in held_by(universe, spec_writes(universe, names), DRAFTS) if not is_copy(a)]
        reads = held_by(universe, step_reads(universe, names), (*DRAFTS, "forward_batch"))
        if not writes or not reads:
            return
        reason = (
            "the draft's extend takes its widths from verify's accept counts: a kept-warm off step must supply them"
        )
        yield Finding(
            kind=self.kind,
            title="The draft's extend is sized by what verify accepted",
            producers=sites(writes, writes_of, 5),
            consumers=sites(reads, reads_of, 4),
            binding_time="per step",
            why=(
                f"{', '.join(sorted({a.field for a in writes})[:4])} come out of verify, and the "
                "extend that keeps the draft "
                "current reads them. An off step that wants to keep the draft warm has no verify to take them from."
            ),
            refactor="Build them for one accepted token for each request.",
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify still writes them")},
            fields=sorted({universe.field_name(a) for a in writes}),
            condition="the off step keeps the draft current by the existing extend",
            weight=4,
        )

    def _fixed_extend(self, universe: Universe) -> Iterator[Finding]:
        """A draft's extend that takes as many rows of each request as verify had, whatever was accepted."""
        names = universe.fields("draft_state", "extend_lengths")
        modes = universe.vocabulary.spec.spec_modes
        stages = {
            m.function
            for mode in sorted(modes)
            if "EXTEND" in mode
            for m in universe.mentions.get(mode, ())
            if universe.fn(m).in_worker and universe.fn(m).side == WORKER and not universe.fn(m).other
        }
        wide = [
            a
            for a in universe.written(names)
            if a.function in stages
            and universe.role(a.cls) in BATCHES
            and mentions_width(universe, a.value, universe.facts[a.function])
        ]
        if not wide:
            return
        above = {
            c.id: c
            for f in sorted({a.function for a in wide})
            for c in callers(universe, universe.fns[f])
            if c.in_worker and c.side == WORKER and not c.other
        }
        graphs = Graphs(universe)
        replays = [fn for fn in graphs.draft if not graphs.captures(fn) and fn.per_step and not universe.elsewhere(fn)]
        reads = [a for fn in replays for a in universe.facts[fn.id].accesses if a.field in names and not a.write]
        reason = "the one row of an off step's request does not fill the width that the extend takes of each"
        yield Finding(
            kind=self.kind,
            title="The draft's extend takes a fixed number of rows of every request",
            producers=sites(wide, writes_of, 5) + [of(fn, "extends the draft by it", 5) for fn in above.values()],
            consumers=sites(reads, reads_of, 5)
            + [of(fn, "takes rows by the width", 5) for fn in above.values()]
            + sites([a for a in universe.written(names) if a.function in stages], writes_of, 2),
            binding_time="per step",
            why=(
                "The extend that keeps the draft current adds the width of a verify to every length, and takes the "
                "accepted row by that stride. Handed the one token of an off step it has too few rows."
            ),
            refactor="Hand the width of the result to the extend, or pad the off step's rows to it.",
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify has rows of the same width")},
            formula="rows of request i: from i * num_draft_tokens on, num_draft_tokens of them",
            condition="the off step keeps the draft current by the existing extend",
            fields=sorted({universe.field_name(a) for a in wide}),
            weight=3,
        )

    def _placeholders(self, universe: Universe) -> Iterator[Finding]:
        """Draft state that the worker fills with constants, in a step that does not draft."""
        names = universe.fields("draft_state")
        made = [
            a
            for a in held_by(universe, universe.written(names), DRAFTS, unknown=False)
            if universe.fn(a).in_worker
            and not universe.fn(a).other
            and a.how == "assign"
            and isinstance(a.value, s.Call)
            and last_name(a.value.func) in ("zeros", "full", "ones", "zeros_like", "new_zeros")
        ]
        reads = step_reads(universe, names)
        relayed = [a for a in reads if universe.role(universe.fn(a).cls) == "future_map"]
        drafted = [a for a in reads if universe.fn(a).in_worker and universe.role(a.cls) in DRAFTS]
        if not made or not reads:
            return
        reason = "shapes are right and nothing fails: drafts start from a constant, and few are accepted for a while"
        yield Finding(
            kind=self.kind,
            title="A step without a draft leaves constants as the draft state",
            producers=sites(made, writes_of, 5)
            + [
                of(c, "has the draft state filled with constants", 4, call_line(universe, c, universe.fn(made[0])))
                for f in sorted({a.function for a in made})
                for c in callers(universe, universe.fns[f])
                if c.in_worker
            ],
            consumers=sites(relayed, reads_of, 5) + sites(drafted, reads_of, 4) + sites(reads, reads_of, 1),
            binding_time="per step",
            why=(
                "Where the draft's extend is skipped the worker fills what the relay expects with constants. The next "
                "on step drafts from them, over positions whose draft KV nobody wrote."
            ),
            refactor="Leave the draft's extend on, or extend over the gap before the first on step.",
            verdicts={"C": (SOFT, reason)},
            condition="the draft's extend is skipped in off steps",
            fields=sorted({universe.field_name(a) for a in made}),
        )

    def _vocabulary_map(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("draft_state", "vocabulary_map")
        writes = start_writes(universe, names)
        reads = step_reads(universe, names, (WORKER, SCHEDULER))
        if not writes or not reads:
            return
        yield Finding(
            kind=self.kind,
            title="Draft token ids are in the draft's own vocabulary",
            producers=sites(writes, writes_of, 3),
            consumers=sites(reads, reads_of, 3),
            binding_time="process start",
            why="Ids that a bypass puts into the draft state as placeholders are mapped through the draft's token map.",
            refactor="Write placeholders that are valid ids of the draft's vocabulary.",
            verdicts=dict.fromkeys("AB", (SOFT, "placeholder ids must be ids of the draft's vocabulary")),
            condition="a draft with its own token map",
            weight=1,
        )
