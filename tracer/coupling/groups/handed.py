"""What speculation's own code asks of the target worker: the same entry as the scheduler's, with other arguments."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import NONE, SOFT, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, named_value, said, shown, slug, strike
from sgltrace.coupling.offstep.domain import BATCH, Fact, Val, const
from sgltrace.coupling.offstep.interpret import Env, Interpreter
from sgltrace.coupling.offstep.lookup import takes_self
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """One point where the entry fails for what verify leaves out, once the call is no verify."""
    q = scene.questions
    target = q.parts.target
    if target is None:
        return
    calls: list[tuple[FunctionInfo, s.Call, dict[str, object]]] = []
    for caller, call in q.steps.sites.callers.get(target, ()):
        reading = q.on.worker.readings.get(caller)
        if caller in q.parts.own and reading is not None and id(call) in reading.seen:
            given = named_value(target, call, takes_self(target))
            if any(value is None for value in given.values()):
                calls.append((caller, call, given))
    found = []
    for caller, call, given in calls:
        why = [Fact(BATCH, f"{p} of {caller.name}") for p, value in given.items() if value is None]
        params: Env = {p: Val(const(None).atoms, frozenset(why)) for p, value in given.items() if value is None}
        params |= {
            p.name: const(p.default.value)
            for p in target.parameters
            if isinstance(p.default, s.Const) and p.name not in params
        }
        strikes = Interpreter(q.attached.worker.lookup, target, params).run().strikes
        strikes = [x for x in strikes if any(f in why for f in x.facts)]
        if strikes:
            found.append((caller, call, given, strikes))
    if not found:
        return
    caller, call, given, strikes = found[0]
    left = sorted(p for p, value in given.items() if value is None)
    says = sorted(p for p, value in given.items() if value is True)
    reason = (
        f"called as {name(caller)} does, without {scene.listed(f'`{p}`' for p in left)}, {name(target)} line "
        f"{strikes[0].line} raises {strikes[0].exception} where it is no verify"
    )
    yield Draft(
        kind="worker_dispatch",
        slug=slug("handed", target.name),
        title=f"{target.name} needs {scene.listed(left)} where it is not told {scene.listed(says) or 'more'}",
        producers=[Spot(c, at.line, f"hands on {shown(at)}") for c, at, _, _ in found],
        consumers=[strike(x) for *_, xs in found for x in xs],
        binding_time="per step",
        verdicts={
            (scene.path, "A"): (NONE, "the scheduler hands the batch over"),
            (scene.path, "B"): (SOFT, reason),
            (scene.path, "C"): (NONE, "verify calls it as before"),
        },
        why=[
            f"{said((c for c, *_ in found), 'hands')} {name(target)} no {scene.listed(f'`{p}`' for p in left)}.",
            f"{name(target)} uses it at line {strikes[0].line}.",
        ],
        refactor=[f"Hand {scene.listed(f'`{p}`' for p in left)} over for a plain decode."],
        weight=2,
    )
