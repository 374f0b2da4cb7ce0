"""The server's arguments: what they refuse, choose or rewrite for speculation, and what a running server may change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from sgltrace.coupling.groups.draft import NONE, SOFT, Draft, Spot
from sgltrace.coupling.groups.scene import Scene, names, said, shown, slug
from sgltrace.coupling.offstep.bodies import expressions_in
from sgltrace.coupling.offstep.marks import ALGORITHM, WIDTH, Bind, Mark
from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """The widths, the features that speculation switches, and the requests that change arguments."""
    yield from _widths(scene)
    yield from _switched(scene)
    yield from _changed(scene)


def _handlers(scene: Scene) -> list[FunctionInfo]:
    """The functions that work on the arguments when a server starts."""
    q = scene.questions
    return sorted(
        (f for f in q.program.functions.values() if scene.subject(f) == "config_gate" and not scene.in_step(f)),
        key=lambda f: f.id,
    )


def _refusals(scene: Scene, functions: Iterable[FunctionInfo], source: str) -> list[Mark]:
    """Conditions on speculation under which arguments are refused."""
    out = []
    for function in functions:
        for mark in scene.marks.of(function):
            statement = mark.statement
            raises = isinstance(statement, s.Assert) or (
                isinstance(statement, s.If) and any(isinstance(x, s.Raise) for x in statement.body)
            )
            if mark.source == source and raises:
                out.append(mark)
    return out


def _widths(scene: Scene) -> Iterator[Draft]:
    """Who checks and chooses the widths, and who counts on what they then are."""
    q = scene.questions
    handlers = _handlers(scene)
    refused = _refusals(scene, handlers, WIDTH)
    chosen = [
        b
        for (cls, name_), binds in scene.marks.bound.items()
        for b in binds
        if name_ in q.steps.words.spec.widths and scene.is_arguments(cls) and b.function in handlers
    ]
    if not refused and not chosen:
        return
    overlap = [m for m in refused if _asks_overlap(scene, m)]
    users = [m for f in scene.own for m in scene.marks.of(f) if m.source == WIDTH]
    kernels = [(f, f.line) for f in q.on.worker.readings if f.is_kernel and f in q.parts.own]
    start = q.program.phases.of[scene.path]
    builders = [
        m
        for f in sorted(start["process start"], key=lambda f: f.id)
        if f.owner in scene.of_the_draft and not scene.in_step(f)
        for m in scene.marks.of(f)
        if m.source == WIDTH
    ]
    gated = bool(overlap) and scene.path == "v2"
    reason = (
        f"{said((m.function for m in overlap), 'refuses')} `{shown(overlap[0].whole)}`"
        if gated
        else "no width is refused for the path; the step takes what the arguments say"
    )
    level = (SOFT if gated else NONE, reason)
    yield Draft(
        kind="config_gate",
        slug=slug("widths"),
        title="The arguments check and choose the widths of speculation",
        producers=[Spot(m.function, m.line, f"refuses where {shown(m.whole)}") for m in (*overlap, *refused)]
        + [Spot(b.function, b.line, f"chooses {shown(b.value)}") for b in chosen],
        consumers=[Spot(f, line, "counts by a width") for f, line in kernels]
        + [Spot(m.function, m.line, f"takes {shown(m.node)}") for m in (*builders, *users)],
        binding_time="process start",
        verdicts=scene.verdicts(level, level, level),
        why=[
            f"{said((m.function for m in refused), 'refuses')} some widths." if refused else "",
            f"{said((b.function for b in chosen), 'chooses')} others." if chosen else "",
        ],
        refactor=["Keep to the widths that the arguments allow, or lift the refusal for a step without drafts."],
        fields=sorted({f"{c.name}.{n}" for m in refused for c, n in m.origins if c is not None}),
        weight=2,
    )


def _asks_overlap(scene: Scene, mark: Mark) -> bool:
    """Whether a refusal stands where overlap is asked for, or is turned on."""
    words = scene.questions.steps.words.spec
    chain = scene.questions.program.guards(mark.function).at(mark.statement)
    tests = [mark.whole, *(c.test for c in chain[-2:] if c.test is not None)]
    beside = [b for b in _blocks(mark.function.body) if any(x is mark.statement for x in b)]
    set_there = [t for b in beside for x in b if isinstance(x, s.Assign) for t in x.targets]
    return any(
        isinstance(part, s.Attr) and part.attr in words.overlap_fields
        for test in (*tests, *set_there)
        for part in s.descend(test)
    )


def _blocks(body: list[s.Stmt]) -> Iterator[list[s.Stmt]]:
    yield body
    for statement in body:
        for inner in s.blocks(statement):
            yield from _blocks(inner)


def _switched(scene: Scene) -> Iterator[Draft]:
    """Arguments that are given another value where a server speculates: one point by the kind of who reads them."""
    q = scene.questions
    handlers = set(_handlers(scene))
    groups: dict[str, list[tuple[str, Bind, list[Spot]]]] = defaultdict(list)
    for (cls, name_), binds in sorted(scene.marks.bound.items(), key=lambda item: (item[0][0].id, item[0][1])):
        mine = [b for b in binds if b.function in handlers and any(m.source == ALGORITHM for m in b.under)]
        if not mine or not scene.is_arguments(cls) or name_ in q.steps.words.spec.widths:
            continue
        reads = list(_readers(scene, name_))
        for kind in sorted({scene.subject(x.function) for x in reads}) or ["config_gate"]:
            here = [x for x in reads if scene.subject(x.function) == kind]
            groups[kind] += [(name_, b, here) for b in mine]
    merged: list[tuple[str, Bind, list[Spot]]] = [entry for found in groups.values() for entry in found]
    if not merged:
        return
    fields = sorted({n for n, _, _ in merged})
    setters = sorted({b.function for _, b, _ in merged}, key=lambda f: f.id)
    stepwise = [x for _, _, spots in merged for x in spots if any(step.reaches(x.function) for step in scene.off)]
    reason = f"{said(setters, 'sets')} {scene.listed(f'`{f}`' for f in fields)} once, for on and off steps alike"
    yield Draft(
        kind="config_gate",
        slug=slug("switched"),
        title=f"A server that speculates starts with other values of {scene.listed(fields)}",
        producers=[Spot(b.function, b.line, f"sets {n}: {shown(b.value)}") for n, b, _ in merged]
        + [Spot(f, line, "hands it on") for n, _, _ in merged for f, line in _copies(scene, n)],
        consumers=stepwise + [x for _, _, spots in merged for x in spots],
        binding_time="process start",
        verdicts=scene.verdicts((NONE, reason), (NONE, reason), (NONE, reason)),
        why=[f"{said(setters, 'sets')} {scene.listed(f'`{f}`' for f in fields)} where the process has an algorithm."],
        refactor=["Nothing: the value holds for every step of the process."],
        fields=[f"{scene.arguments}.{f}" for f in fields],
        weight=0,
    )


def _copies(scene: Scene, name_: str) -> Iterator[tuple[FunctionInfo, int]]:
    """Who keeps an argument in a field of an object."""
    for access in scene.held.get(name_, ()):
        yield access.function, access.line


def _readers(scene: Scene, name_: str) -> Iterator[Spot]:
    q = scene.questions
    steps = q.program.phases.of["any"]["every step"]
    for uses in q.flow.of_role("server_args", name_):
        for access in uses.reads:
            if access.function in steps:
                yield Spot(access.function, access.line, f"reads {name_}")
    for held in scene.held.get(name_, ()):
        for access in q.flow.fields[held.cls, held.field].reads:
            if access.function in steps:
                yield Spot(access.function, access.line, f"reads {held.field}, which is {name_}")


def _changed(scene: Scene) -> Iterator[Draft]:
    """Requests that change the server's arguments: by the names of arguments that they allow."""
    q = scene.questions
    words = q.steps.words.spec
    taken = q.program.phases.of[scene.path]["request admission"] | q.program.phases.of[scene.path]["every step"]
    found: list[tuple[FunctionInfo, int, str]] = []
    for function in sorted(taken, key=lambda f: f.id):
        if function.module.is_outline or not _sets_by_name(function):
            continue
        found += [(function, line, n) for line, n in scene.config_names(function)]
    if not found:
        return
    allowed = sorted({n for _, _, n in found})
    widths = sorted(set(allowed) & words.widths)
    users = [
        m
        for f in (*scene.shared, *sorted(q.on.worker.readings, key=lambda f: f.id))
        for m in scene.marks.of(f)
        if m.source == WIDTH
    ]
    if widths:
        reason = (
            f"{names(f for f, _, _ in found)} may set {scene.listed(f'`{w}`' for w in widths)} while the server runs"
        )
    else:
        listed = scene.listed(f"`{n}`" for n in allowed)
        reason = f"{said((f for f, _, _ in found), 'lets')} a request set {listed}, and no width"
    yield Draft(
        kind="control_surface",
        slug=slug("requests"),
        title=f"A request may set {scene.listed(allowed)}" + ("" if widths else ", and no width of speculation"),
        producers=[Spot(f, line, f"names {n}") for f, line, n in found],
        consumers=[Spot(m.function, m.line, f"takes {shown(m.node)}") for m in users],
        binding_time="request admission",
        verdicts=scene.verdicts((SOFT, reason), (SOFT, reason), (SOFT, reason)),
        why=[f"{said((f for f, _, _ in found), 'names')} {scene.listed(f'`{n}`' for n in allowed)}."],
        refactor=["Give a request of its own to the switch, and let it reach the worker."],
        fields=[f"{scene.arguments}.{n}" for n in allowed],
        condition="the off step is asked for from outside",
        weight=1,
    )


def _sets_by_name(function: FunctionInfo) -> bool:
    node = function.node
    return (
        isinstance(node, s.Func)
        and b"setattr" in bytes(node.body)
        and any(
            isinstance(part, s.Call) and isinstance(part.func, s.Name) and part.func.id == "setattr"
            for part in expressions_in(function.body)
        )
    )
