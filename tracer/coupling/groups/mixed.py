"""Batches of both regimes: what the draft's state does with another batch that carries none."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, said, shown, slug, strike
from sgltrace.coupling.offstep.domain import BATCH, Fact, Val
from sgltrace.coupling.offstep.domain import NONE as NOTHING
from sgltrace.coupling.offstep.interpret import Interpreter, Strike
from sgltrace.coupling.offstep.lookup import bind, takes_self
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """Calls on the draft's state that are given the draft's state of another batch."""
    q = scene.questions
    found: dict[FunctionInfo, tuple[list[Spot], list[Strike]]] = {}
    mro = q.program.engine.classes.mro
    methods = {
        f
        for cls in q.parts.state_classes
        if q.flow.role(cls) != "verify_input"
        for base in mro(cls)
        for functions in base.functions.values()
        for f in functions
    }
    steps = q.program.phases.of[scene.path]["every step"]
    calls = sorted(
        ((caller, call) for f in methods for caller, call in q.steps.sites.callers.get(f, ()) if caller in steps),
        key=lambda found: (found[0].id, found[1].line),
    )
    for function, call in {(c.id, id(n)): (c, n) for c, n in calls}.values():
        if function not in q.parts.own:
            args: list[tuple[str | None, Val | None]] = [(arg.name, None) for arg in call.args]
            given = [
                i
                for i, arg in enumerate(call.args)
                if isinstance(arg.value, s.Attr) and arg.value.attr in q.parts.state_fields
            ]
            if not given:
                continue
            for callee, _ in q.steps.sites.called(call, function):
                if callee.owner is None or not any(
                    callee.owner in q.program.engine.classes.mro(c) for c in q.parts.state_classes
                ):
                    continue
                nothing = Val(
                    frozenset({NOTHING}),
                    frozenset({Fact(BATCH, f"another batch's {shown(call.args[given[0]].value)}")}),
                )
                replaced = [(name_, nothing if i in given else value) for i, (name_, value) in enumerate(args)]
                params = bind(callee, replaced, None, takes_self(callee))
                strikes = [
                    x
                    for x in Interpreter(q.on.scheduler.lookup, callee, params).run().strikes
                    if any(f.scope == BATCH and f.name.startswith("another") for f in x.facts)
                ]
                if strikes:
                    entry = found.setdefault(callee, ([], []))
                    entry[0].append(Spot(function, call.line, f"hands on {shown(call.args[given[0]].value)}"))
                    entry[1].extend(strikes)
    for callee, (callers, strikes) in sorted(found.items(), key=lambda item: item[0].id):
        first = strikes[0]
        reason = (
            f"{name(callee)} line {first.line} raises {first.exception} where the other batch carries no draft state"
        )
        yield Draft(
            kind="batch_filter_merge",
            slug=slug("mixed", callee.name),
            title=f"{callee.name} takes for granted that both batches carry a draft state",
            producers=callers,
            consumers=[strike(x) for x in strikes],
            binding_time="per step",
            verdicts=scene.verdicts((HARD, reason), (HARD, reason), (NONE, "every batch keeps its draft state")),
            why=[
                f"{said((c.function for c in callers), 'hands')} {name(callee)} the other batch's draft state.",
                f"{name(callee)} uses it without asking (line {first.line}).",
            ],
            refactor=["Keep a draft state on every batch, or let the merge fill in rows for requests that have none."],
            fields=[
                f"{q.parts.scheduler_batch.name if q.parts.scheduler_batch else ''}.{f}" for f in q.parts.state_fields
            ],
            weight=7,
        )
