"""Sampling and penalties: who feeds the penalties, and how sampling parameters are laid out."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Call
from sgltrace.coupling.point import NONE, SOFT, Finding, of, site, sites
from sgltrace.coupling.query import by_regime, callers, calls_on, comes_from, on_path, paths_of, step_reads, targets
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.wording import reads_of


class Sampling(Rule):
    """Penalties are fed in one place with speculation and in another without; parameters follow draft tokens."""

    kind = "sampling"
    positive = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            if not self.spec_algorithm.is_none():
                                return
                            self.sampling_info.penalizer_orchestrator.feed(self.output_ids)

                    class BatchedPenalizerOrchestrator:
                        def feed(self, tokens):
                            for penalizer in self.penalizers:
                                penalizer.add(tokens)
                """,
            },
            producers=("scheduler:ScheduleBatch.next_step",),
            consumers=("scheduler:BatchedPenalizerOrchestrator.feed",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            self.sampling_info.penalizer_orchestrator.feed(self.output_ids)

                    class BatchedPenalizerOrchestrator:
                        def feed(self, tokens):
                            self.tokens = tokens
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The penalties, then verify's own sampling."""
        yield from self._penalties(universe)
        yield from self._own_sampling(universe)
        yield from self._adjusted(universe)

    def _penalties(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("sampling", "penalties")
        fed = [
            c
            for c in calls_on(universe, names)
            if c.node.args
            and universe.fn(c).per_step
            and universe.fn(c).side in (SCHEDULER, WORKER)
            and _takes_tokens(universe, c)
        ]
        chosen = by_regime(universe, fed)
        spec = [c for c in chosen if universe.fn(c).side == WORKER or c.regime == "spec"]
        plain = [c for c in chosen if c.regime == "plain"]
        if not plain:
            return
        inner = {callee.id: callee for c in fed for callee in targets(universe, c)}
        consumers = [of(fn, "adds the tokens to the penalties", 6) for fn in inner.values()]
        reads = step_reads(universe, names, (SCHEDULER, TARGET))
        classes = {fn.id for fn in universe.of_class("sampling")}
        consumers += sites([a for a in reads if a.function in classes], reads_of, 5) + sites(reads, reads_of, 1)
        reason = "tokens of on steps are fed differently, or not at all: off steps apply incomplete penalties"
        yield Finding(
            kind=self.kind,
            title="Penalties are fed by each regime on its own",
            producers=[site(c, "feeds tokens to the penalties", 6) for c in (*spec, *plain)],
            consumers=consumers,
            binding_time="per step",
            why=(
                "A plain step feeds the last token of each request; "
                + (
                    "speculation feeds the last verified token, not all accepted ones"
                    if spec
                    else "speculation feeds none"
                )
                + ". Off steps then apply penalties that miss tokens, or count one twice where both places run."
            ),
            refactor="Feed every accepted token from one place, for both kinds of step.",
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            formula="plain: one token a step; speculative: at most one of the accepted ones",
            condition="penalties in use",
            fields=["SamplingBatchInfo.penalizer_orchestrator"],
            weight=3,
        )

    def _own_sampling(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("sampling", "parameters")
        spec = list(step_reads(universe, names, (WORKER,)))
        plain = step_reads(universe, names, (TARGET, SCHEDULER))
        if not spec or not plain:
            return
        reason = (
            "an off step samples by the plain sampler: features that verify lacks, or has relaxed, change between steps"
        )
        yield Finding(
            kind=self.kind,
            title="Verify samples on its own, with parameters spread over the draft tokens",
            producers=sites(spec, reads_of, 4),
            consumers=sites(plain, reads_of, 2),
            binding_time="per step",
            why=(
                "Verify repeats temperatures, top-k and top-p for every draft token and samples by "
                "rejection; the plain sampler knows more (min-p, seeds, custom processors). Requests "
                "see one or the other from step to step."
            ),
            refactor="Let the off step use the plain sampler, and document which features differ.",
            verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "verify samples as before")},
            condition="sampling other than greedy",
            only=paths_of(universe, [a.function for a in spec]),
            weight=2,
        )

    def _adjusted(self, universe: Universe) -> Iterator[Finding]:
        """What the plain sampler does to logits before it samples, and verify does too, or not, path by path."""
        names = universe.fields("sampling", "adjust")
        classes = universe.vocabulary.names("sampling", "classes")
        plain = [
            a for a in step_reads(universe, names, (TARGET, SCHEDULER)) if universe.is_a(universe.fn(a).cls, classes)
        ]
        samples = [
            a
            for a in step_reads(universe, universe.fields("sampling", "parameters") | names, (WORKER,))
            if universe.fn(a).in_worker and not universe.elsewhere(universe.fn(a))
        ]
        if not plain or not samples:
            return
        asked = {a.field for a in plain}
        by_path = {}
        for path in sorted(universe.paths):
            here = {a.field for a in on_path(universe, samples, path)}
            missing = sorted(asked - here)
            reason = (
                f"verify leaves out {', '.join(missing)}, the plain sampler does not: the distribution changes"
                if missing
                else "verify adjusts logits as the plain sampler does"
            )
            by_path[path] = dict.fromkeys("AB", (SOFT if missing else NONE, reason)) | {
                "C": (NONE, "verify samples as before")
            }
        yield Finding(
            kind=self.kind,
            title="Biases and processors are applied to logits by the plain sampler, and by verify on its own",
            producers=sites(samples, reads_of, 5),
            consumers=sites(plain, reads_of, 4)
            + [
                of(caller, "samples a plain step", 3)
                for fn in {a.function: universe.fn(a) for a in plain}.values()
                for caller in callers(universe, fn)
                if caller.per_step and caller.side == TARGET
            ],
            binding_time="per step",
            why=(
                f"The plain sampler asks for {', '.join(sorted(asked))}. Where verify does not, a request that uses "
                "them is sampled from one distribution in on steps and from another in off steps."
            ),
            refactor="Apply the same adjustments in verify, or document the change.",
            verdicts={},
            by_path=by_path,
            condition="logit bias or custom logit processors in use",
            fields=sorted({universe.field_name(a) for a in plain}),
            weight=1,
        )


def _takes_tokens(universe: Universe, call: Call) -> bool:
    """Whether a method of the penalties is handed tokens, and returns nothing."""
    names = universe.fields("input_ids") | universe.fields("input_ids", "tokens") | universe.fields("result", "output")
    local = universe.facts[call.function].local
    given = any(comes_from(a.value, names, local) for a in call.node.args)
    return given and any(len(f.params) == 2 and not universe.facts[f.id].returns for f in targets(universe, call))
