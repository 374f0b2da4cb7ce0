"""Grammar: who advances it, and who masks the vocabulary by it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.facts import Call
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, site, sites
from sgltrace.coupling.query import by_regime, calls_on, on_path, predicates_in, spec_writes, step_reads, targets
from sgltrace.coupling.regime import PLAIN, SPEC
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of, writes_of


class Grammar(Rule):
    """A grammar must accept each token once: the worker, or a branch of the scheduler, does it by the regime."""

    kind = "grammar"
    positive = (
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def check(self, batch: ScheduleBatch, tokens):
                            for req in batch.reqs:
                                req.grammar.accept_token(tokens[req])
                """,
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch, tokens):
                            for req in batch.reqs:
                                if batch.spec_algorithm.is_none():
                                    req.grammar.accept_token(tokens[req])
                """,
            },
            producers=("worker:EAGLEWorker.check",),
            consumers=("scheduler:Scheduler.process",),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch, tokens):
                            for req in batch.reqs:
                                req.grammar.accept_token(tokens[req])
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Who advances the grammar, then who makes and clears the mask."""
        names = universe.fields("sampling", "grammar")
        moved = [
            c
            for c in calls_on(universe, universe.fields("sampling", "grammar_object"))
            if c.node.args and universe.fn(c).per_step and universe.fn(c).side in (SCHEDULER, WORKER)
        ]
        undone = {
            c.function
            for name in universe.vocabulary.names("sampling", "grammar_undo")
            for c in universe.calls.get(name, ())
        }
        calls = by_regime(universe, moved)
        worker = [c for c in calls if universe.fn(c).side == WORKER and c.function not in undone]
        scheduler = [c for c in calls if universe.fn(c).side == SCHEDULER and c.regime is not None]
        shared = {c.name for c in (*moved, *scheduler) if universe.fn(c).side == SCHEDULER}
        owners = [c for c in worker if c.name in shared]
        reads = step_reads(universe, names, (SCHEDULER, WORKER))
        if owners or scheduler:
            reason = (
                "the token of a plain result is accepted by nobody on this path, or twice: the mask of "
                "the next step is wrong"
            )
            soft = "the scheduler accepts what the result's counts say: a plain result must carry them"
            yield Finding(
                kind=self.kind,
                title="The grammar is advanced by the worker or by the scheduler, by the regime",
                producers=[site(c, f"calls {c.name} of the grammar", 6) for c in (*owners, *scheduler)],
                consumers=[site(c, f"calls {c.name} of the grammar", 5) for c in scheduler]
                + sites([a for a in reads if a.field == "grammar"], reads_of, 3)
                + sites(reads, reads_of, 1),
                binding_time="per step",
                why=(
                    "Each token must move the grammar exactly once. With speculation verify does it, "
                    "or the scheduler over the list of accepted tokens; without, the scheduler with "
                    "the one token. A plain result in a speculative process meets neither branch, or "
                    "the wrong one."
                ),
                refactor="Accept the off step's token in the same place as the path's accepted tokens.",
                verdicts={
                    "A": (HARD, reason),
                    "B": (HARD, reason),
                    "C": (NONE, "one accepted token is accepted as before"),
                },
                by_path={"v2": {"A": (SOFT, soft), "B": (SOFT, soft)}} if not _on(universe, owners, "v2") else {},
                condition="grammar in use",
                fields=["Req.grammar"],
                weight=3,
            )
        yield from self._mask(universe, names)
        yield from self._given_up(universe)
        yield from self._barrier(universe, names)

    def _mask(self, universe: Universe, names: frozenset[str]) -> Iterator[Finding]:
        writes = [
            a for a in spec_writes(universe, names, resets=True) if a.field in ("vocab_mask", "grammars", "grammar")
        ]
        makers = [
            c
            for found in universe.calls.values()
            for c in found
            if c.owner == "" and universe.fn(c).side == WORKER and _walks_grammar(universe, c)
        ]
        plain = [a for a in step_reads(universe, names, (TARGET, SCHEDULER)) if a.field in ("vocab_mask", "grammars")]
        if not (writes or makers) or not plain:
            return
        reason = (
            "verify clears the batch's mask and makes its own for the tree; a plain step needs one of (bs, vocabulary)"
        )
        yield Finding(
            kind=self.kind,
            title="The vocabulary mask is made for the draft's tree, and the batch's own is cleared",
            producers=sites(writes, writes_of, 5) + [site(c, f"calls {c.name}", 4) for c in makers],
            consumers=sites(plain, reads_of, 4),
            binding_time="per step",
            why=(
                "Verify walks the grammar over the draft's tree for a mask of a row for each draft "
                "token, and unsets the mask on the sampling info. The plain sampler reads a mask of "
                "a row for each request from there."
            ),
            refactor="Fill the plain mask in the off step, before sampling.",
            verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "verify makes its mask")},
            formula="verify: (bs * num_draft_tokens, vocabulary words); plain: (bs, vocabulary words)",
            condition="grammar in use",
            fields=["SamplingBatchInfo.vocab_mask"],
            weight=2,
        )

    def _given_up(self, universe: Universe) -> Iterator[Finding]:
        """Scheduler functions that return a decision from both the regime and the grammar."""
        flags = universe.fields("sampling", "grammar")
        advanced = step_reads(universe, flags, (SCHEDULER,))
        plain = [a for a in step_reads(universe, flags, (TARGET,)) if a.regime == PLAIN and a.how == "test"]
        delayed = sites(plain, "does it later only without an algorithm", 4)
        for function, facts in sorted(universe.facts.items()):
            fn = universe.fns[function]
            if fn.side != SCHEDULER or not fn.per_step:
                continue
            asked = [a for a in facts.accesses if not a.write and a.field in flags and a.regime == "spec"]
            if not asked or not facts.returns or (not any(b.reading.known for b in facts.branches) and not asked):
                continue
            users = [c for c in sorted(universe.callers.get(function, ())) if c in universe.fns]
            if not users or any(a.write and a.how != "keyword" for a in facts.accesses):
                continue
            reason = "the decision is made for a speculative batch with a grammar; an off step of it would not need it"
            yield Finding(
                kind=self.kind,
                title="Overlap is given up for speculation with a grammar",
                producers=[*sites(asked, reads_of, 5), *predicates_in(universe, function), *delayed],
                consumers=[
                    *sites(asked, reads_of, 5),
                    *(
                        site(c, "acts by the decision", 5)
                        for c in universe.calls.get(fn.name, ())
                        if function in universe.callees.get(c.function, ())
                    ),
                    *sites([a for a in advanced if a.regime == "spec"], reads_of, 2),
                ],
                binding_time="per step",
                why=(
                    "A batch with a grammar is not overlapped with the next while the process "
                    "speculates, off steps included."
                ),
                refactor="Ask whether the batch's last step was speculative.",
                verdicts=dict.fromkeys("ABC", (SOFT, reason)),
                condition="grammar in use",
                only=("v2",),
                weight=1,
            )
            return

    def _barrier(self, universe: Universe, names: frozenset[str]) -> Iterator[Finding]:
        """A method of the scheduler that moves grammars, and that only speculation's worker is handed and calls."""
        methods: dict[str, list[Fn]] = defaultdict(list)
        for fn in universe.fns.values():
            if fn.cls in universe.scheduler_classes:
                methods[fn.name].append(fn)
        handed = [
            a
            for name in sorted(methods)
            for a in universe.reads.get(name, ())
            if a.owner == "self" and a.how == "read" and a.regime == SPEC and universe.fn(a).side == SCHEDULER
        ]
        moving = [
            fn
            for name in sorted({a.field for a in handed})
            for fn in methods[name]
            if any(a.field in names for c in (fn.id, *_below(universe, fn.id)) for a in universe.facts[c].accesses)
        ]
        handed = [a for a in handed if a.field in {fn.name for fn in moving}]
        if not handed:
            return
        masks = [
            fn
            for fn in universe.fns.values()
            if fn.in_worker and not fn.other and fn.side == WORKER and _calls_back(universe, fn)
        ]
        deciding = [
            a
            for a in universe.read(names)
            if universe.fn(a).side == SCHEDULER and universe.fn(a).per_step and universe.facts[a.function].returns
        ]
        reason = (
            "the previous tokens' grammar is advanced only where the worker calls back: else its mask is a token old"
        )
        yield Finding(
            kind=self.kind,
            title="The grammar of the previous step is advanced by a callback that the worker must call",
            producers=sites(handed, "hands the worker the callback", 6)
            + sites([a for a in deciding if a.regime == SPEC or predicates_in(universe, a.function)], reads_of, 4),
            consumers=[of(fn, "advances the grammar when it is called back", 6) for fn in moving]
            + [
                of(universe.fns[c], "advances the grammar", 4)
                for fn in moving
                for c in _below(universe, fn.id)
                if any(a.field in names for a in universe.facts[c].accesses)
            ]
            + [of(fn, "calls back before it makes its mask", 5) for fn in masks]
            + sites(deciding, reads_of, 2),
            binding_time="per step",
            why=(
                "With overlap the result of the last step is not processed when the next one starts. Speculation's "
                "worker calls back to have its tokens accepted before it makes a mask; a step that does not samples "
                "by an old mask, and tokens outside the grammar end the request."
            ),
            refactor="Call back in the off step before its mask is made, or give up overlap for it.",
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify calls back")},
            condition="grammar in use",
            only=("v2",),
            weight=3,
        )


def _below(universe: Universe, function: str) -> list[str]:
    """What a function calls, directly or at one remove."""
    first = sorted(universe.callees.get(function, ()))
    return first + [c for f in first for c in sorted(universe.callees.get(f, ())) if c not in first]


def _calls_back(universe: Universe, fn: Fn) -> bool:
    """Whether a function calls one of its own parameters, and has to do with grammars."""
    params = {p.name for p in fn.params}
    return any(c.owner == "" and c.name in params for c in universe.facts[fn.id].calls) and any(
        a.field in universe.fields("sampling", "grammar") for a in universe.facts[fn.id].accesses
    )


def _on(universe: Universe, calls: list[Call], path: str) -> bool:
    return any(universe.fn(c).in_worker for c in on_path(universe, calls, path))


def _walks_grammar(universe: Universe, call: Call) -> bool:
    """Whether a call is of a plain function that moves the requests' grammars."""
    names = universe.fields("sampling", "grammar")
    return any(
        fn.cls is None and any(a.field in names and not a.write for a in universe.facts[fn.id].accesses)
        for fn in targets(universe, call)
    )
