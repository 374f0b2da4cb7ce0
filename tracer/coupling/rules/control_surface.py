"""Control surface: how a running server is asked and told about speculation."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.facts import annotation_class
from sgltrace.coupling.offsteps import off_steps
from sgltrace.coupling.point import NONE, SOFT, Finding, of, sites
from sgltrace.coupling.query import callers, step_reads
from sgltrace.coupling.rule import Example, Rule
from sgltrace.coupling.universe import SCHEDULER, WORKER, Fn, Universe
from sgltrace.coupling.wording import reads_of, writes_of
from sgltrace.index.facts import syntax as s


class ControlSurface(Rule):
    """Requests that change or report the server's state, and reach the draft worker or speculative values."""

    kind = "control_surface"
    positive = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def change(self, message: SetInternalStateReq):
                            allowed = {"speculative_accept_threshold_acc"}
                            for name in message.server_args:
                                if name not in allowed:
                                    return False
                """,
                "worker": """
                    class EAGLEWorker:
                        def check(self, args):
                            return args.speculative_accept_threshold_acc
                """,
            },
            producers=("scheduler:Scheduler.change",),
            consumers=("worker:EAGLEWorker.check",),
            severity={"v1": "soft", "v2": "soft"},
        ),
    )
    negative = (
        Example(
            {
                "scheduler": """
                    class Scheduler:
                        def change(self, message: SetInternalStateReq):
                            return message.server_args == {}
                """,
            }
        ),
    )

    def find(self, universe: Universe) -> Iterator[Finding]:
        """Values that may be changed at run time, and requests that the draft worker must follow."""
        requests = sorted(universe.vocabulary.names("control_surface", "requests"))
        handlers = [
            fn
            for fn in universe.fns.values()
            if fn.id in universe.facts
            and any(universe.is_a(annotation_class(p.annotation), requests) for p in fn.params)
        ]
        allowed: dict[str, list[Fn]] = {}
        for fn in handlers:
            for told in (fn, *(universe.fns[c] for c in sorted(universe.callees.get(fn.id, ())))):
                if told.cls == fn.cls and (told is fn or told not in handlers):
                    for text in _texts(universe, told.body()):
                        if universe.vocabulary.spec.is_config(text):
                            allowed.setdefault(text, []).append(told)
        setters = {fn.id: fn for found in allowed.values() for fn in found}
        speaking = [
            fn
            for fn in handlers
            if any(b.reading.known for b in universe.facts[fn.id].branches) and fn.id not in setters
        ]
        if setters:
            reads = [
                m
                for name in sorted(allowed)
                for m in universe.mentions.get(name, ())
                if universe.fn(m).per_step and universe.fn(m).side == WORKER
            ]
            counters = [
                a
                for a in step_reads(universe, universe.fields("metrics"))
                if a.function in setters or a.function in {x.id for x in speaking}
            ]
            widths = [
                a
                for a in step_reads(universe, universe.vocabulary.spec.widths, (SCHEDULER, WORKER))
                if universe.role(a.cls) == "server_args" and not universe.elsewhere(universe.fn(a))
            ]
            yield Finding(
                kind=self.kind,
                title="Only acceptance thresholds may be changed while the server runs",
                producers=[
                    of(fn, f"lets {', '.join(sorted(n for n in allowed if fn in allowed[n]))} be changed", 5)
                    for fn in setters.values()
                ],
                consumers=sites(reads, lambda m: f"takes {m.name} in each step", 5)
                + sites(widths, "takes the width from the arguments in each step", 4)
                + sites(counters, reads_of, 3),
                binding_time="control request",
                why=(
                    "The request that changes the server's state accepts a list of names; widths and "
                    "the algorithm are not on it, and what was bound at start would not follow. A "
                    "toggle for operators needs a name of its own."
                ),
                refactor=(
                    "Add a flag to the list, read it where the step is decided, and make it the same on all ranks."
                ),
                verdicts=dict.fromkeys("ABC", (SOFT, "there is no way to tell a running server")),
                fields=[f"ServerArgs.{n}" for n in sorted(allowed)],
                weight=1,
            )
        yield from self._adaptive(universe, list(setters.values()))
        workers = universe.vocabulary.spec.worker_fields
        reach = [
            a
            for a in universe.read(workers)
            if a.function in {fn.id for fn in handlers} or _handles(universe, a.function)
        ]
        if reach:
            inner = sorted(
                {
                    c
                    for a in reach
                    for c in universe.callees.get(a.function, ())
                    if universe.fns[c].cls and universe.role(universe.fns[c].cls) in ("spec_worker", "draft_worker")
                }
            )
            consumers = [of(universe.fns[c], "follows the request for the draft", 5) for c in inner] + sites(
                reach, reads_of, 3
            )
            yield Finding(
                kind=self.kind,
                title="Flushes, weight updates and reports reach the draft worker while there is one",
                producers=sites(reach, reads_of, 5),
                consumers=consumers,
                binding_time="control request",
                why=(
                    "These requests ask for a draft worker of the process. Turned off, it still holds "
                    "weights and KV that must follow."
                ),
                refactor="None.",
                verdicts=dict.fromkeys("ABC", (NONE, "the draft worker stays, and is kept up")),
            )

    def _adaptive(self, universe: Universe, setters: list[Fn]) -> Iterator[Finding]:
        """A controller that chooses the width again and again, by what its steps accepted."""
        own = universe.of_class("control_surface")
        chosen = [
            a
            for fn in own
            for a in universe.facts[fn.id].accesses
            if a.write and a.owner == "self" and a.how == "assign" and fn.name != "__init__"
        ]
        users = {c.id: c for fn in own for c in callers(universe, fn) if c.per_step}
        # What a worker calls through its base class may not be known to run: the controller's own calls are.
        names = {fn.name for fn in own}
        users |= {fn.id: fn for fn in own if any(c.name in names for c in universe.facts[fn.id].calls)}
        if not chosen or not users or not off_steps(universe):
            return
        yield Finding(
            kind=self.kind,
            title="The adaptive controller chooses the number of steps again by itself",
            producers=sites(chosen, writes_of, 5)
            + [of(fn, "changes the server's state on request", 3) for fn in setters],
            consumers=[of(fn, "asks the controller, or tells it what was accepted", 5) for fn in users.values()]
            + [of(fn, "changes the server's state on request", 4) for fn in setters],
            binding_time="per step",
            why=(
                "The controller moves the number of steps by what was accepted lately. A state that somebody sets from "
                "outside is left again a few batches later, and no request can hold it."
            ),
            refactor="Give the controller a pin that its updates respect, and a request that sets it.",
            verdicts={"C": (SOFT, "an off state is undone by the next update")},
            condition="adaptive speculation",
            fields=sorted({universe.field_name(a) for a in chosen}),
        )


def _texts(universe: Universe, body: list[s.Stmt]) -> set[str]:
    out: set[str] = set()
    for statement in body:
        for name in ("value", "test", "iter"):
            node = getattr(statement, name, None)
            if node is not None and not isinstance(node, str | int | float | bool):
                out |= {p.value for p in s.descend(node) if isinstance(p, s.Const) and isinstance(p.value, str)}
        for block in s.blocks(statement):
            out |= _texts(universe, block)
    return out


def _handles(universe: Universe, function: str) -> bool:
    """Whether a scheduler function is there for what comes from outside: a handler reaches it, or no step does."""
    fn = universe.fns[function]
    asked = "request admission" in fn.phases and any(
        c.owner in universe.vocabulary.spec.worker_fields for c in universe.facts[function].calls
    )
    return (asked or (not fn.at_start and not fn.per_step)) and universe.is_a(fn.cls, universe.scheduler_classes)
