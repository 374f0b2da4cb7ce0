"""Forward mode: what each stage leaves on the batch, and who decides by it."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import Access
from sgltrace.coupling.point import NONE, SOFT, Finding, Site, sites
from sgltrace.coupling.query import held_by, step_reads
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.scan import deep
from sgltrace.coupling.universe import SCHEDULER, TARGET, WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s


class ForwardModes(Rule):
    """Each stage of speculation has a mode of its own, and sets it on the batch that the scheduler keeps."""

    kind = "forward_mode"
    positive = (
        Example(
            {
                "worker": """
                    class EAGLEWorker:
                        def check(self, batch: ScheduleBatch):
                            batch.forward_mode = ForwardMode.TARGET_VERIFY
                """,
                "scheduler": """
                    class Scheduler:
                        def process(self, batch: ScheduleBatch):
                            return batch.forward_mode.is_target_verify()
                """,
            },
            producers=("worker:EAGLEWorker.check",),
            consumers=("scheduler:Scheduler.process",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class ScheduleBatch:
                        def next_step(self):
                            self.forward_mode = ForwardMode.DECODE
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Who rewrites the mode on the batch, and who reads what is left; then who treats verify as a decode."""
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
        if writes:
            yield from self._alike(universe, writes)
        if not writes or not (reads or forward):
            return
        reason = "the off step must leave the batch in decode mode, and its forward copy must not be a verify"
        yield Finding(
            kind=self.kind,
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

    def _alike(self, universe: Universe, writes: list[Access]) -> Iterator[Finding]:
        """Code of the target and of the scheduler that does the same for a verify as for a decode."""
        verify = frozenset(universe.predicates.mode)
        decode = {
            fn.name
            for fn in universe.fns.values()
            if fn.cls in universe.vocabulary.spec.mode_enums
            and fn.name not in verify
            and any(m.function == fn.id for m in universe.mentions.get("DECODE", ()))
        }
        asking = {c.function for name in sorted(verify) for c in universe.calls.get(name, ())}
        alike = [
            (fn, line)
            for fn in map(universe.fns.__getitem__, sorted(asking))
            if fn.per_step and fn.side in (TARGET, SCHEDULER) and not universe.elsewhere(fn)
            for line in _treated_alike(fn, verify, decode)
        ]
        if not alike:
            return
        yield Finding(
            kind=self.kind,
            title="A verify is treated as a decode",
            producers=sites(writes, writes_of, 5)
            + sites(
                [a for a in universe.writes.get("forward_mode", ()) if a.regime is None and _batch(universe, a)],
                writes_of,
                4,
            ),
            consumers=[Site(fn.id, line, "does the same for a decode and a verify", 5) for fn, line in alike],
            binding_time="per step",
            why="These places ask for either mode in one condition: which kind of step ran is all the same to them.",
            refactor="None.",
            verdicts=dict.fromkeys("ABC", (NONE, "a decode goes the same way")),
            fields=["ForwardBatch.forward_mode"],
        )


def _batch(universe: Universe, access: Access) -> bool:
    return universe.role(access.cls) == "scheduler_batch" and universe.fn(access).side == SCHEDULER


def _treated_alike(fn: Fn, verify: frozenset[str], decode: set[str]) -> list[int]:
    """The lines of conditions that hold for a decode and for a verify alike."""
    out = []
    for statement in deep(fn.body()):
        if isinstance(statement, s.If):
            alternatives = [last_name(part.func) for part in _either(statement.test) if isinstance(part, s.Call)]
            if verify.intersection(filter(None, alternatives)) and decode.intersection(filter(None, alternatives)):
                out.append(statement.line)
    return out


def _either(node: s.Expr) -> list[s.Expr]:
    """The alternatives of a condition."""
    match node:
        case s.Bool(op="or", left=left, right=right):
            return _either(left) + _either(right)
    return [node]
