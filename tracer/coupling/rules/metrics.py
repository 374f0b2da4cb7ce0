"""Metrics: rates that are divided by the number of speculative steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.facts import Access, Call
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import call_line, callers, decides, on_path
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, WORKER, Universe
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s


class Metrics(Rule):
    """Counters that only speculative steps advance, and divisions by them."""

    kind = "metrics"
    positive = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def count(self, accepted):
                            self.spec_num_forward_ct += 1
                            self.spec_num_accepted_tokens += accepted

                        def process(self, batch: ScheduleBatch, result):
                            if not batch.spec_algorithm.is_none():
                                self.count(result.num_accepted_tokens)

                        def log(self):
                            return self.spec_num_accepted_tokens / self.spec_num_forward_ct
                """,
            },
            producers=("scheduler:Scheduler.count", "scheduler:Scheduler.process"),
            consumers=("scheduler:Scheduler.log",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def log(self):
                            return self.num_tokens / self.num_steps
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Counters of the scheduler and divisions by them; then counters of each request."""
        names = universe.fields("metrics")
        counts = [a for a in universe.written(names) if a.how == "augment" and universe.fn(a).per_step]
        divided = [a for a in universe.read(names) if a.how == "divisor"]
        fields = {a.field for a in divided}
        reset = [a for a in universe.written(fields) if universe.fn(a).per_step and a.how != "augment"]
        if counts and divided:
            functions = {a.function for a in counts if a.field in fields or _same(a.field, fields)}
            producers = sites([a for a in counts if a.function in functions], writes_of, 5)
            for function in sorted(functions):
                for caller in callers(universe, universe.fns[function]):
                    if caller.per_step:
                        producers.append(
                            of(caller, "counts the step", 6, call_line(universe, caller, universe.fns[function]))
                        )
                        lines = (
                            [b.line for b in universe.facts[caller.id].branches] if caller.id in universe.facts else []
                        )
                        producers += [s for s in decides(universe, caller.id, lines) if s.line]
            unguarded = [a for a in divided if not _guarded(universe, a)]
            reason = (
                "a log interval of off steps only divides by zero"
                if unguarded
                else "averages are diluted, or skip the off steps"
            )
            yield Finding(
                kind=self.kind,
                title="Acceptance rates are divided by the number of speculative steps",
                producers=producers,
                consumers=sites(unguarded, reads_of, 7) + sites(divided, reads_of, 5) + sites(reset, writes_of, 3),
                binding_time="per log interval",
                why=(
                    (
                        "Each decode step of a speculative process counts as a speculative one. If off "
                        "steps are not counted, an interval without any divides by zero"
                    )
                    + (" in code that does not ask" if unguarded else "")
                    + "; if they are, acceptance lengths are averaged with ones."
                ),
                refactor="Guard the division, and count on and off steps apart.",
                verdicts=dict.fromkeys("ABC", (SOFT, reason)),
                formula="accept length = accepted tokens / speculative steps",
                fields=sorted({universe.field_name(a) for a in counts}),
                weight=3,
            )
            yield from self._none_added(universe, counts)
        requests = [
            a
            for a in universe.written(names)
            if universe.role(a.cls) == "request"
            and universe.fn(a).per_step
            and universe.fn(a).side in (WORKER, "scheduler")
        ]
        shown = [
            a
            for a in universe.read(names)
            if (universe.fn(a).per_step and universe.fn(a).side == "scheduler") or _front(universe, a.function)
        ]
        if requests and shown:
            yield Finding(
                kind=self.kind,
                title="A request's acceptance figures count only what speculation resolves",
                producers=sites(requests, writes_of, 5),
                consumers=sites([a for a in shown if universe.role(a.cls) == "request"], reads_of, 5)
                + sites(shown, reads_of, 2),
                binding_time="request lifetime",
                why=(
                    "The number of verifies and of accepted tokens goes out with each request; off steps "
                    "add tokens without a verify."
                ),
                refactor="Report off steps apart, or leave them out of the ratio.",
                verdicts=dict.fromkeys("ABC", (SOFT, "the ratio no longer is tokens over steps")),
                fields=sorted({f"Req.{a.field}" for a in requests}),
                weight=1,
            )

    def _none_added(self, universe: Universe, counts: list[Access]) -> Iterator[Finding]:
        """Fields of a result that are None unless a worker sets them, and that are added to a counter."""
        counting = {a.function: universe.fn(a) for a in counts}
        added: dict[str, list[Call]] = defaultdict(list)
        for fn in counting.values():
            for call in universe.calls.get(fn.name, ()):
                if fn.id in universe.callees.get(call.function, ()) and universe.fn(call).side == SCHEDULER:
                    for arg in call.node.args:
                        if isinstance(arg.value, s.Attr):
                            added[arg.value.attr].append(call)
        for name, calls in sorted(added.items()):
            writes = [a for a in universe.written({name}) if universe.role(a.cls) == "result"]
            default = universe.default("result", name)
            if not writes or not isinstance(default, s.Const) or default.value is not None:
                continue
            bare = (HARD, f"the target worker's result leaves {name} None, and adding it raises")
            filled = (SOFT, "the scheduler fills it in before it adds it: averages are diluted by off steps")
            yield Finding(
                kind=self.kind,
                title=f"Every result's {name} is added to the counters, and only speculation sets it",
                producers=sites(writes, writes_of, 5) + [of(fn, "adds it to a counter", 5) for fn in counting.values()],
                consumers=sites(calls, "has the step counted", 6)
                + sites([a for a in universe.read({c.field for c in counts}) if a.how == "divisor"], reads_of, 4),
                binding_time="per step",
                why=(
                    f"In a process with an algorithm the scheduler adds {name} of every decode result to its counters. "
                    "The field of a result is None unless somebody sets it."
                ),
                refactor="Give the field a number by default, or count only results of speculative steps.",
                verdicts={},
                by_path={
                    path: {
                        "A": filled if any(not universe.fn(a).in_worker for a in here) else bare,
                        "B": (SOFT, "a bypass in the worker sets it itself"),
                        "C": (NONE, "verify sets it"),
                    }
                    for path in sorted(universe.paths)
                    for here in [on_path(universe, writes, path)]
                },
                fields=[f"GenerationBatchResult.{name}"],
                weight=3,
            )


def _front(universe: Universe, function: str) -> bool:
    """Whether a function belongs to the process that talks to clients."""
    return universe.is_a(universe.fns[function].cls, universe.vocabulary.names("metrics", "front_classes"))


def _guarded(universe: Universe, access: Access) -> bool:
    facts = universe.facts[access.function]
    name = access.field
    line = access.line
    return any(a.field == name and a.how == "test" and 0 <= line - a.line <= 8 for a in facts.accesses)


def _same(name: str, fields: set[str]) -> bool:
    return any(name.split("_")[0] == f.split("_")[0] for f in fields)
