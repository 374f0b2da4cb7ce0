"""Memory-pool sizing: pools, rows and reserves that are made larger for speculation."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import NONE, Finding, Site, of, sites
from sgltrace.coupling.query import decides, targets
from sgltrace.coupling.regime import BATCH, SPEC
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import TARGET, WORKER, Fn, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, show, writes_of


class MemPoolSizing(Rule):
    """What is sized once, for the wider of the two steps."""

    kind = "mem_pool_sizing"
    positive = (
        Example(
            {
                "start": """
                    class ModelRunner:
                        def make_pool(self):
                            extra = 4
                            if self.server_args.speculative_num_draft_tokens is not None:
                                extra += self.server_args.speculative_num_draft_tokens
                            self.pool = ReqToTokenPool(max_context_len=self.model_config.context_len + extra)
                """,
            },
            producers=("start:ModelRunner.make_pool",),
            consumers=("start:ModelRunner.make_pool",),
            severity={"v1": "none", "v2": "none"},
        ),
    )
    negative = (
        Example(
            {
                "start": """
                    class ModelRunner:
                        def make_pool(self):
                            self.pool = ReqToTokenPool(max_context_len=self.model_config.context_len + 4)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Lengths of rows, sizes of pools, and memory set aside for a draft."""
        sizing = _sizing(universe)
        yield from self._rows(universe, sizing)
        yield from self._pools(universe, sizing)
        yield from self._reserve(universe)

    def _rows(self, universe: Universe, sizing: dict[str, Fn]) -> Iterator[Finding]:
        names = universe.fields("mem_pool_sizing", "rows")
        wide = [
            a
            for a in universe.written(names)
            if a.function in sizing and mentions_width(universe, a.value, universe.facts[a.function])
        ]
        producers = sites(wide, writes_of, 6)
        grown = _grown(universe, sizing, names)
        producers += grown
        asked = [c for f in sizing if _touches(universe, f, names) for c in universe.facts[f].calls]
        asked = [c for c in asked if c.name in universe.width_calls]
        producers += sites(asked, "asks how many tokens a draft needs", 4)
        told = {fn.id: fn for c in asked for fn in targets(universe, c) if not fn.per_step}
        producers += [of(fn, "says how many tokens a draft needs", 6) for fn in told.values()]
        functions = {p.function for p in producers}
        for function in sorted(functions):
            producers += decides(universe, function, {b.line for b in universe.facts[function].branches})
        used = {a.field for a in wide} | {
            a.field for f in functions for a in universe.facts[f].accesses if a.field in names
        }
        reads = [a for a in universe.read(used) if not universe.is_args(universe.fn(a))]
        widened = {a.field for a in wide}
        consumers = sites([a for a in reads if a.function in sizing], reads_of, 5)
        consumers += sites([a for a in reads if a.field in widened], reads_of, 6)
        consumers += sites(
            [a for a in reads if not universe.is_a(universe.fn(a).cls, _attention(universe))], reads_of, 3
        )
        consumers += sites(asked, "makes room for what a draft needs", 4) + _made(universe, functions)
        if producers and consumers:
            yield Finding(
                kind=self.kind,
                title="The rows and lengths of requests leave room for a draft",
                producers=producers,
                consumers=consumers,
                binding_time="process start",
                why=(
                    "A request's row and the tokens kept free at its end are made for the widest speculative step. "
                    "An off step needs less; a request may use less of its context than it could."
                ),
                refactor="None.",
                verdicts=dict.fromkeys("ABC", (NONE, "sized for the wider of the two steps")),
                formula="; ".join(sorted({show(a.value) for a in wide if a.value is not None})[:3]),
                fields=sorted({universe.field_name(a) for a in wide}),
            )

    def _pools(self, universe: Universe, sizing: dict[str, Fn]) -> Iterator[Finding]:
        names = universe.fields("mem_pool_sizing", "pools")
        chosen = [
            a
            for a in universe.written(names)
            if a.function in sizing
            and (a.regime is not None or mentions_width(universe, a.value, universe.facts[a.function]))
        ]
        producers = sites(chosen, writes_of, 5)
        for function, fn in sizing.items():
            lines = [b.line for b in universe.facts[function].branches if b.reading.scope != BATCH]
            if lines and any(a.field in names for a in universe.facts[function].accesses):
                producers += decides(universe, function, lines)
            producers += [
                Site(function, line, f"adds {show(value)} to {name}", 4)
                for line, name, value in universe.facts[function].augmented
                if fn.cls is not None and mentions_width(universe, value, universe.facts[function])
            ]
        functions = {p.function for p in producers}
        reads = [a for a in universe.read(names) if not universe.is_args(universe.fn(a))]
        consumers = _made(universe, set(sizing)) + sites([a for a in reads if a.function in sizing], reads_of, 4)
        consumers += sites([a for a in reads if universe.fn(a).cls in universe.scheduler_classes], reads_of, 3)
        pools = universe.vocabulary.names("draft_kv", "pools")
        graphs = {fn.module for fn in universe.of_class("cuda_graph") if fn.side == TARGET}
        consumers += sites(
            [a for a in universe.read({"size"}) if a.owner in pools and universe.fn(a).module in graphs],
            "captures graphs up to the size of a pool",
            5,
        )
        if not functions or not consumers:
            return
        yield Finding(
            kind=self.kind,
            title="Pools are sized with the draft's layers and tokens in mind",
            producers=producers,
            consumers=consumers,
            binding_time="process start",
            why="What a token costs, and how many fit, counts the draft's layers and the states of its tokens.",
            refactor="None.",
            verdicts=dict.fromkeys("ABC", (NONE, "smaller than it could be in off steps, never too small")),
            fields=sorted({universe.field_name(a) for a in chosen}),
        )

    def _reserve(self, universe: Universe) -> Iterator[Finding]:
        """Sizes that the draft's runner takes over from the target's, and memory that the arguments set aside."""
        names = universe.fields("mem_pool_sizing", "shared")
        writes = [a for a in universe.written(names) if universe.fn(a).at_start]
        reads = [a for a in universe.read(names) if universe.fn(a).at_start]
        reserve = universe.fields("mem_pool_sizing", "reserve")
        kept = [a for a in universe.written(reserve) if a.regime == SPEC and universe.is_args(universe.fn(a))]
        kept += _set_aside(universe, reserve)
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
                "tokens as the target's. Off steps do not need the draft's share, and cannot have it."
            ),
            refactor="None.",
            verdicts=dict.fromkeys("ABC", (NONE, reason)),
            fields=sorted({universe.field_name(a) for a in (*writes, *kept)}),
        )


def _sizing(universe: Universe) -> dict[str, Fn]:
    """The functions that size memory when a process starts: by their class, or by what they write."""
    names = universe.fields("mem_pool_sizing", "rows") | universe.fields("mem_pool_sizing", "pools")
    patterns = universe.vocabulary.names("mem_pool_sizing", "classes")
    found = {}
    others = {fn.id for key in ("attention", "cuda_graph") for fn in universe.of_class(key)}
    for function in sorted(universe.facts):
        fn = universe.fns[function]
        if fn.per_step or fn.side == WORKER or universe.is_args(fn) or fn.other or universe.elsewhere(fn):
            continue
        if function in others or universe.role(fn.cls) in ("spec_worker", "draft_worker"):
            continue
        writes = any(a.write and a.field in names for a in universe.facts[function].accesses)
        told = any(arg.name in names for c in universe.facts[function].calls for arg in c.node.args)
        if writes or told or universe.is_a(fn.cls, patterns):
            found[function] = fn
    return found


def _grown(universe: Universe, sizing: dict[str, Fn], names: frozenset[str]) -> list[Site]:
    """Local sums that a width goes into, in functions that size rows."""
    out = []
    for function in sizing:
        facts = universe.facts[function]
        out += [
            Site(function, line, f"adds {show(value)} to {name}", 6)
            for line, name, value in facts.augmented
            if mentions_width(universe, value, facts) and _touches(universe, function, names)
        ]
    return out


def _touches(universe: Universe, function: str, names: frozenset[str]) -> bool:
    facts = universe.facts[function]
    return any(a.field in names for a in facts.accesses) or any(
        a.name in names for c in facts.calls for a in c.node.args
    )


def _made(universe: Universe, functions: set[str]) -> list[Site]:
    """The places where functions make pools."""
    patterns = sorted(universe.vocabulary.names("mem_pool_sizing", "classes"))
    return [
        Site(function, call.line, f"makes a pool of {call.name}", 4)
        for function in sorted(functions)
        for call in universe.facts[function].calls
        if call.name[:1].isupper() and universe.is_a(call.name, patterns)
    ]


def _set_aside(universe: Universe, reserve: frozenset[str]) -> list[Access]:
    """Sums under speculation that end up in a reserve: ``reserved += ...`` in a method of the arguments."""
    kept = []
    for function, facts in sorted(universe.facts.items()):
        if not universe.is_args(universe.fns[function]):
            continue
        for line, name, _ in facts.augmented:
            inside = any(b.body[0] <= line <= b.body[1] and b.reading.when_true == SPEC for b in facts.branches)
            if inside and (name in reserve or any(a.field in reserve and a.write for a in facts.accesses)):
                kept.append(Access(function, name, "", None, line, True, "augment", None, SPEC, "process", 0, None))
    return kept


def _attention(universe: Universe) -> frozenset[str]:
    return universe.vocabulary.names("attention", "classes")
