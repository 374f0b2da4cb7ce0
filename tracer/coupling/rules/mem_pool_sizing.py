"""Memory-pool sizing: pools, rows and reserves that are made larger for speculation."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import NONE, Finding, Site, sites
from sgltrace.coupling.query import decides
from sgltrace.coupling.rule import Rule
from sgltrace.coupling.universe import WORKER, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, show, writes_of


class MemPoolSizing(Rule):
    """What is sized once, for the wider of the two steps."""

    kind = "mem_pool_sizing"

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Sizes with a speculative width in them, and memory set aside for a draft."""
        names = universe.fields("mem_pool_sizing")
        start = [a for a in universe.written(names) if not universe.fn(a).per_step or universe.fn(a).at_start]
        wide = [
            a
            for a in start
            if universe.fn(a).side != WORKER
            and (mentions_width(universe, a.value, universe.facts[a.function]) or a.regime is not None)
        ]
        producers = sites(
            [a for a in wide if mentions_width(universe, a.value, universe.facts[a.function])], writes_of, 6
        )
        for function in sorted({a.function for a in wide}):
            producers += decides(universe, function, {a.via for a in wide if a.function == function})
        grown = self.grown(universe, names)
        producers += [s for s, _ in grown]
        used = {a.field for a in wide} | {field for _, field in grown}
        consumers = list(
            sites(
                [a for a in universe.read(used) if universe.fn(a).side != WORKER or universe.fn(a).at_start],
                reads_of,
                3,
            )
        )
        consumers += sites(
            [
                a
                for a in universe.written(names)
                if a.how == "keyword" and a.function in {p.function for p in producers}
            ],
            writes_of,
            4,
        )
        consumers += [
            Site(f, line, f"makes a pool of {what}", 4)
            for f, line, what in self._made(universe, {p.function for p in producers})
        ]
        if producers and consumers:
            yield Finding(
                kind=self.kind,
                title="Rows, reserves and pools are sized for a speculative step",
                producers=producers,
                consumers=consumers,
                binding_time="process start",
                why=(
                    "The row of a request, the tokens kept free at its end, and the pools are made for "
                    "the wider step. Off needs less."
                ),
                refactor="None.",
                verdicts=dict.fromkeys("ABC", (NONE, "sized for the wider of the two steps")),
                formula="; ".join(
                    sorted(
                        {
                            show(a.value)
                            for a in wide
                            if a.value is not None and mentions_width(universe, a.value, universe.facts[a.function])
                        }
                    )[:3]
                ),
                fields=sorted({f"{a.cls or a.owner}.{a.field}" for a in wide}),
            )
        yield from self._shared(universe)

    @staticmethod
    def grown(universe: Universe, names: frozenset[str]) -> list[tuple[Site, str]]:
        """Local sums that a width goes into, in functions that size pools."""
        out = []
        for function, facts in sorted(universe.facts.items()):
            fn = universe.fns[function]
            if (fn.per_step and not fn.at_start) or fn.side == WORKER:
                continue
            touched = {a.field for a in facts.accesses if a.field in names} | {
                arg.name for c in facts.calls for arg in c.node.args if arg.name in names
            }
            if not touched:
                continue
            for line, name, value in facts.augmented:
                if mentions_width(universe, value, facts):
                    out.append((Site(function, line, f"adds {show(value)} to {name}", 6), sorted(touched)[0]))
        return out

    @staticmethod
    def _made(universe: Universe, functions: set[str]) -> list[tuple[str, int, str]]:
        patterns = sorted(universe.vocabulary.names("mem_pool_sizing", "classes"))
        out = []
        for function in sorted(functions):
            for call in universe.facts[function].calls:
                if call.name[:1].isupper() and universe.is_a(call.name, patterns):
                    out.append((function, call.line, call.name))
        return out

    def _shared(self, universe: Universe) -> Iterator[Finding]:
        """Sizes that the draft's runner takes over from the target's."""
        names = universe.fields("mem_pool_sizing", "shared")
        writes = [a for a in universe.written(names) if universe.fn(a).at_start]
        reads = [a for a in universe.read(names) if universe.fn(a).at_start]
        reserve = universe.fields("mem_pool_sizing", "reserve")
        kept = [a for a in universe.written(reserve) if a.regime == "spec" and universe.is_args(universe.fn(a))]
        for function, facts in sorted(universe.facts.items()):
            if not universe.is_args(universe.fns[function]):
                continue
            for line, name, _ in facts.augmented:
                inside = any(b.body[0] <= line <= b.body[1] and b.reading.when_true == "spec" for b in facts.branches)
                if inside and (name in reserve or any(a.field in reserve and a.write for a in facts.accesses)):
                    kept.append(
                        Access(function, name, "", None, line, True, "augment", None, "spec", "process", 0, None)
                    )
        users = [a for a in universe.read(reserve) if not universe.is_args(universe.fn(a))]
        if not (writes and reads) and not (kept and users):
            return
        reason = "fixed for the process: off steps run in what is left"
        yield Finding(
            kind=self.kind,
            title="Memory is set aside for the draft model's weights, KV and graphs",
            producers=sites(writes, writes_of, 4) + sites(kept, "sets memory aside for the draft", 4),
            consumers=sites(reads, reads_of, 4) + sites(users, reads_of, 3),
            binding_time="process start",
            why=(
                "The target's pool is what the draft leaves of the memory; the draft's pool has as many "
                "slots. Off steps do not get it back."
            ),
            refactor="None within a process; the capacity at saturation stays that of a speculative server.",
            verdicts=dict.fromkeys("ABC", (NONE, reason)),
        )
