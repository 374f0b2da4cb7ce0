"""Two-batch overlap: how a batch is cut in two when it carries a speculative input."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import call_line, callers, decides, step_reads, targets
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, Universe
from sgltrace.coupling.wording import reads_of
from sgltrace.index.facts import syntax as s


class TwoBatchOverlap(Rule):
    """The cut counts tokens a request by the mode and by the speculative input."""

    kind = "tbo"
    positive = (
        Example(
            {
                "target": """
                    class TboForwardBatchPreparer:
                        def width(batch: ForwardBatch):
                            if batch.forward_mode.is_target_verify():
                                return batch.spec_info.draft_token_num
                            return 1

                    class ForwardBatch:
                        def cut(self):
                            self.tbo_split_seq_index = split(self)
                            return self.tbo_split_seq_index
                """,
            },
            producers=("target:TboForwardBatchPreparer.width",),
            consumers=("target:ForwardBatch.cut",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "target": """
                    class TboForwardBatchPreparer:
                        def width(batch: ForwardBatch):
                            return 1
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Functions of two-batch overlap that read a speculative input or mode, and who asks them for the cut."""
        fields = universe.fields("tbo")
        parts = universe.vocabulary.names("tbo", "modules")
        inside = {
            fn.id
            for fn in universe.fns.values()
            if set(fn.module.split(".")) & parts or universe.is_a(fn.cls, universe.vocabulary.names("tbo", "classes"))
        }
        words = universe.vocabulary.spec
        reads = [
            a
            for a in universe.read(words.info_fields | words.widths | {"custom_mask"})
            if a.function in inside and universe.fn(a).per_step
        ]
        branches = [b for b in universe.branches if b.function in inside and universe.fn(b).per_step]
        if not reads and not branches:
            return
        flags = step_reads(universe, fields, (TARGET, SCHEDULER))
        producers = [
            s for f in sorted({b.function for b in branches}) for s in decides(universe, f, [b.line for b in branches])
        ]
        producers += sites(reads, reads_of, 4)
        modes = universe.fields("cuda_graph", "mode")
        fixed = [
            call
            for name in sorted({universe.fns[f].name for f in inside})
            for call in universe.calls.get(name, ())
            if any(isinstance(arg.value, s.Attr) and arg.value.attr in modes for arg in call.node.args)
            and any(t.id in inside and t.per_step for t in targets(universe, call))
        ]
        reason = (
            "a graph runner has the batch cut by the mode of its capture: a batch without a speculative input raises"
            if fixed
            else "all ranks must cut by the same mode: a rank in an off step cuts by one token a request"
        )
        level = HARD if fixed else SOFT
        yield Finding(
            kind=self.kind,
            title="Two-batch overlap cuts a batch by the tokens of its speculative stage",
            producers=producers + sites(fixed, "has a batch cut by the mode of its capture", 5),
            consumers=sites([a for a in flags if a.function not in inside], reads_of, 4)
            + [
                of(c, "cuts by it", 4, call_line(universe, c, universe.fns[f]))
                for f in sorted({p.function for p in producers})
                for c in callers(universe, universe.fns[f])
                if c.id in inside and c.per_step
            ]
            + sites(flags, reads_of, 3)
            + sites(list(reads), reads_of, 2),
            binding_time="per step",
            why=(
                "The cut and the parts of the speculative input (masks, positions, trees) are "
                "computed for verify's tokens a request, and graphs are captured so. A decode is cut "
                "by one token a request; ranks exchange only whether they can."
            ),
            refactor="Cut by the mode of the step that runs, and let ranks agree on it.",
            verdicts={"A": (level, reason), "B": (level, reason), "C": (NONE, "verify is cut as before")},
            condition="two-batch overlap",
            fields=["ForwardBatch.tbo_split_seq_index"],
            weight=2,
        )
