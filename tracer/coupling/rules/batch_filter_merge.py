"""Batch filter and merge: what happens to the draft state when requests leave a batch or join one."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Call
from sgltrace.coupling.point import HARD, NONE, Finding, Site, site, sites
from sgltrace.coupling.query import calls_on, paths_of, targets
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, WORKER, Fn, Universe
from sgltrace.coupling.wording import writes_of
from sgltrace.index.facts import syntax as s


class BatchFilterMerge(Rule):
    """The batch hands filter and merge on to its draft state, which must have as many rows as the batch."""

    kind = "batch_filter_merge"
    positive = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def narrow(self, keep):
                            self.spec_info.narrow(keep)

                    class Scheduler:
                        def launch(self, batch: ScheduleBatch, indices):
                            batch.spec_info.future_indices = indices
                """,
                "worker": """
                    class EagleDraftInput:
                        def narrow(self, keep):
                            self.topk_p = self.topk_p[keep]
                """,
            },
            producers=("scheduler:Scheduler.launch",),
            consumers=("scheduler:ScheduleBatch.narrow", "worker:EagleDraftInput.narrow"),
            severity={"v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def join(self, other: ScheduleBatch):
                            self.seq_lens = cat([self.seq_lens, other.seq_lens])
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Calls on the draft state in which it takes rows by index (filter) or joins those of another (merge)."""
        fields = (
            universe.fields("draft_state")
            | universe.fields("draft_state", "bonus")
            | universe.fields("future_map", "indices")
        )
        filters: list[tuple[Call, Fn]] = []
        infos = universe.vocabulary.spec.info_fields
        for call in calls_on(universe, infos):
            for callee in targets(universe, call) if universe.fn(call).side == SCHEDULER else ():
                shape = _row_work(universe, callee, fields)
                if shape == "filter":
                    filters.append((call, callee))
        if filters:
            yield from self._filtered(universe, filters, fields)

    def _filtered(
        self, universe: Universe, filters: list[tuple[Call, Fn]], fields: frozenset[str]
    ) -> Iterator[Finding]:
        inner = {callee.id for _, callee in filters}
        outer = {call.function for call, _ in filters}
        consumers = [site(call, "hands the kept rows on to the draft state", 6) for call, _ in filters]
        for function in sorted(inner):
            consumers += sites(
                [a for a in universe.facts[function].accesses if a.write and a.field in fields], writes_of, 5
            )
            consumers += sites(
                [r for r in universe.refusals if r.function == function], "refuses another number of rows", 6
            )
        told = _told(universe, sorted(outer))
        early = self.filtered_early(universe)
        if early:
            reason = "rows of finished requests are still in the draft state, which is taken to be filtered already"
            yield Finding(
                kind=self.kind,
                title="The scheduler takes the draft state to be filtered by verify already",
                producers=[*early, *told],
                consumers=consumers,
                binding_time="per step",
                why=(
                    "Verify finds the finished requests and keeps only the rows of the others; the "
                    "scheduler's filter is told so and only cuts to length. A step that leaves "
                    "finishing to the scheduler hands over a row for each request: a strict check "
                    "raises, without it the wrong rows are kept."
                ),
                refactor=(
                    "Filter the draft state in the off step for requests that finish, or pass a flag of the batch."
                ),
                verdicts={"A": (HARD, reason), "B": (HARD, reason), "C": (NONE, "verify filters it itself")},
                formula="expects len(topk_p) == number of unfinished requests",
                fields=["EagleDraftInput.topk_p"],
                only=paths_of(universe, [p.function for p in early]),
                weight=8,
            )
        futures = universe.fields("future_map", "indices")
        ahead = [
            a
            for a in universe.written(futures)
            if universe.fn(a).side == SCHEDULER
            and universe.fn(a).per_step
            and a.owner in universe.vocabulary.spec.info_fields
        ]
        if ahead:
            reason = "rows in flight are kept by their future indices, which only a draft state carries"
            yield Finding(
                kind=self.kind,
                title="Rows in flight are filtered and merged by future indices on the draft state",
                producers=sites(ahead, writes_of, 6),
                consumers=consumers,
                binding_time="per step",
                why=(
                    "Between launch and resolution the draft state has no values, only indices into "
                    "the relay's buffers. Filter and merge move those. A step that leaves no draft "
                    "state, or one without indices, breaks both."
                ),
                refactor="Install a draft state with future indices after an off step too.",
                verdicts={
                    "A": (HARD, reason),
                    "B": (HARD, reason),
                    "C": (NONE, "the worker still returns a draft state"),
                },
                fields=["EagleDraftInput.future_indices"],
                only=("v2",),
                weight=5,
            )

    @staticmethod
    def filtered_early(universe: Universe) -> list[Site]:
        """Worker functions that ask whether requests have finished and make a draft state of the rest."""
        out: list[Site] = []
        roles = universe.vocabulary.roles
        inputs = roles.get("draft_input", frozenset()) | roles.get("draft_extend_input", frozenset())
        for function, facts in universe.facts.items():
            fn = universe.fns[function]
            if fn.side != WORKER or not fn.per_step:
                continue
            asks = [
                c for c in facts.calls if universe.role(c.cls) == "request" and not c.node.args and c.name != "update"
            ]
            made = [
                a
                for a in facts.accesses
                if a.how in ("keyword", "assign") and a.cls in inputs and isinstance(a.value, s.Sub)
            ]
            if asks and made:
                out += sites(made, "makes a draft state of the rows that go on", 6)
                out += sites(asks[:2], "asks the request whether it has finished", 4)
        return out


def _row_work(universe: Universe, fn: Fn, fields: frozenset[str]) -> str | None:
    """``filter`` where a method takes rows of its own fields by an argument, ``merge`` where it joins another's."""
    if universe.role(fn.cls) not in ("draft_input", "spec_input", "verify_input", "draft_extend_input"):
        return None
    names = {p.name for p in fn.params[1:]}
    taken = joined = False
    for access in universe.facts[fn.id].accesses:
        if not access.write or access.field not in fields or access.value is None:
            continue
        for part in s.descend(access.value):
            if isinstance(part, s.Sub) and any(isinstance(x, s.Name) and x.id in names for x in s.descend(part.index)):
                taken = True
            if isinstance(part, s.Attr) and isinstance(part.value, s.Name) and part.value.id in names:
                joined = True
    return "merge" if joined else "filter" if taken else None


def _told(universe: Universe, functions: list[str]) -> list[Site]:
    """Callers in the scheduler that pass a literal flag to the filter."""
    out = []
    for function in functions:
        fn = universe.fns[function]
        for call in universe.calls.get(fn.name, ()):
            flags = [a for a in call.node.args if a.name and isinstance(a.value, s.Const) and a.value.value is True]
            if flags and universe.fn(call).side == SCHEDULER and function in universe.callees.get(call.function, ()):
                out.append(site(call, f"says {flags[0].name}=True", 5))
    return out
