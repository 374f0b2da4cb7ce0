"""Mamba and linear-attention state: intermediate states for verify, and the buffers that track prefixes."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access, annotation_class
from sgltrace.coupling.offsteps import off_steps
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, Judgement, of, sites
from sgltrace.coupling.query import BATCHES, call_line, callers, decides, on_path, spec_writes, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Fn, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s


class MambaState(Rule):
    """States are kept per draft token until verify tells which to keep; a plain decode updates them in place."""

    kind = "mamba_state"
    positive = (
        Example(
            {
                "start": """
                    class HybridReqToTokenPool:
                        def __init__(self, speculative_num_draft_tokens):
                            self.intermediate_ssm = zeros(speculative_num_draft_tokens)
                            self.mamba_ping_pong_track_buffer_size = 2 if speculative_num_draft_tokens is None else 1
                """,
                "worker": """
                    class HybridLinearAttnBackend:
                        def keep(self, accepted):
                            copy(self.intermediate_ssm, accepted)

                    class EAGLEWorker:
                        def check(self, accepted):
                            self.attn_backend.keep(accepted)
                """,
            },
            producers=("start:HybridReqToTokenPool.__init__",),
            consumers=("worker:HybridLinearAttnBackend.keep",),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "start": """
                    class HybridReqToTokenPool:
                        def __init__(self, size):
                            self.mamba_pool = zeros(size)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """What is sized by speculation, and who moves, tracks and flips it."""
        fields = universe.fields("mamba_state")
        classes = {fn.id for fn in universe.of_class("mamba_state")}
        start = [
            a
            for a in universe.written(fields)
            if universe.fn(a).at_start
            and (a.regime is not None or mentions_width(universe, a.value, universe.facts[a.function]))
        ]
        sized = [
            of(universe.fns[f], "makes states for each draft token", 5)
            for f in sorted(classes)
            if universe.fns[f].name == "__init__"
            and any(universe.vocabulary.spec.is_config(p.name) for p in universe.fns[f].params)
        ]
        switches = universe.vocabulary.names("mamba_state", "switches")
        tracked = [
            fn
            for fn in universe.fns.values()
            if fn.id in universe.facts
            and fn.at_start
            and any(c.name in switches for c in universe.facts[fn.id].calls)
            and universe.facts[fn.id].branches
        ]
        graph = {fn.id for fn in universe.of_class("cuda_graph")}
        producers = (
            sites(start, writes_of, 5)
            + sized
            + [of(fn, "leaves out track buffers under an algorithm", 3) for fn in tracked if fn.id in graph]
        )
        spec = spec_writes(universe, fields)
        plain = [
            a for a in universe.written(fields) if a.regime == "plain" and universe.fn(a).side in (SCHEDULER, TARGET)
        ]
        reads = step_reads(universe, fields, (WORKER, SCHEDULER, TARGET))
        updates = [
            fn
            for fn in universe.fns.values()
            if fn.id in universe.facts
            and fn.side == WORKER
            and fn.per_step
            and universe.is_a(fn.cls, _patterns(universe))
        ]
        consumers = sites(plain, writes_of, 5) + sites(spec, writes_of, 4)
        consumers += sites([a for a in reads if universe.fn(a).side in (WORKER, SCHEDULER)], reads_of, 3)
        consumers += [of(fn, "copies the accepted step's state back", 5) for fn in updates]
        consumers += [
            of(c, "has the accepted states copied back", 4)
            for fn in updates
            for c in callers(universe, fn)
            if c.side == WORKER
        ]
        producers += [
            of(c, "has the accepted states copied back", 4, call_line(universe, c, fn))
            for fn in updates
            for c in callers(universe, fn)
            if c.side == WORKER
        ]
        for fn in tracked:
            producers += [
                s for s in decides(universe, fn.id, [b.line for b in universe.facts[fn.id].branches]) if fn.id in graph
            ]
        buffers = universe.of_class("cuda_graph", "buffers")
        consumers += sites([a for a in reads if a.function in {b.id for b in buffers}], reads_of, 3)
        consumers += [
            of(fn, "makes track buffers where told", 3)
            for fn in buffers
            if any(p.name and "mamba" in p.name for p in fn.params)
        ]
        if not producers or not consumers:
            return
        yield Finding(
            kind=self.kind,
            title="Linear-attention states and their track buffers are laid out for verify",
            producers=producers,
            consumers=consumers,
            binding_time="process start",
            why=(
                "Under an algorithm the pool keeps a state for each draft token, one track buffer "
                "instead of two, and graphs without track masks. A plain decode would flip to a "
                "second buffer that is not there, and update states in place."
            ),
            refactor=(
                "In the off step update in place and track by speculation's rule with nothing accepted, "
                "without the flip."
            ),
            verdicts={},
            by_path={path: _verdicts(universe, path, updates) for path in sorted(universe.paths)},
            formula=(
                "intermediate states: (layers, requests + 1, num_draft_tokens, ...); track buffers: 1 "
                "with an algorithm, 2 without"
            ),
            condition="hybrid linear / mamba models",
            fields=sorted({universe.field_name(a) for a in (*start, *spec)}),
            weight=4,
        )
        yield from self._committed(universe, updates)

    def _committed(self, universe: Universe, updates: list[Fn]) -> Iterator[Finding]:
        """Who works out which of a verify's states is kept, where a release verifies one token."""
        fields = universe.fields("mamba_state")
        chosen = [
            a
            for a in step_reads(universe, fields, (WORKER, SCHEDULER))
            if universe.fn(a).in_worker
            and universe.role(a.cls) in BATCHES
            and universe.role(universe.fn(a).cls) not in BATCHES
        ]
        users = {c.id: c for a in chosen for c in callers(universe, universe.fn(a)) if c.in_worker}
        tracked = [
            a
            for a in universe.written(universe.fields("mamba_state", "track"))
            if universe.fn(a).per_step
            and any(universe.role(annotation_class(q.annotation)) == "result" for q in universe.fn(a).params)
        ]
        if not chosen or not (users or tracked) or not off_steps(universe):
            return
        yield Finding(
            kind=self.kind,
            title="The state that a verify keeps is chosen by what was accepted, for any width",
            producers=sites(chosen, reads_of, 5),
            consumers=[of(fn, "commits the states of a verify", 5) for fn in users.values()]
            + sites(tracked, writes_of, 5)
            + [of(fn, "copies the accepted step's state back", 3) for fn in updates],
            binding_time="per step",
            why=(
                "The step whose state is kept is counted from the accepted tokens. With one token a request there is "
                "one step, and it is the one that is kept."
            ),
            refactor="None for a verify of one token; a plain decode has to commit and track by itself.",
            verdicts={"C": (NONE, "one accepted token chooses the first and only state")},
            condition="hybrid linear / mamba models",
            fields=sorted({universe.field_name(a) for a in chosen}),
        )


