"""Attention metadata, positions and forward mode: what a backend makes of a batch that carries draft state."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Branch
from sgltrace.coupling.point import NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import (
    callers,
    calls_on,
    targets,
)
from sgltrace.coupling.regime import BATCH, last_name
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import WORKER, Universe
from sgltrace.coupling.widths import width_reads, widths_of
from sgltrace.coupling.wording import reads_of, show, writes_of
from sgltrace.index.facts import syntax as s


class Attention(Rule):
    """Backends take a batch with draft state for a draft step, whatever its mode says."""

    kind = "attn_metadata"
    positive = (
        Example(
            {
                "start": """
                    class TritonMultiStepDraftBackend:
                        def __init__(self, runner):
                            self.attn_backends = [TritonAttnBackend(runner)]
                """,
                "worker": """
                    class EAGLEWorker:
                        def draft(self, batch: ForwardBatch):
                            return self.draft_attn_backend.attn_backends[0]
                """,
            },
            producers=("start:TritonMultiStepDraftBackend.__init__",),
            consumers=("worker:EAGLEWorker.draft",),
            severity={"v1": "none", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "target": """
                    class FlashAttentionBackend:
                        def prepare(self, batch: ForwardBatch):
                            return batch.seq_lens
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Draft state read in a decode, positions that it overrides, and backends built for a number of steps."""
        attention = {fn.id for fn in universe.of_class("attention")}
        yield from self._multi_step(universe)
        yield from self._captured(universe, attention)
        yield from self._chosen(universe, attention)

    def _multi_step(self, universe: Universe) -> Iterator[Finding]:
        patterns = universe.vocabulary.names("attention", "multi_step")
        made = [
            fn for fn in universe.fns.values() if fn.cls and universe.is_a(fn.cls, patterns) and fn.name == "__init__"
        ]
        if not made:
            return
        makers = [c for fn in made for c in callers(universe, fn) if not universe.is_a(c.cls, patterns)]
        held = universe.fields("attention", "multi_step_fields")
        reads = [a for a in universe.read(held) if universe.fn(a).side == WORKER]
        inner = [a for fn in made for a in universe.facts[fn.id].accesses if a.field in held or a.how == "index"]
        reason = "a state of no draft steps has no step backends: code that takes the first of them fails"
        yield Finding(
            kind=self.kind,
            title="Draft backends are built for a number of steps and branches",
            producers=[of(fn, "is built for num_steps and topk", 4) for fn in made]
            + [of(c, "makes the draft's backends", 4) for c in makers],
            consumers=sites(reads, reads_of, 5) + sites(inner, reads_of, 4),
            binding_time="process start",
            why=(
                "One backend for each draft step but the last, with index buffers for topk branches. "
                "An off step does not use them; a degenerate verify must build a state of no steps, "
                "and must not index into an empty list."
            ),
            refactor="Make no draft backend for a state of at most one step.",
            verdicts={
                "A": (NONE, "a plain step does not touch them"),
                "B": (NONE, "a plain step does not touch them"),
                "C": (SOFT, reason),
            },
            by_path={"v1": {"C": (NONE, "v1's worker has one fixed state, which an off step does not touch")}},
            formula="num_steps - 1 backends; index pointers (num_steps, max_bs * topk + 1)",
            weight=1,
        )

    def _captured(self, universe: Universe, attention: set[str]) -> Iterator[Finding]:
        """Metadata that backends prepare for graphs, by mode and by draft width."""
        widths = universe.vocabulary.spec.widths
        start = [
            m
            for name in sorted(widths)
            for m in universe.mentions.get(name, ())
            if m.function in attention and universe.fn(m).at_start
        ]
        named = {n for names in universe.width_fields.values() for n in names}
        bound = [
            a
            for a in universe.written(named)
            if a.function in attention and universe.fn(a).at_start and a.field in widths_of(universe, a.function)
        ]
        laid = [
            a
            for a in width_reads(universe)
            if a.function in attention and universe.fn(a).at_start and not universe.fn(a).per_step
        ]
        branches = [
            b
            for b in universe.branches
            if b.function in attention
            and b.reading.scope == BATCH
            and universe.fn(b).per_step
            and not _asks_for(b, universe.vocabulary.spec.info_fields)
        ]
        asked = [
            (c, fn)
            for c in calls_on(universe, universe.vocabulary.spec.info_fields)
            if c.function in attention
            for fn in targets(universe, c)
            if universe.fn(c).per_step
        ]
        if not (start or bound) or not branches:
            return
        reason = (
            "metadata of verify is laid out for num_draft_tokens a request; a plain decode needs the "
            "decode layout beside it"
        )
        yield Finding(
            kind=self.kind,
            title="Backends lay out verify metadata for a fixed number of draft tokens",
            producers=sites(start, lambda m: f"takes {m.name}", 4)
            + sites(bound, writes_of, 4)
            + sites(laid, reads_of, 5)
            + [of(fn, "gives a backend the indices of its stage", 6) for _, fn in asked],
            consumers=sites(branches, lambda b: f"decides by {show(b.test)}", 4)
            + sites([c for c, _ in asked], "takes the indices from the draft state", 6),
            binding_time="process start",
            why=(
                "Query lengths, masks and index buffers of verify and draft-extend are sized when "
                "the backend is made, and chosen by the forward mode. A decode has a layout of its "
                "own, which graphs of a speculative process never capture."
            ),
            refactor="Initialise decode metadata for the target's backend as well, or verify metadata of width one.",
            verdicts={
                "A": (NONE, "an eager decode builds its own metadata"),
                "B": (NONE, "an eager decode builds its own metadata"),
                "C": (SOFT, reason),
            },
            formula="query lengths: num_draft_tokens a request",
            weight=1,
        )

    def _chosen(self, universe: Universe, attention: set[str]) -> Iterator[Finding]:
        """Backends that the configuration of speculation chooses, for the process or for a stage."""
        config = [b for b in universe.branches if _asks_config(universe, b)]
        factories = {c.function for name in _made_backends(universe, attention) for c in universe.calls.get(name, ())}
        stages = [b for b in universe.branches if b.function in attention and _picks(universe, b)]
        if not stages:
            return
        inits = {universe.fn(b).cls for b in stages}
        starts = [b for b in config if b.function in factories or universe.fn(b).cls in inits]
        starts = [b for b in starts if not universe.fn(b).per_step]
        made = [fn for fn in universe.fns.values() if fn.cls in inits and fn.name == "__init__"]
        reason = "an off step decodes with the decode backend, whose graph state may never have been made"
        yield Finding(
            kind=self.kind,
            title="Which of two attention backends runs is chosen by the speculative stage",
            producers=sites(starts, lambda b: f"decides by {show(b.test)}", 5)
            + [of(fn, "holds a backend for each kind of stage", 5) for fn in made],
            consumers=sites(stages, lambda b: f"decides by {show(b.test)}", 5)
            + [of(c, "runs what is chosen", 3) for b in stages for c in callers(universe, universe.fn(b))],
            binding_time="process start",
            why=(
                "With different backends for prefill and decode, verify and the draft's extend run on the one that a "
                "configuration value names; graphs are prepared for that one alone."
            ),
            refactor="Prepare graph state for the decode backend too.",
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            condition="different prefill and decode backends",
            weight=1,
        )


def _asks_for(branch: Branch, infos: frozenset[str]) -> bool:
    return bool(set(branch.reading.atoms) & infos)


def _asks_config(universe: Universe, branch: Branch) -> bool:
    return any(universe.vocabulary.spec.is_config(atom) for atom in branch.reading.atoms)


def _picks(universe: Universe, branch: Branch) -> bool:
    """Whether a backend's step function gives back one of its backends, as the stage of speculation says."""
    returned = [v for _, value, _ in universe.facts[branch.function].returns for v in _choices(value)]
    own = len(returned) > 1 and all(isinstance(v, s.Attr) and last_name(v.value) == "self" for v in returned)
    by_stage = branch.reading.scope == BATCH or _asks_config(universe, branch)
    return own and by_stage and universe.fn(branch).per_step


def _choices(value: s.Expr) -> list[s.Expr]:
    return [*_choices(value.body), *_choices(value.orelse)] if isinstance(value, s.Cond) else [value]


def _made_backends(universe: Universe, attention: set[str]) -> set[str]:
    return {universe.fns[f].cls or "" for f in attention if universe.fns[f].name == "__init__"}
