"""Shared code that asks the process whether it speculates, or counts by its widths: an off step gets a step's answer
with speculation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import NONE, SOFT, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, name, said, shown, slug
from sgltrace.coupling.offstep.marks import ALGORITHM, DRAFT, TEST, WIDTH, Mark
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """One point for functions of one kind that call each other."""
    decided = {f: marks for f in scene.shared if (marks := _marks(scene, f))}
    speculative = {"spec_worker", "draft_worker"}
    roles = scene.questions.flow.role
    decided = {f: m for f, m in decided.items() if f.owner is None or roles(f.owner) not in speculative}
    states = {b for c in scene.questions.parts.state_classes for b in scene.questions.program.engine.classes.mro(c)}
    answered = {id(found.condition.test) for found in scene.answers.skipped}
    decided = {f: [m for m in found if id(m.whole) not in answered] for f, found in decided.items()}
    decided = {f: found for f, found in decided.items() if found and f.owner not in states}
    seen: set[FunctionInfo] = set()
    for function in sorted(decided, key=lambda f: f.id):
        if function not in seen:
            group = _together(scene, function, decided)
            seen |= group
            yield _point(scene, sorted(group, key=lambda f: f.id), decided)


def _marks(scene: Scene, function: FunctionInfo) -> list[Mark]:
    """The marks of a function by which an off step goes another way than a plain step, or counts otherwise."""
    out = []
    for mark in scene.marks.of(function):
        if mark.source in (ALGORITHM, DRAFT):
            if mark.use == TEST and scene.differs(function, mark.whole):
                out.append(mark)
        elif (
            mark.source == WIDTH
            and not isinstance(mark.node, s.Name)
            and scene.in_off(mark)
            and not scene.is_fixed(mark)
        ):
            out.append(mark)
    return out


def _together(scene: Scene, function: FunctionInfo, decided: dict[FunctionInfo, list[Mark]]) -> set[FunctionInfo]:
    """A function and those that it gets a width from, or gives one to."""
    if function.owner is not None and not any(m.source == WIDTH for m in decided[function]):
        kind = scene.subject(function)
        return {
            f
            for f, marks in decided.items()
            if f.owner is function.owner and scene.subject(f) == kind and not any(m.source == WIDTH for m in marks)
        }
    found, todo = {function}, [function]
    while todo:
        current = todo.pop()
        near = {c for c, _, _ in scene.questions.steps.sites.out.get(current, ()) if c in scene.marks.returns}
        if current in scene.marks.returns:
            near |= {c for c, _ in scene.questions.steps.sites.callers.get(current, ())}
        for other in near & decided.keys() - found:
            found.add(other)
            todo.append(other)
    return found


def _point(scene: Scene, functions: list[FunctionInfo], decided: dict[FunctionInfo, list[Mark]]) -> Draft:
    marks = [m for f in functions for m in decided[f]]
    tests = [m for m in marks if m.source in (ALGORITHM, DRAFT)]
    widths = [m for m in marks if m.source == WIDTH]
    first = (tests or widths)[0]
    function = first.function
    kinds = Counter(filter(None, map(scene.subject, functions)))
    kind = kinds.most_common(1)[0][0] if kinds else "scheduler_policy" if scene.steers(function) else "uncategorised"
    kind = "kv_bookkeeping" if kind == "mem_pool_sizing" else kind
    asked = shown(first.whole)
    harmless = not widths and all(_leaves_out_a_check(scene, m) or not scene.steers(m.function) for m in tests)
    if harmless:
        level = NONE
        reason = f"{name(function)} line {first.line} goes the same way in every step of the process (`{asked}`)"
    elif widths:
        mark = widths[0]
        level = SOFT
        reason = (
            f"{name(mark.function)} line {mark.line} counts by `{_said(mark)}`, and an off step has one token a request"
        )
    else:
        level = SOFT
        reason = f"{name(function)} line {first.line} takes the way of a process that speculates (`{asked}`)"
    for_c = (level, reason) if widths and not scene.own_off else (NONE, "the step is one with speculation")
    facts = sorted({f"{c.name}.{n}" for m in marks for c, n in m.origins if c is not None})
    one = len({f.name for f in functions}) == 1
    if widths:
        what = f"{'counts' if one else 'count'} by {scene.listed(sorted({n for m in widths for _, n in m.origins}))}"
    else:
        what = f"{'asks' if one else 'ask'} whether the process speculates"
    return Draft(
        kind=kind,
        slug=slug("decides", *_slugs(functions, bool(widths))),
        title=f"{scene.listed([f.name for f in functions], 2)} {what}",
        producers=[
            Spot(m.function, m.line, f"asks {shown(m.whole)}" if m.use == TEST else f"takes {_said(m)}") for m in marks
        ]
        + _moved(scene, functions, marks)
        + scene.setters(marks),
        consumers=[Spot(f, line, w) for f, line, w in scene.above(functions)]
        + [Spot(m.function, m.line, "goes by it") for m in marks],
        binding_time="per step",
        verdicts=scene.verdicts((level, reason), (level, reason), for_c),
        why=[
            f"{said([m.function for m in tests], 'asks')} it of the process, not of the batch." if tests else "",
            f"{said([m.function for m in widths], 'counts')} with a width of speculation." if widths else "",
        ],
        refactor=["Let it ask whether this step speculates."],
        fields=facts,
        weight=3 if level == SOFT else 0,
    )


def _slugs(functions: list[FunctionInfo], wide: bool) -> list[str]:
    owner = functions[0].owner
    return [min(f.qualname for f in functions)] if wide or owner is None else [owner.name]


def _moved(scene: Scene, functions: list[FunctionInfo], marks: list[Mark]) -> list[Spot]:
    """Who moves on what these functions read under their conditions, and who calls that for the same reason."""
    q = scene.questions
    tests = {id(m.whole) for m in marks}
    found: list[Spot] = []
    for function in functions:
        for access in q.flow.by_function.get(function, []):
            chain = q.flow.guards(access)
            if access.is_write or not any(c.test is not None and id(c.test) in tests for c in chain):
                continue
            for written in q.flow.fields[access.cls, access.field].writes:
                if written.function is function or written.kind == "default" or not q.on.scheduler.runs(written):
                    continue
                found.append(Spot(written.function, written.line, f"moves {access.field} on"))
                found += [
                    Spot(c, call.line, f"calls {written.function.name}")
                    for c, call in q.steps.sites.callers.get(written.function, ())
                    if any(m.source == ALGORITHM for m in scene.marks.of(c))
                ]
    return found


def _said(mark: Mark) -> str:
    return sorted(n for _, n in mark.origins)[0]


def _leaves_out_a_check(scene: Scene, mark: Mark) -> bool:
    """Whether all that stands under a condition is a check that raises or asserts."""
    statement = mark.statement
    if not isinstance(statement, s.If):
        return isinstance(statement, s.Assert)
    inner = [*statement.body, *statement.orelse]
    return all(
        isinstance(x, (s.Assert, s.Raise))
        or (isinstance(x, s.If) and all(isinstance(y, (s.Raise, s.Assert)) for y in x.body) and not x.orelse)
        for x in inner
    )
