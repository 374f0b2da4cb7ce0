"""What a process that speculates fixes when it starts: fields of lasting objects, and how an off step uses them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from sgltrace.coupling.groups.draft import HARD, NONE, SOFT, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, name, names, said, shown, slug
from sgltrace.coupling.offstep.marks import CAPTURED, SIZE, TEST, WIDTH, Bind, Field, Mark
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo


@dataclass(eq=False)
class Fixed:
    """One field: who gives it a value, and who uses it in which step."""

    key: Field
    binds: list[Bind]
    sized: list[Mark] = field(default_factory=list)
    """In an off step, as a size."""
    asked: list[Spot] = field(default_factory=list)
    """In an off step, otherwise."""
    steers: list[Spot] = field(default_factory=list)
    """Of those, conditions that send an off step another way than a plain step, and that are not the object's own."""
    on: list[Spot] = field(default_factory=list)
    """In a step with speculation only."""
    start: list[Spot] = field(default_factory=list)
    """When the process starts, or captures."""
    in_verify: bool = False

    @property
    def name(self) -> str:
        """``Class.field``."""
        return f"{self.key[0].name}.{self.key[1]}"


def points(scene: Scene) -> Iterator[Draft]:
    """One point for the fields of a class, those that an off step is sized by apart."""
    groups: dict[tuple[str, str, str], list[Fixed]] = defaultdict(list)
    for found in _fields(scene):
        kind = scene.subject(found.binds[0].function, found.key[0])
        if found.sized:
            groups[kind, "width", found.key[0].name].append(found)
        elif kind:
            drafts = found.key[0] in scene.of_the_draft
            groups[kind, "draft" if drafts else "process", ""].append(found)
    for (kind, how, cls), members in sorted(groups.items()):
        if kind:
            yield _point(scene, kind, how, cls or scene.listed(m.key[0].name for m in members), members)


def _fields(scene: Scene) -> Iterator[Fixed]:
    q, marks = scene.questions, scene.questions.steps.marks
    here = q.program.phases.of[scene.path]
    at_start = here["process start"] | here["graph capture"]
    carried = {*q.parts.batches, *q.parts.state_classes, *q.parts.results}
    for key in sorted(marks.bound, key=lambda key: (key[0].id, key[1])):
        if key[0] in carried or q.flow.role(key[0]) in ("request", "scheduler_batch", "sampling_info", "server_args"):
            continue
        binds = [
            b
            for b in marks.bound[key]
            if b.function in at_start and (marks.at_start(b.function) or not scene.in_step(b.function))
        ]
        if binds and not scene.is_other(key[0]):
            found = _uses(scene, Fixed(key, binds))
            yield found


def _uses(scene: Scene, found: Fixed) -> Fixed:
    q, marks = scene.questions, scene.questions.steps.marks
    seen: set[tuple[FunctionInfo, int]] = set()
    drafts = found.key[0] in scene.of_the_draft
    for mark in scene.by_origin(found.key):
        if not drafts and mark.function.owner in scene.of_the_draft:
            continue
        if (
            mark.use == SIZE
            and not drafts
            and not _counts_steps(scene, mark)
            and marks.alive(q.detached.worker, mark)
            and not _for_the_draft(scene, mark)
        ):
            found.sized.append(mark)
            found.in_verify |= marks.alive(q.on.worker, mark)
            seen.add((mark.function, mark.line))
        elif mark.use != SIZE and mark.source == CAPTURED and scene.in_off(mark):
            found.asked.append(Spot(mark.function, mark.line, f"goes by it: {shown(mark.whole)}"))
    start = q.program.phases.of[scene.path]
    made = found.key[1] not in marks.widths and all(
        isinstance(b.value, s.Call) and b.source == WIDTH and not b.under for b in found.binds
    )
    if made and scene.subject(found.binds[0].function, found.key[0]) != "cuda_graph":
        return found  # an object that is made with a width: who uses it depends on nothing more
    for function, node, use, whole, statement in marks.uses(found.key):
        line = s.line_of(node) or s.line_of(statement)
        if not drafts and function.owner in scene.of_the_draft:
            continue
        if (function, line) in seen or any(b.function is function for b in found.binds):
            continue
        verb = "decides by" if use == TEST else "sizes by" if use == SIZE else "takes"
        spot = Spot(function, line, f"{verb} {shown(whole)}")
        if scene.runs_off(function, node):
            found.asked.append(spot)
            if use == TEST and function.owner is not found.key[0] and scene.differs(function, whole):
                found.steers.append(spot)
        elif scene.runs_on(function, node):
            found.on.append(spot)
        elif function in start["process start"] or function in start["graph capture"]:
            found.start.append(spot)
        elif function not in q.parts.own and (
            function in start["every step"] or function.id not in q.program.functions
        ):
            found.asked.append(spot)  # the runs do not follow it; a step, or a model that is not followed, calls it
    return found


def _captures(scene: Scene, members: list[Fixed]) -> list[Spot]:
    """Where graphs are captured with it."""
    capture = scene.questions.program.phases.of[scene.path]["graph capture"]
    found = [
        m for member in members for m in scene.by_origin(member.key) if m.function in capture and m.source == WIDTH
    ]
    owners = {m.key[0] for m in members}
    own = sorted((f for f in capture if f.owner in owners), key=lambda f: f.id)
    found += [m for f in own for m in scene.marks.of(f) if m.source == WIDTH]
    return [Spot(m.function, m.line, f"is captured with {shown(m.node)}") for m in found]