def _verdicts(universe: Universe, path: str, updates: list[Fn]) -> dict[str, Judgement]:
    """What a plain decode does to the states and track buffers of a path."""
    if not any(path in universe.paths_of(fn.id) for fn in updates):
        missing = "this path has no update of the state after verify at all: hybrid models do not work on it either way"
        return {"A": (SOFT, missing), "B": (SOFT, missing), "C": (NONE, missing)}
    flips = [
        universe.fns[f]
        for a in universe.written(universe.fields("mamba_state", "track"))
        if universe.fn(a).per_step and not universe.fn(a).in_worker and a.how == "assign"
        for f in (a.function, *universe.callees.get(a.function, ()))
    ]
    known = universe.fields("result", "counts") - universe.vocabulary.spec.widths
    counts = {a.field for fn in flips for a in universe.facts[fn.id].accesses if not a.write and a.field in known}
    filled = [a for a in on_path(universe, list(universe.written(counts)), path) if not universe.fn(a).in_worker]
    filled = [a for a in filled if universe.role(a.cls) == "result" and not universe.fn(a).other]
    slots = universe.fields("mamba_state", "slots")
    narrow = [a for a in universe.written(slots) if universe.fn(a).at_start and _by_algorithm(universe, a)]
    if narrow:
        worst = HARD, "an algorithm leaves fewer track buffers than a plain step flips between"
    elif filled:
        worst = HARD, "the scheduler counts every result's tokens and flips to a track buffer that nothing wrote"
    else:
        worst = SOFT, "a plain result has no counts, and the scheduler tracks nothing for it: a prefix is not cached"
    return {"A": worst, "B": worst, "C": (NONE, "verify keeps its way of updating")}


def _by_algorithm(universe: Universe, access: Access) -> bool:
    """Whether a value is one of two by a condition on the algorithm."""
    if access.value is None:
        return False
    return access.regime is not None or any(
        isinstance(part, s.Cond) and universe.predicates.read(part.test).known for part in s.descend(access.value)
    )


def _patterns(universe: Universe) -> list[str]:
    return sorted(universe.vocabulary.names("mamba_state", "classes"))
