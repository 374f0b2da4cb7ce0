"""DP attention and idle ranks: what ranks tell each other before a step, and what an idle rank runs."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import HARD, SOFT, Finding, of, sites
from sgltrace.coupling.query import callers, decides, paths_of, step_reads, targets
from sgltrace.coupling.regime import SPEC
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.rules.graphs import Graphs
from sgltrace.coupling.scan import deep
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Fn, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, show, writes_of
from sgltrace.index.facts import syntax as s


class DpAttention(Rule):
    """Ranks agree on token counts that a stage multiplies by its width; nothing says which rank speculates."""

    kind = "dp_attention"
    positive = (
        Example(
            {
                "worker": """
                    class EagleDraftInput:
                        def empty(cls, device):
                            return EagleDraftInput(topk_p=torch.empty((0, cls.topk), device=device))

                    class EAGLEWorker:
                        def propose(self, batch: ScheduleBatch):
                            if batch.forward_mode.is_idle():
                                return EagleDraftInput.empty(self.device)
                """,
                "scheduler": """
                    class ScheduleBatch:
                        def idle(self):
                            self.forward_mode = ForwardMode.IDLE
                """,
            },
            producers=("worker:EagleDraftInput.empty",),
            consumers=("worker:EAGLEWorker.propose",),
            severity={},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def idle(self):
                            self.forward_mode = ForwardMode.IDLE
                            self.seq_lens = torch.empty(0)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Token accounting, idle ranks, and the mixing of prefill and decode."""
        yield from self._accounting(universe)
        yield from self._idle(universe)
        yield from self._mixing(universe)

    def _accounting(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("dp_attention", "tokens")
        sync = set(universe.vocabulary.names("dp_attention", "sync_classes"))
        gathers = [fn for fn in universe.fns.values() if fn.cls in sync and fn.per_step]
        coefficients = []
        inputs = {"spec_input", "draft_input", "verify_input", "draft_extend_input"}
        for fn in universe.fns.values():
            facts = universe.facts.get(fn.id)
            if facts is None or universe.role(fn.cls) not in inputs or not facts.returns:
                continue
            if any(mentions_width(universe, value, facts) for _, value, _ in facts.returns) and len(facts.returns) == 1:
                coefficients.append(fn)
        scaling = [
            fn
            for fn in universe.fns.values()
            if universe.role(fn.cls) in inputs
            and fn.id in universe.facts
            and any(a.field in names and not a.write for a in universe.facts[fn.id].accesses)
        ]
        coefficients = [
            c for c in coefficients if any(s.id in universe.callers.get(c.id, ()) for s in scaling)
        ] or coefficients
        makers = _agreeing(universe)
        reads = list(step_reads(universe, names, (TARGET, WORKER, SCHEDULER)))
        if not (gathers or makers) or not coefficients:
            return
        producers = [of(fn, "says how many tokens a request takes in this stage", 6) for fn in coefficients]
        for fn in makers:
            facts = universe.facts[fn.id]
            lines = [a for a in facts.accesses if a.field in ("extend_num_tokens", "forward_mode") and not a.write]
            producers += [*sites(lines, "counts the batch's tokens", 4), of(fn, "counts tokens and has ranks agree", 6)]
        producers += [of(fn, "gathers what ranks tell each other", 5) for fn in gathers]
        consumers = sites([a for a in reads if universe.fn(a).side != SCHEDULER], reads_of, 4)
        consumers += sites(
            [a for a in universe.written(names) if universe.fn(a).side == TARGET and universe.fn(a).per_step],
            writes_of,
            5,
        )
        graphs = Graphs(universe)
        graph = {fn.id for fn in (*graphs.target, *graphs.draft) if not graphs.captures(fn)}
        consumers += sites([a for a in reads if a.function in graph], reads_of, 6)
        consumers += [of(fn, "scales the counts by the stage's width", 6) for fn in scaling]
        reason = "what ranks exchange carries no flag: ranks that decide differently gather different sizes, and hang"
        yield Finding(
            kind=self.kind,
            title="Ranks scale their token counts by the width of a speculative stage",
            producers=producers,
            consumers=consumers,
            binding_time="per step",
            why=(
                "Before each step ranks gather token counts, and each stage multiplies them by its "
                "tokens a request. No element says whether a rank speculates, so ranks that switch "
                "on their own compute different buffer sizes and graph sizes."
            ),
            refactor=(
                "Decide for all ranks: add an element to the gathered tensor, reduce it, and decide "
                "before the batch is run."
            ),
            verdicts=dict.fromkeys("ABC", (HARD, reason)),
            formula="tokens of rank r: bs_r * c; c = topk (draft), num_draft_tokens (verify), 1 (plain)",
            condition="DP attention",
            fields=["ScheduleBatch.global_num_tokens"],
            weight=6,
        )

    def _idle(self, universe: Universe) -> Iterator[Finding]:
        """Speculative inputs of no rows, made for ranks without requests."""
        makers = []
        for fn in sorted(universe.fns.values(), key=lambda f: f.id):
            facts = universe.facts.get(fn.id)
            if (
                facts is None
                or universe.role(fn.cls) not in ("draft_input", "verify_input", "spec_input")
                or fn.name == "__init__"
            ):
                continue
            if any("(0," in show(a.value) for a in facts.accesses if a.how == "keyword" and a.value is not None) or any(
                "(0," in show(arg.value) for c in facts.calls for arg in c.node.args
            ):
                makers.append(fn)
        users = {c.id: c for fn in makers for c in callers(universe, fn) if c.per_step and c.side == WORKER}
        if not makers or not users:
            return
        idles = [
            fn
            for fn in universe.fns.values()
            if fn.side == SCHEDULER
            and fn.per_step
            and universe.role(fn.cls) in ("scheduler", "scheduler_batch", None)
            and fn.id in universe.facts
            and any(_sets_idle(a) for a in universe.facts[fn.id].accesses)
        ]
        modes = [
            a
            for fn in users.values()
            for a in universe.facts[fn.id].accesses
            if a.field == "forward_mode" and not a.write
        ]
        made_idle = {c.id: c for fn in idles for c in callers(universe, fn) if c.side == SCHEDULER}
        agree = {c.id: c for fn in _agreeing(universe) for c in (fn, *callers(universe, fn)) if c.per_step}
        entries = [
            universe.fns[f] for f in sorted(universe.entries) if universe.fns[f].in_worker and not universe.fns[f].other
        ]
        reason = (
            "idle ranks run draft, verify and extend with no rows; ranks in an off step run one forward "
            "pass: collectives do not match"
        )
        yield Finding(
            kind=self.kind,
            title="Idle ranks run every stage of speculation with empty inputs",
            producers=[of(fn, "makes an input of no rows", 5) for fn in makers]
            + [of(fn, "makes an idle batch", 4) for fn in idles]
            + [of(fn, "has an idle batch made", 5) for fn in made_idle.values()]
            + [of(fn, "has ranks agree, with no word of the kind of step", 5) for fn in agree.values()],
            consumers=[of(fn, "runs the stages one after the other", 7) for fn in entries]
            + [of(fn, "runs an idle rank's stages", 5) for fn in users.values()]
            + sites(modes, reads_of, 2),
            binding_time="per step",
            why=(
                "A rank without requests takes part in each stage's collectives with inputs of no "
                "rows. A rank that takes an off step makes fewer collective calls than its idle "
                "peers."
            ),
            refactor="Let all ranks take the same kind of step, the idle ones too.",
            verdicts={
                "A": (HARD, reason),
                "B": (HARD, reason),
                "C": (SOFT, "idle ranks must use the same width of verify"),
            },
            condition="DP attention",
            weight=4,
        )

    def _mixing(self, universe: Universe) -> Iterator[Finding]:
        """Scheduler conditions on both the algorithm and the need for ranks to agree."""
        names = universe.fields("dp_attention")
        for branch in universe.branches:
            fn = universe.fn(branch)
            if fn.side != SCHEDULER or not fn.per_step or branch.reading.scope != "process":
                continue
            facts = universe.facts[fn.id]
            if branch.reading.when_true != SPEC or not _asks(fn, branch.test, names):
                continue
            inner = [c for c in facts.calls if branch.body[0] <= c.line <= branch.body[1]]
            consumers = [
                of(t, "has ranks agree", 5) for c in inner for t in targets(universe, c) if t.side == SCHEDULER
            ]
            if not consumers:
                continue
            reason = "the restriction stays in off steps: prefill and decode are not mixed over ranks"
            yield Finding(
                kind=self.kind,
                title="Prefill and decode are kept apart over ranks while the process speculates",
                producers=decides(universe, fn.id, [branch.line]),
                consumers=consumers + sites([a for a in facts.accesses if a.field in names], reads_of, 2),
                binding_time="per step",
                why=(
                    "With an algorithm ranks agree once more before prefill, so that no rank prefills "
                    "while another decodes."
                ),
                refactor="None; relax it where all ranks are off.",
                verdicts=dict.fromkeys("ABC", (SOFT, reason)),
                condition="DP attention",
                only=paths_of(universe, [fn.id]),
                weight=1,
            )
            return


def _sets_idle(access: Access) -> bool:
    """Whether a write puts a batch into the mode of a rank without requests."""
    return (
        access.write
        and access.field == "forward_mode"
        and access.value is not None
        and any(isinstance(p, s.Attr) and p.attr == "IDLE" for p in s.descend(access.value))
    )


def _agreeing(universe: Universe) -> list[Fn]:
    """The scheduler's functions that count a step's tokens for all ranks."""
    names = universe.fields("dp_attention", "tokens")
    sync = universe.vocabulary.names("dp_attention", "sync_classes")
    return [
        fn
        for fn in sorted(universe.fns.values(), key=lambda f: f.id)
        if fn.side == SCHEDULER
        and fn.per_step
        and fn.id in universe.facts
        and (
            any(c.name in sync for c in universe.facts[fn.id].calls)
            or any(a.write and a.field in names and a.how == "assign" for a in universe.facts[fn.id].accesses)
        )
    ]


def _asks(fn: Fn, test: s.Expr, names: frozenset[str]) -> bool:
    """Whether a condition asks for a field, by itself or through a local name that was ever bound to one."""
    asked = {p.id for p in s.descend(test) if isinstance(p, s.Name)}
    bound = [
        st.value
        for st in deep(fn.body())
        if isinstance(st, s.Assign) and any(isinstance(t, s.Name) and t.id in asked for t in st.targets)
    ]
    return any(isinstance(p, s.Attr) and p.attr in names for e in (test, *bound) for p in s.descend(e))
