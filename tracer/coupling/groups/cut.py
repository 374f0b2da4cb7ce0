"""Rows of the draft's state: cut by index, or taken from the front where the caller says that verify has cut them."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, said, shown, slug
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """One point for each method of the draft's state that has two ways to cut, and a parameter that chooses."""
    q = scene.questions
    mro = q.program.engine.classes.mro
    states = {base for cls in q.parts.state_classes for base in mro(cls)}
    for function in sorted(q.on.scheduler.readings, key=lambda f: f.id):
        if function.owner not in states:
            continue
        params = {p.name for p in function.parameters}
        for statement in s.nested(function.body):
            if (
                not isinstance(statement, s.If)
                or not isinstance(statement.test, s.Name)
                or statement.test.id not in params
            ):
                continue
            front, index = _cuts(function, statement.body, True), _cuts(function, statement.orelse, False)
            if front and index:
                yield _point(scene, function, statement, statement.test.id, front)


def _cuts(function: FunctionInfo, body: list[s.Stmt], front: bool) -> list[tuple[str, int]]:
    """Fields that statements cut: to their first rows, or by an index."""
    out = []
    for statement in s.nested(body):
        if isinstance(statement, s.Assign) and isinstance(statement.targets[0], s.Attr):
            value, field = statement.value, statement.targets[0].attr
            if isinstance(value, s.Sub) and isinstance(value.value, s.Attr) and value.value.attr == field:
                is_front = isinstance(value.index, s.Slice) and value.index.lower is None
                if is_front is front:
                    out.append((field, statement.line))
    return out


def _point(scene: Scene, function: FunctionInfo, choice: s.If, param: str, front: list[tuple[str, int]]) -> Draft:
    q = scene.questions
    owner = function.owner
    assert owner is not None
    callers = [(c, call) for c, call in q.steps.sites.callers.get(function, ()) if c in q.on.scheduler]
    above = [(c, call) for f, _ in callers for c, call in q.steps.sites.callers.get(f, ()) if c in q.on.scheduler]
    read = {(x.cls, x.field) for x in q.flow.by_function.get(function, []) if not x.is_write}
    verify = [
        w
        for key in sorted(read, key=lambda key: (key[0].id, key[1]))
        for w in q.flow.fields[key].writes
        if scene.verifies(w.function)
    ]
    saved = _saved(scene, function, choice)
    if saved:
        level = (
            NONE,
            f"{said((w.function for w in saved), 'sets')} `{saved[0].field}`, and {name(function)} cuts by it first",
        )
    else:
        level = (
            HARD,
            f"told {param}, {name(function)} line {front[0][1]} keeps the first rows of `{front[0][0]}`: those of "
            "requests that the scheduler has dropped after an off step, too",
        )
    makes = [
        f
        for f in sorted(q.on.worker.readings, key=lambda f: f.id)
        if scene.verifies(f) and owner in {c for c, _ in q.program.engine.constructed.get(f, ())}
    ]
    return Draft(
        kind="batch_filter_merge",
        slug=slug("cut", function.name),
        title=f"{function.name} keeps the first rows of the draft's state where its caller says {param}",
        producers=[Spot(a.function, a.line, f"sets {a.field}") for a in verify]
        + [Spot(f, f.line, "has cut the state already") for f in makes]
        + [Spot(c, call.line, f"calls {function.name}: {shown(call)}") for c, call in (*callers, *above)],
        consumers=[Spot(function, line, f"keeps the first rows of {field}") for field, line in front]
        + [Spot(c, call.line, f"says {param}") for c, call in callers],
        binding_time="per step",
        verdicts=scene.verdicts(level, level, (NONE, "verify has cut it")),
        why=[
            f"{name(function)} line {choice.line} goes by `{param}`, which {said((c for c, _ in callers), 'gives')}."
            if callers
            else "",
            f"{said(makes, 'makes')} a state of the rows that go on." if makes else "",
        ],
        refactor=["Cut the kept state by index after an off step."],
        fields=[f"{owner.name}.{field}" for field, _ in front],
        weight=8,
    )


def _saved(scene: Scene, function: FunctionInfo, choice: s.If) -> list[Access]:
    """Writes of a field, by the scheduler in each step, for which the method returns before it comes to its choice."""
    q = scene.questions
    owner = function.owner
    out: list[Access] = []
    for statement in function.body:
        if statement is choice:
            break
        if isinstance(statement, s.If) and any(isinstance(x, s.Return) for x in statement.body):
            fields = {p.attr for p in s.descend(statement.test) if isinstance(p, s.Attr)}
            for cls in q.parts.state_classes:
                for field in fields:
                    uses = q.flow.fields.get((cls, field)) or q.flow.fields.get((owner, field))  # type: ignore[arg-type]
                    out += (
                        [w for w in uses.writes if q.on.scheduler.runs(w) and w.function not in q.parts.own]
                        if uses
                        else []
                    )
    return out
