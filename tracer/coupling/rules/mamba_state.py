"""Mamba and linear-attention state: intermediate states for verify, and the buffers that track prefixes."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import call_line, callers, decides, spec_writes, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, writes_of


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
        on_v1 = any("v1" in universe.paths_of(fn.id) for fn in updates)
        on_v2 = any("v2" in universe.paths_of(fn.id) for fn in updates)
        reason = (
            "verify writes states aside and copies the accepted one; a plain decode writes in place, "
            "with buffers that are not there"
        )
        missing = "this path has no update of the state after verify at all: hybrid models do not work on it either way"
        verdicts = {"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify keeps its way of updating")}
        absent = {"A": (SOFT, missing), "B": (SOFT, missing), "C": (NONE, missing)}
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
            verdicts=verdicts,
            by_path={**({} if on_v1 else {"v1": absent}), **({} if on_v2 else {"v2": absent})},
            formula=(
                "intermediate states: (layers, requests + 1, num_draft_tokens, ...); track buffers: 1 "
                "with an algorithm, 2 without"
            ),
            condition="hybrid linear / mamba models",
            fields=sorted({universe.field_name(a) for a in (*start, *spec)}),
            weight=4,
        )


def _patterns(universe: Universe) -> list[str]:
    return sorted(universe.vocabulary.names("mamba_state", "classes"))
