"""Worker dispatch: which worker runs a batch, what it is handed, and how the loop is chosen."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Branch, Call
from sgltrace.coupling.point import HARD, NONE, SOFT, Finding, Site, of, site, sites
from sgltrace.coupling.query import calls_on, decides, paths_of, start_writes, targets
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.scan import deep
from sgltrace.coupling.universe import SCHEDULER, WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s


class WorkerDispatch(Rule):
    """The scheduler calls one worker, bound when the process starts, with the kind of batch that it takes."""

    kind = "worker_dispatch"
    positive = (
        Example(
            {
                "start": """
                    class Scheduler:
                        def bind(self):
                            if self.spec_algorithm.is_none():
                                self.model_worker = self.tp_worker
                            else:
                                self.model_worker = self.draft_worker
                """,
                "scheduler": """
                    class Scheduler:
                        def run(self, batch: ScheduleBatch):
                            return self.model_worker.forward_batch_generation(batch)
                """,
                "worker": """
                    class EAGLEWorker:
                        def forward_batch_generation(self, batch: ScheduleBatch):
                            return self.check(batch)
                """,
            },
            producers=("start:Scheduler.bind",),
            consumers=("scheduler:Scheduler.run",),
            severity={"v1": "hard", "v2": "hard"},
        ),
    )
    negative = (
        Example(
            {
                "start": """
                    class Scheduler:
                        def bind(self):
                            self.model_worker = self.tp_worker
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The binding, the batch's class, and the target worker's tail."""
        yield from self._bound(universe)
        yield from self._tail(universe)

    def _bound(self, universe: Universe) -> Iterator[Finding]:
        names = universe.fields("worker_dispatch", "workers")
        schedulers = universe.vocabulary.names("worker_dispatch", "schedulers")
        writes = [
            a
            for a in start_writes(universe, names)
            if a.regime is not None and universe.is_a(universe.fn(a).cls, schedulers)
        ]
        runs = [
            c
            for c in calls_on(universe, names)
            if universe.fn(c).side == SCHEDULER and universe.fn(c).per_step and _runs_batch(universe, c)
        ]
        if not writes or not runs:
            return
        lines = {a.via for a in writes}
        producers = sites(writes, writes_of, 6)
        for function in sorted({a.function for a in writes}):
            producers += decides(universe, function, lines)
        made = universe.vocabulary.roles.get("spec_worker", frozenset())
        producers += [
            Site(function, line, "gives the class of the worker", 4)
            for function, facts in sorted(universe.facts.items())
            if universe.fns[function].cls in universe.vocabulary.spec.algorithm_enums
            for line, value, _ in facts.returns
            if last_name(value) in made
        ]
        for function in sorted({c.function for c in runs if c.regime is not None}):
            producers += decides(universe, function, {c.via for c in runs if c.function == function})
        entries = {t.id: t for c in runs for t in targets(universe, c) if not t.other}
        reason = "a batch cannot be sent to the target worker: the worker is fixed for the process"
        yield Finding(
            kind=self.kind,
            title="The worker that runs every batch is bound when the process starts",
            producers=producers,
            consumers=[site(c, f"has {c.owner} run the batch", 6) for c in runs]
            + [of(fn, "runs every batch that it is handed", 4) for fn in entries.values()],
            binding_time="process start",
            why=(
                "With an algorithm the scheduler's worker is the speculative one, for every batch; "
                "the target worker is only reached through it. Sending a batch past it needs a "
                "choice for each batch, and everything that follows from the result."
            ),
            refactor="Choose the worker where the batch is run, by a flag of the batch.",
            verdicts={
                "A": (HARD, reason),
                "B": (NONE, "the speculative worker decides itself"),
                "C": (NONE, "the speculative worker decides itself"),
            },
            fields=["Scheduler.model_worker"],
            weight=5,
        )

    def _tail(self, universe: Universe) -> Iterator[Finding]:
        """What the target worker does after the forward pass unless it is told that it verifies."""
        workers = universe.vocabulary.names("worker_dispatch", "target_fields")
        runs = [
            c
            for c in calls_on(universe, workers)
            if universe.fn(c).side == WORKER and universe.fn(c).per_step and _runs_batch(universe, c)
        ]
        verifying = [
            c
            for c in runs
            if any(a.name and isinstance(a.value, s.Const) and a.value.value is True for a in c.node.args)
        ]
        if not verifying:
            return
        bare = [
            c for c in verifying if any(isinstance(a.value, s.Const) and a.value.value is None for a in c.node.args)
        ]
        inner = {t.id: t for c in verifying for t in targets(universe, c)}
        consumers = []
        for function in sorted(inner):
            facts = universe.facts[function]
            first = universe.fns[function].params[1].name if len(universe.fns[function].params) > 1 else ""
            consumers += sites([a for a in facts.accesses if a.owner == first and not a.write], reads_of, 6) + sites(
                [a for a in facts.accesses if a.field in ("sampling_info", "grammars") and not a.write], reads_of, 4
            )
            consumers += [of(universe.fns[function], "goes on to sample", 3)]
        reason = "the tail that samples dereferences the worker batch, which verify's call leaves out"
        yield Finding(
            kind=self.kind,
            title="The target worker samples only for callers that hand it a worker batch",
            producers=[site(c, "runs the target without sampling", 6) for c in (bare or verifying)],
            consumers=consumers,
            binding_time="per step",
            why=(
                "Verify calls the target worker with a prepared forward batch and asks it not to "
                "sample. A plain step inside the speculative worker needs the sampling tail, which "
                "reads sampling parameters from the worker batch."
            ),
            refactor="Hand over the worker batch, with lengths, slots and input set and the draft state removed.",
            verdicts={"B": (SOFT, reason)},
            only=paths_of(universe, [c.function for c in (bare or verifying)]),
            weight=2,
        )


def _runs_batch(universe: Universe, call: Call) -> bool:
    return any(t.id in universe.entries for t in targets(universe, call))


def _names(call: Call) -> set[str]:
    return {a.value.id for a in call.node.args if isinstance(a.value, s.Name)}


def _assigned(universe: Universe, fn: Fn, branch: Branch) -> dict[str, set[bool]]:
    """Local names that the sides of a condition bind; what is bound before it counts for a side that is not there."""
    out: dict[str, set[bool]] = {}
    before: set[str] = set()
    for statement in deep(fn.body()):
        if (
            isinstance(statement, s.Assign)
            and isinstance(statement.targets[0], s.Name)
            and statement.line < branch.line
        ):
            before.add(statement.targets[0].id)
        if isinstance(statement, s.If) and statement.line == branch.line:
            for side, block in ((True, statement.body), (False, statement.orelse)):
                for inner in block:
                    if isinstance(inner, s.Assign) and isinstance(inner.targets[0], s.Name):
                        out.setdefault(inner.targets[0].id, set()).add(side)
            if not statement.orelse:
                for name in out.keys() & before:
                    out[name].add(False)
    return out
