"""Scheduler policies: estimates, orders and limits that the scheduler chooses by the process's algorithm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.facts import Access, Branch
from sgltrace.coupling.point import SOFT, Finding, Site, of, sites
from sgltrace.coupling.query import (
    call_line,
    callers,
    decides,
    paths_of,
    reads_after,
    start_writes,
    step_reads,
    targets,
)
from sgltrace.coupling.regime import PROCESS, last_name
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, Fn, Universe
from sgltrace.coupling.widths import mentions_width
from sgltrace.coupling.wording import reads_of, show, writes_of
from sgltrace.index.facts import syntax as s


class SchedulerPolicy(Rule):
    """A decision of the scheduler that depends on the algorithm, and is made before a batch could be switched off."""

    kind = "scheduler_policy"
    positive = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def needed(self):
                            if self.spec_algorithm.is_none():
                                return len(self.reqs)
                            return len(self.reqs) * self.server_args.speculative_num_draft_tokens

                    class Scheduler:
                        def retract(self, batch: ScheduleBatch):
                            return batch.needed() > self.free_tokens
                """,
            },
            producers=("scheduler:ScheduleBatch.needed",),
            consumers=("scheduler:Scheduler.retract",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def needed(self):
                            return len(self.reqs)

                    class Scheduler:
                        def retract(self, batch: ScheduleBatch):
                            return batch.needed() > self.free_tokens
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Estimates by width, orders by the algorithm, and limits chosen at start."""
        taken: set[str] = set()
        yield from self._estimates(universe, taken)
        yield from self._multiples(universe, taken)
        yield from self._orders(universe, taken)
        yield from self._limits(universe)

    def _estimates(self, universe: Universe, taken: set[str]) -> Iterator[Finding]:
        """Amounts that a decision waits for; ``taken`` receives the functions concerned."""
        for fn in sorted(universe.fns.values(), key=lambda f: f.id):
            facts = universe.facts.get(fn.id)
            if (
                facts is None
                or fn.side != SCHEDULER
                or not fn.per_step
                or not facts.returns
                or _elsewhere(universe, fn)
            ):
                continue
            if fn.name not in universe.width_calls:
                continue
            wide = [(line, value) for line, value, _ in facts.returns if mentions_width(universe, value, facts)]
            users = [c for c in callers(universe, fn, 3) if c.side == SCHEDULER and c.per_step]
            if not users or fn.id in taken:
                continue
            taken |= {c.id for c in users}
            taken.add(fn.id)
            reason = "off steps go on reserving for a speculative step: requests are retracted or refused earlier"
            lines = [b.line for b in facts.branches]
            consumers = [of(c, "acts by the estimate", 5, _line_towards(universe, c, fn)) for c in users]
            yield Finding(
                kind=self.kind,
                title="The memory that the next decode needs is estimated by the speculative width",
                producers=[
                    *(Site(fn.id, line, f"returns {show(value)}", 6) for line, value in wide),
                    *decides(universe, fn.id, lines),
                    *sites(
                        [m for m in facts.mentions if m.name in universe.vocabulary.spec.widths], "takes a width", 5
                    ),
                    *(
                        of(universe.fns[c], "says how many tokens a step takes", 4)
                        for c in sorted(universe.callees.get(fn.id, ()))
                        if universe.fns[c].name in universe.width_calls
                    ),
                ],
                consumers=consumers,
                binding_time="per step",
                why=(
                    "The tokens of a speculative step are counted for every request, whatever the "
                    "batch will do, before the worker could decide to switch off. The estimate is "
                    "too large for an off step, never too small."
                ),
                refactor="Decide on or off before the estimate and use the matching one; the larger is safe.",
                verdicts=dict.fromkeys("ABC", (SOFT, reason)),
                formula=f"speculative: {show(wide[0][1])}",
                only=paths_of(universe, [fn.id]),
                weight=4,
            )

    def _multiples(self, universe: Universe, taken: set[str]) -> Iterator[Finding]:
        """Amounts that the scheduler itself works out from a width when it starts, and decides by in each step."""
        for cls in universe.scheduler_classes:
            for name in sorted(universe.width_fields.get(cls, ())):
                reads = [a for a in step_reads(universe, {name}, (SCHEDULER,)) if a.owner == "self"]
                writes = [a for a in start_writes(universe, {name}) if universe.fn(a).cls in universe.lineage(cls)]
                if not reads or not writes:
                    continue
                taken |= {a.function for a in reads}
                handed = _handed(universe, reads)
                amounts = {
                    c: universe.fns[c]
                    for fn in handed
                    for c in universe.callees.get(fn.id, ())
                    if universe.fns[c].cls == fn.cls and universe.facts[c].returns
                }
                above = {c.id: c for fn in handed for c in callers(universe, fn) if c.side == SCHEDULER}
                reason = "off steps go on asking for what a speculative step needs: requests are retracted earlier"
                yield Finding(
                    kind=self.kind,
                    title=f"The scheduler multiplies by {name}, which holds the speculative width",
                    producers=sites(writes, writes_of, 6)
                    + [of(fn, "works out an amount from it", 4) for fn in handed]
                    + [of(fn, "gives the amount that it multiplies", 4) for fn in amounts.values()],
                    consumers=sites(reads, reads_of, 5)
                    + [of(fn, "is handed it", 4) for fn in handed]
                    + [of(fn, "acts by the amount", 3) for fn in above.values()],
                    binding_time="process start",
                    why=(
                        "The factor is worked out from the draft's width once, and every decode step is judged by it, "
                        "whatever the batch will do. It is too large for an off step, never too small."
                    ),
                    refactor="Choose the factor by the kind of step, before the check.",
                    verdicts=dict.fromkeys("ABC", (SOFT, reason)),
                    formula=f"{name} = {show(writes[0].value)}",
                    fields=[f"{cls}.{name}"],
                    weight=3,
                )

    def _orders(self, universe: Universe, taken: set[str]) -> Iterator[Finding]:
        """Process-wide conditions in the scheduler's step code that choose an order, a mix or a limit."""
        by_function: dict[str, list[Branch]] = defaultdict(list)
        for branch in universe.branches:
            fn = universe.fn(branch)
            if (
                fn.side == SCHEDULER
                and fn.per_step
                and not _elsewhere(universe, fn)
                and branch.reading.scope == "process"
            ):
                by_function[fn.id].append(branch)
        yield from self._told(universe)
        policy = universe.fields("scheduler_policy")
        for function, branches in sorted(by_function.items()):
            facts, fn = universe.facts[function], universe.fns[function]
            inside = [
                a
                for a in facts.accesses
                if a.field in policy and (a.via in {b.line for b in branches} or a.line in _lines(branches))
            ]
            inside += [a for a in facts.accesses if a.field in policy and a.regime is not None]
            sorts = [c for c in facts.calls if c.name in ("sort", "sorted") and c.regime is not None]
            if not sorts and (not inside or function in taken):
                continue
            reason = "the order or the mix stays that of a speculative process in off steps"
            users = [c for c in callers(universe, fn) if c.side == SCHEDULER and c.per_step]
            yield Finding(
                kind=self.kind,
                title="Requests are ordered or mixed by the process's algorithm",
                producers=decides(universe, function, [b.line for b in branches]),
                consumers=sites(inside, reads_of, 4)
                + sites(sorts, "sorts requests", 4)
                + [of(c, "uses what is chosen", 4, call_line(universe, c, fn)) for c in users],
                binding_time="per step",
                why=(
                    "Requests are treated differently while the process has an algorithm, because "
                    "speculation's batches can only be cut or mixed in certain ways. Off steps keep "
                    "the restriction."
                ),
                refactor="None needed for correctness; relax it for batches that are off.",
                verdicts=dict.fromkeys("ABC", (SOFT, reason)),
                only=paths_of(universe, [function]),
                weight=1,
            )

    def _told(self, universe: Universe) -> Iterator[Finding]:
        """Functions that sort requests, and are told by the process's algorithm whether they may."""
        sorting = {c.function for name in ("sort", "sorted") for c in universe.calls.get(name, ())}
        for callee in sorted(sorting):
            fn = universe.fns[callee]
            told = [
                call
                for call in universe.calls.get(fn.name, ())
                if callee in universe.callees.get(call.function, ())
                and universe.fn(call).side == SCHEDULER
                and any(_by_algorithm(universe, arg.value) for arg in call.node.args)
            ]
            if fn.side != SCHEDULER or not fn.per_step or not told:
                continue
            above = {c.id: c for call in told for c in callers(universe, universe.fn(call)) if c.side == SCHEDULER}
            yield Finding(
                kind=self.kind,
                title="Requests are ordered by a policy only in a process without an algorithm",
                producers=sites(told, "says by the process's algorithm whether to sort", 6),
                consumers=[of(fn, "sorts requests where it may", 5)]
                + sites(told, "acts by the order", 4)
                + [of(c, "uses what is chosen", 3) for c in above.values()],
                binding_time="per step",
                why=(
                    "With an algorithm requests are taken in the order in which they stand, because the draft state "
                    "cannot be cut otherwise. Off steps keep the restriction."
                ),
                refactor="None needed for correctness; relax it for batches that are off.",
                verdicts=dict.fromkeys("ABC", (SOFT, "the order stays that of a speculative process in off steps")),
                only=paths_of(universe, [c.function for c in told]),
                weight=1,
            )

    def _limits(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("scheduler_policy", "limits")
        chosen = [
            a
            for a in universe.written(names)
            if universe.is_args(universe.fn(a)) and (a.regime == "spec" or _after_config(universe, a))
        ]
        reads = [a for a in reads_after(universe, names) if universe.fn(a).side == SCHEDULER or universe.fn(a).at_start]
        if not chosen or not reads:
            return
        reason = "the limit fits a speculative server: at the loads where turning off pays it is reached first"
        yield Finding(
            kind=self.kind,
            title="The number of running requests is limited for speculation",
            producers=sites(chosen, writes_of, 5),
            consumers=sites(reads, reads_of, 3),
            binding_time="process start",
            why="With an algorithm and no limit given, few requests are let run. Off steps could take many more.",
            refactor="Set the limit for plain steps, and size pools and graphs for it.",
            verdicts=dict.fromkeys("ABC", (SOFT, reason)),
            weight=2,
        )


def _elsewhere(universe: Universe, fn: Fn) -> bool:
    """Whether a function belongs to another part of the engine that a rule of its own looks at."""
    return universe.elsewhere(fn) or not set(fn.module.split(".")) & universe.vocabulary.names(
        "scheduler_policy", "modules"
    )


def _by_algorithm(universe: Universe, node: s.Expr) -> bool:
    reading = universe.predicates.read(node)
    return reading.known and reading.scope == PROCESS and not isinstance(node, (s.Name, s.Attr))


def _handed(universe: Universe, reads: list[Access]) -> list[Fn]:
    """The functions to which a read field is handed, and those to which they hand it on."""
    found: dict[str, Fn] = {}
    level = [(a.function, a.field) for a in reads]
    for _ in range(3):
        following = []
        for function, held in level:
            for call in universe.facts[function].calls:
                for number, arg in enumerate(call.node.args):
                    if last_name(arg.value) != held:
                        continue
                    for callee in targets(universe, call):
                        names = [p.name for p in callee.params if p.name not in ("self", "cls")]
                        name = arg.name or (names[number] if number < len(names) else None)
                        if name is not None and callee.id not in found:
                            found[callee.id] = callee
                            following.append((callee.id, name))
        level = following
    return [found[function] for function in sorted(found)]


def _line_towards(universe: Universe, caller: Fn, fn: Fn) -> int:
    for callee in sorted(universe.callees.get(caller.id, ())):
        if callee == fn.id or fn.id in universe.callees.get(callee, ()):
            return call_line(universe, caller, universe.fns[callee])
    return caller.line


def _lines(branches: list[Branch]) -> set[int]:
    out: set[int] = set()
    for branch in branches:
        out |= set(range(branch.body[0], branch.body[1] + 1)) | set(range(branch.orelse[0], branch.orelse[1] + 1))
    return out - {0}


def _after_config(universe: Universe, access: Access) -> bool:
    facts = universe.facts[access.function]
    line = access.line
    return any(b.body[0] <= line <= b.body[1] for b in facts.branches if b.reading.when_true == "spec")
