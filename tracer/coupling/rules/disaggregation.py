"""Disaggregation: draft state and draft KV that prefill hands to decode."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import DRAFTS, decides
from sgltrace.coupling.regime import BATCH, PLAIN
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import Universe
from sgltrace.coupling.wording import reads_of, writes_of


class Disaggregation(Rule):
    """Prefill sends what the first draft of decode needs; decode builds a draft state of it."""

    kind = "disaggregation"
    positive = (
        Example(
            {
                "disaggregation": """
                    class MetadataBuffers:
                        def put(self, req: Req, result):
                            req.output_topk_p = result.next_draft_input.topk_p

                        def take(self, req: Req, batch: ScheduleBatch):
                            batch.spec_info = EagleDraftInput(topk_p=req.output_topk_p)
                """,
            },
            producers=("disaggregation:MetadataBuffers.put",),
            consumers=("disaggregation:MetadataBuffers.take",),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "disaggregation": """
                    class MetadataBuffers:
                        def put(self, req: Req, result):
                            self.output_ids[req.index] = result.next_token_ids
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The draft state in the metadata, and the draft's KV pool in the transfer."""
        names = universe.fields("disaggregation", "state")
        parts = universe.vocabulary.names("disaggregation", "modules")
        inside = {fn.id for fn in universe.fns.values() if set(fn.module.split(".")) & parts}
        infos = universe.vocabulary.spec.info_fields
        writes = [a for a in universe.written(names) if a.function in inside or universe.role(a.cls) == "request"]
        writes = [a for a in writes if universe.fn(a).name != "__init__"]
        reads = list(universe.read(names))
        made = [a for a in universe.written(infos) if a.function in inside]
        relayed = infos | universe.vocabulary.spec.result_fields
        sent = [a for a in universe.read(relayed) if a.function in inside]
        branches = [b for b in universe.branches if b.function in inside]
        if (writes or sent) and (reads or made):
            bare = [
                a
                for a in universe.read(universe.fields("draft_state"))
                if a.function in inside
                and (universe.role(a.cls) in DRAFTS or a.owner in relayed)
                and a.scope != BATCH
                and a.regime != PLAIN
            ]
            reason = (
                "what prefill sends is read off the draft state without asking for one: without a draft it raises"
                if bare
                else "a prefill without a draft sends none: decode starts from another request's draft state"
            )
            yield Finding(
                kind=self.kind,
                title="Prefill sends a draft state, and decode starts from it",
                producers=sites(writes, writes_of, 5) + sites(sent, reads_of, 4),
                consumers=sites(reads, reads_of, 4)
                + sites(made, writes_of, 5)
                + [
                    s
                    for f in sorted({b.function for b in branches})
                    for s in decides(universe, f, [b.line for b in branches])
                ],
                binding_time="request admission",
                why=(
                    "Probabilities, indices and hidden states of the first draft travel with a "
                    "request from prefill to decode, which builds its draft state of them, and "
                    "stores it in the relay. Both ends must run with the same algorithm and widths."
                ),
                refactor="Keep building the draft state on arrival, whatever the first step is.",
                verdicts={
                    "A": (HARD if bare else SOFT, reason),
                    "B": (SOFT, reason),
                    "C": (NONE, "the worker starts from it as before"),
                },
                condition="PD disaggregation",
                fields=[f"Req.{n}" for n in sorted(names)],
                weight=3,
            )
        pools = universe.fields("disaggregation", "pools")
        bound = [a for a in universe.written(pools) if universe.fn(a).at_start]
        used = list(universe.read(pools))
        makers = [
            fn
            for fn in universe.fns.values()
            if fn.id in universe.facts
            and fn.at_start
            and any(arg.name in pools for c in universe.facts[fn.id].calls for arg in c.node.args)
        ]
        if (bound or makers) and used:
            yield Finding(
                kind=self.kind,
                title="The draft's KV pool is registered for transfer beside the target's",
                producers=sites(bound, writes_of, 4)
                + [of(fn, "hands the draft's pool to the transfer", 5) for fn in makers],
                consumers=sites(used, reads_of, 5)
                + [
                    of(universe.fns[c], "is made with sizes of the draft", 4)
                    for fn in makers
                    for c in universe.callees.get(fn.id, ())
                    if c in inside and universe.fns[c].name == "__init__"
                ],
                binding_time="process start",
                why=(
                    "KV of the draft is sent with the target's by the same slots. What off steps leave "
                    "unwritten is sent as it is."
                ),
                refactor="None; keep the draft's KV filled for what is sent.",
                verdicts=dict.fromkeys(
                    "ABC", (NONE, "pools are fixed for the process, and their layout does not change")
                ),
                condition="PD disaggregation",
            )
