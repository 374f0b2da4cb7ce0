"""Prefix cache: keys and lengths that the cache computes for speculation."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access, Call
from sgltrace.coupling.point import NONE, SOFT, Finding, of, site, sites
from sgltrace.coupling.query import call_line, callers, calls_on
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s


class PrefixCache(Rule):
    """The cache is made for the algorithm: its keys are pairs of tokens, its lengths one shorter."""

    kind = "prefix_cache"
    positive = (
        Example(
            {
                "start": """
                    class Scheduler:
                        def make_cache(self):
                            return RadixCache(is_eagle=self.spec_algorithm.is_eagle())
                """,
                "scheduler": """
                    class RadixCache:
                        def insert(self, key):
                            if self.is_eagle:
                                key = pairs(key)
                            self.add(key)

                        def finished(self, req: Req):
                            self.insert(req.fill_ids)
                """,
            },
            producers=("start:Scheduler.make_cache",),
            consumers=("scheduler:RadixCache.insert",),
            severity={"v1": "none", "v2": "none"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class RadixCache:
                        def finished(self, req: Req):
                            self.add(req.fill_ids)
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The flag that the cache is made with, and every use of it; then what is inserted when a request ends."""
        names = universe.fields("prefix_cache")
        classes = {fn.id for fn in universe.of_class("prefix_cache")}
        made = [
            a
            for a in universe.written(names)
            if universe.fn(a).at_start and (a.how == "keyword" or a.function in classes)
        ]
        reads = [a for a in universe.read(names) if a.function in classes and not _init(universe, a)]
        if made and reads:
            yield Finding(
                kind=self.kind,
                title="The prefix cache is keyed by pairs of tokens for the process's algorithm",
                producers=sites(made, writes_of, 5),
                consumers=sites(reads, reads_of, 5)
                + [
                    of(c, "goes through it", 3, call_line(universe, c, universe.fn(a)))
                    for a in reads
                    for c in callers(universe, universe.fn(a))
                    if c.id in classes
                ],
                binding_time="process start",
                why=(
                    "The draft of a position depends on the next token, so keys are pairs and one "
                    "position is left out. The keys do not depend on whether a step speculated; only "
                    "the draft's KV of cached positions must be there."
                ),
                refactor="None; see the draft's KV for what an off step leaves out.",
                verdicts=dict.fromkeys(
                    "ABC", (NONE, "keys and lengths are the process's, and stay right in off steps")
                ),
                fields=sorted({universe.field_name(a) for a in made}),
            )
        lengths = universe.fields("kv_bookkeeping", "lengths")
        told = {
            fn.id
            for fn in universe.fns.values()
            if universe.role(fn.cls) == "request" and _gives(universe, fn, lengths)
        }
        ends = [
            c
            for function in sorted({caller for fn in told for caller in universe.callers.get(fn, ())})
            if function in classes or classes.intersection(universe.callees.get(function, ()))
            for c in universe.facts[function].calls
            if any(t in told for t in universe.callees.get(function, ()) if universe.fns[t].name == c.name)
        ]
        inserts = [
            universe.fns[f]
            for c in ends
            if c.function not in classes
            for f in sorted(classes.intersection(universe.callees.get(c.function, ())))
            if len(universe.fns[f].params) > 1
        ]
        direct = [a for a in universe.read(lengths) if a.function in classes]
        spec = [
            a
            for a in universe.written(lengths)
            if universe.fn(a).per_step and (a.regime == "spec" or universe.fn(a).side == "worker")
        ]
        if (ends or direct) and spec:
            reason = "positions whose draft KV an off step did not write are cached, and later drafts attend to them"
            yield Finding(
                kind=self.kind,
                title="Finished requests are cached up to the committed length",
                producers=sites(spec, writes_of, 5)
                + sites([e for e in ends if not universe.elsewhere(universe.fn(e))], "caches what ended", 5)
                + [of(fn, "puts what ended into the cache", 4) for fn in inserts if not universe.elsewhere(fn)]
                + [site(c, "writes the draft's KV of what is cached", 4) for c in _filling(universe)],
                consumers=sites(ends, "takes the committed length", 5)
                + [of(fn, "is handed the committed length", 4) for fn in inserts]
                + sites(direct, reads_of, 5)
                + [site(c, "runs the draft over what no cache had", 6) for c in _filling(universe)],
                binding_time="request lifetime",
                why=(
                    "When a request ends its KV is inserted up to the committed length. The target's "
                    "KV is there; the draft's is not for tokens of off steps, and requests that "
                    "match the prefix draft over the hole."
                ),
                refactor="Cache only up to where the draft's KV is written, or fill it before.",
                verdicts={"A": (SOFT, reason), "B": (SOFT, reason), "C": (NONE, "the draft's extend writes it")},
                fields=["Req.kv_committed_len"],
                weight=1,
            )


def _gives(universe: Universe, fn: Fn, lengths: frozenset[str]) -> bool:
    """Whether a function gives back one of the KV lengths."""
    return any(
        isinstance(part, s.Attr) and part.attr in lengths
        for _, value, _ in universe.facts[fn.id].returns
        for part in s.descend(value)
    ) or (
        bool(universe.facts[fn.id].returns)
        and any(a.field in lengths and a.write for a in universe.facts[fn.id].accesses)
        and any(a.field in lengths and not a.write for a in universe.facts[fn.id].accesses)
    )


def _filling(universe: Universe) -> list[Call]:
    """Where the worker runs the draft model, other than in the loop that drafts."""
    runners = universe.vocabulary.names("draft_kv", "runners")
    return [
        c
        for c in calls_on(universe, runners)
        if universe.fn(c).in_worker and universe.fn(c).side == WORKER and not c.loops and not universe.fn(c).other
    ]


def _init(universe: Universe, access: Access) -> bool:
    return universe.fns[access.function].name == "__init__"
