"""Attention metadata, positions and forward mode: what a backend makes of a batch that carries draft state."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import BATCHES, DRAFTS, callers, held_by, is_copy, spec_writes, step_reads
from sgltrace.coupling.regime import BATCH
from sgltrace.coupling.rule import Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.widths import width_reads, widths_of
from sgltrace.coupling.wording import reads_of, show, writes_of


class Attention(Rule):
    """Backends take a batch with draft state for a draft step, whatever its mode says."""

    kind = "attn_metadata"

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Draft state read in a decode, positions that it overrides, and backends built for a number of steps."""
        attention = {fn.id for fn in universe.of_class("attention")}
        yield from self._attached(universe, attention)
        yield from self._positions(universe)
        yield from self._multi_step(universe)
        yield from self._captured(universe, attention)
        yield from self._modes(universe, attention)

    def _attached(self, universe: Universe, attention: set[str]) -> Iterator[Finding]:
        infos = universe.vocabulary.spec.info_fields
        carried = [
            a
            for a in universe.written(infos)
            if universe.fn(a).per_step
            and (a.how == "keyword" or is_copy(a))
            and universe.fn(a).side in (SCHEDULER, TARGET, WORKER)
        ]
        carried = held_by(universe, carried, BATCHES)
        branches = [
            b
            for b in universe.branches
            if b.function in attention and b.reading.scope == BATCH and universe.fn(b).per_step and _asks_for(b, infos)
        ]
        reads = list(step_reads(universe, infos, (TARGET,)))
        if not carried or not (branches or reads):
            return
        reason = "the draft state on the batch makes the target's backend read draft metadata: missing, or shifted"
        yield Finding(
            kind=self.kind,
            title="A decode with draft state attached is taken for a draft step",
            producers=sites([a for a in carried if is_copy(a) or a.how == "keyword"], "hands the draft state on", 6),
            consumers=sites(branches, lambda b: f"decides by {show(b.test)}", 6)
            + sites([a for a in reads if a.function in attention], reads_of, 2)
            + sites([a for a in reads if universe.role(universe.fn(a).cls) == "forward_batch"], reads_of, 4),
            binding_time="per step",
            why=(
                "The draft state travels with the batch into the forward pass, and attention "
                "backends tell a draft's decode from the target's by it. A plain decode that still "
                "carries it gets KV indices of the draft, or lengths shifted by one."
            ),
            refactor=(
                "Set the draft state to None on the forward copy of an off step, and keep it on the scheduler's batch."
            ),
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify carries its own input")},
            formula="draft decode: KV indices from the draft state, lengths + step + 1",
            fields=sorted({f"{a.cls or a.owner}.{a.field}" for a in carried}),
            weight=8,
        )

    def _positions(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("seq_lens", "positions")
        writes = [
            a
            for a in spec_writes(universe, names)
            if universe.role(a.cls) in (*DRAFTS, "verify_input") or a.owner in universe.vocabulary.spec.info_fields
        ]
        reads = [
            a
            for a in step_reads(universe, names)
            if universe.role(a.cls) in (*DRAFTS, "verify_input") or a.owner in universe.vocabulary.spec.info_fields
        ]
        forward = list(
            held_by(universe, step_reads(universe, names, (WORKER, TARGET)), ("forward_batch",), unknown=False)
        )
        if not writes or not reads:
            return
        reason = "positions of the draft state win over those computed from the lengths: stale, and of another number"
        yield Finding(
            kind=self.kind,
            title="Positions of the draft state override the computed ones",
            producers=sites(writes, writes_of, 6),
            consumers=sites(reads, reads_of, 6)
            + sites([a for a in forward if universe.fn(a).side == WORKER], reads_of, 2),
            binding_time="per step",
            why=(
                "Where the draft state on the batch has positions the forward pass takes them "
                "instead of computing its own. Drafting sets them for topk branches and moves them "
                "in place; a plain decode would run on what is left."
            ),
            refactor="Detach the draft state from the forward copy, or set positions explicitly.",
            verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify sets its own")},
            formula="draft: bs * topk; verify: bs * num_draft_tokens; plain: bs",
            fields=sorted({f"{a.cls or a.owner}.positions" for a in writes}),
            weight=6,
        )

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
        modes = universe.vocabulary.spec.spec_modes
        branches = [
            b
            for b in universe.branches
            if b.function in attention
            and b.reading.scope == BATCH
            and universe.fn(b).per_step
            and not _asks_for(b, universe.vocabulary.spec.info_fields)
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
            + sites(laid, reads_of, 5),
            consumers=sites(branches, lambda b: f"decides by {show(b.test)}", 4),
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
        del modes

    def _modes(self, universe: Universe, attention: set[str]) -> Iterator[Finding]:
        """The forward mode is rewritten by each stage and read by the scheduler after."""
        mode_enums = universe.vocabulary.spec.mode_enums
        writes = [
            a
            for a in universe.writes.get("forward_mode", ())
            if universe.fn(a).side == WORKER and universe.fn(a).per_step and a.how != "keyword"
        ]
        writes = held_by(universe, writes, ("scheduler_batch", "worker_batch"))
        reads = [
            a for a in step_reads(universe, {"forward_mode"}, (SCHEDULER,)) if universe.role(a.cls) == "scheduler_batch"
        ]
        forward = [
            a for a in step_reads(universe, {"forward_mode"}, (TARGET,)) if universe.role(a.cls) == "forward_batch"
        ]
        if not writes or not (reads or forward):
            return
        reason = "the off step must leave the batch in decode mode, and its forward copy must not be a verify"
        yield Finding(
            kind="forward_mode",
            title="Each stage rewrites the batch's forward mode, and the scheduler reads what is left",
            producers=sites(writes, writes_of, 5),
            consumers=sites(reads, reads_of, 4) + sites(forward, reads_of, 2),
            binding_time="per step",
            why=(
                "Verify and the draft's extend put modes of their own on the batch. What is left "
                "decides how results are processed, which graph runs, and which metadata is built: "
                "verify counts as an extend in many of these questions."
            ),
            refactor="Keep DECODE on the scheduler's batch in an off step; set other modes only on forward copies.",
            verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "verify sets and restores it")},
            formula=" -> ".join(["DECODE", *sorted(universe.vocabulary.spec.spec_modes)]),
            fields=["ScheduleBatch.forward_mode"],
            weight=3,
        )
        del mode_enums


def _asks_for(branch: object, infos: frozenset[str]) -> bool:
    return bool(set(branch.reading.atoms) & infos)  # type: ignore[attr-defined]