def _counts_steps(scene: Scene, mark: Mark) -> bool:
    """Whether an attention backend loops over a width: one that lays out each step of the draft."""
    name_ = getattr(getattr(mark.whole, "func", None), "id", "")
    return name_ == "range" and scene.subject(mark.function) == "attn_metadata"


def _for_the_draft(scene: Scene, mark: Mark) -> bool:
    """Whether a place stands where a draft state was asked for, under whatever name it was handed on."""
    fields = scene.questions.parts.state_fields
    chain = scene.questions.program.guards(mark.function).at(mark.statement)
    return any(
        getattr(part, "id", getattr(part, "attr", None)) in fields
        for condition in chain
        if condition.test is not None
        for part in s.descend(condition.test)
    )


def _point(scene: Scene, kind: str, how: str, cls: str, members: list[Fixed]) -> Draft:
    sized = [m for member in members for m in member.sized]
    asked = [x for m in members for x in m.asked]
    on = [x for m in members for x in m.on]
    binding = [Spot(b.function, b.line, f"chooses {m.key[1]}") for m in members for b in m.binds]
    start = [x for m in members for x in m.start] + (_captures(scene, members) if kind == "cuda_graph" else [])
    start = [*start, *(binding if not sized else [])]
    fields = [m.name for m in members]
    listed = scene.listed(m.key[1] for m in members)
    setters = [b.function for m in members for b in m.binds]
    binds = list({b.function: b for m in members for b in m.binds}.values())
    given = [Spot(f, at, "hands it on") for b in binds for f, at in scene.marks.givers(b.function, ())]
    wide = any(b.source == WIDTH for m in members for b in m.binds)
    nothing = (NONE, "only a decode of the target comes there")
    if sized:
        first = sized[0]
        key = next(m for m in members if m.sized)
        reason = (
            f"{name(first.function)} line {first.line} sizes by `{key.name}`, which is fixed when the process starts: "
            "an off step has one token for each request"
        )
        narrow = any(m.in_verify for m in members) and not scene.own_off
        hard = (HARD, f"a verify of width one meets {name(first.function)} line {first.line}, too")
        verdicts = scene.verdicts((HARD, reason), (HARD, reason), hard if narrow else nothing)
        title = f"{listed} of {cls} holds a speculative width that an off step is sized by"
    elif asked:
        first_spot = asked[0]
        where = f"{name(first_spot.function)} line {first_spot.line}"
        steered = [x for m in members for x in m.steers]
        first_spot = (steered or asked)[0]
        where = f"{name(first_spot.function)} line {first_spot.line}"
        level = SOFT if steered else NONE
        reason = (
            f"{where} {first_spot.what.replace('`', '')}, as in a step with speculation"
            if steered
            else f"{where} goes the same way in every step of the process, and holds nothing of one step"
        )
        verdicts = scene.verdicts((level, reason), (level, reason), (NONE, "it is a step with speculation"))
        title = f"{listed} of {cls} is fixed for a process that speculates"
    elif not on:
        reason = f"{said((x.function for x in start), 'uses')} it when the process starts, and no decode step does"
        verdicts = scene.verdicts((NONE, reason), (NONE, reason), (NONE, reason))
        title = f"{listed} of {cls} is chosen for a process that speculates"
    else:
        first_spot = on[0]
        reason = f"an off step does not come to {name(first_spot.function)}"
        narrow = wide and how == "draft" and not scene.own_off
        built = (SOFT, f"{name(first_spot.function)} line {first_spot.line} takes the width that it was built for")
        verdicts = scene.verdicts(
            (NONE, reason), (NONE, reason), built if narrow else (NONE, "it is a step with speculation")
        )
        title = f"{listed} of {cls} is built for the steps of speculation"
    uses = [Spot(m.function, m.line, f"sizes by it: {shown(m.whole)}") for m in sized]
    users = [x.function for x in uses] or [x.function for x in asked] or [x.function for x in on]
    why = [f"{said(setters, 'sets')} {listed} from what the process speculates with."]
    if users:
        why.append(f"{said(users, 'uses')} {'it' if len(members) == 1 else 'them'} in each step.")
    return Draft(
        kind=kind or "bound_width",
        slug=slug("fixed", how, cls if sized else ""),
        title=title,
        producers=interleaved(
            [Spot(b.function, b.line, f"sets {m.key[1]}: {shown(b.value)}") for m in members for b in m.binds], given
        )
        + start,
        consumers=(
            uses
            + asked
            + on
            + (start + given if not sized else [])
            + [Spot(f, line, w) for f, line, w in scene.above([m.function for m in sized])]
        )
        or start,
        binding_time="graph capture" if kind == "cuda_graph" else "process start",
        verdicts=verdicts,
        why=why,
        refactor=[f"Take the width from the step: 1 where it does not speculate, {listed} where it does."]
        if sized
        else [f"See in {names(users)} whether what {listed} says holds for a step without speculation."],
        fields=fields,
        weight=9 if sized else 3 if asked else 1,
    )
