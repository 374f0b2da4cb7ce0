"""The draft's own work: its loop, its extend after verify, and the KV that only its forward passes write."""

from __future__ import annotations

from collections.abc import Iterator

from sgltrace.coupling.groups.draft import HARD, NONE, SOFT, Draft, Spot, interleaved
from sgltrace.coupling.groups.scene import Scene, name, said, shown, slug
from sgltrace.coupling.offstep.marks import TEST, VALUE, WIDTH, Mark
from sgltrace.coupling.offstep.questions import Questions
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo


def points(scene: Scene) -> Iterator[Draft]:
    """A loop that zero steps break, an extend of fixed rows, and slots without the draft's KV."""
    yield from _loop(scene)
    yield from _extend(scene)
    yield from _kv(scene)


def _loop(scene: Scene) -> Iterator[Draft]:
    """Loops over a number of draft steps whose lists are joined afterwards: without steps there is nothing to join."""
    q = scene.questions
    loops: list[tuple[FunctionInfo, int, s.Expr, list[tuple[FunctionInfo, int]]]] = []
    for function in scene.own:
        for statement in s.nested(function.body):
            if isinstance(statement, s.For) and (joined := _joined(scene, function, statement)):
                loops.append((function, statement.line, statement.iter, joined))
    if not loops:
        return
    start = q.program.phases.of[scene.path]
    asks = [
        m
        for f in sorted(start["process start"] | start["graph capture"], key=lambda f: f.id)
        for m in scene.marks.of(f)
        if m.source == WIDTH and m.use == TEST and isinstance(m.whole, s.Cmp) and _is_one(m.whole)
    ]
    function, line, bound, joined = loops[0]
    saved = scene.own_off
    reason = (
        f"{name(function)} line {line} loops over `{shown(bound)}`, and what it appends is joined afterwards: with no "
        "steps there is nothing to join"
    )
    for_c = (SOFT, "the release's own step without drafts does not come to the loop, within its gates")
    yield Draft(
        kind="config_gate",
        slug=slug("loop"),
        title=f"{function.name} joins what its steps gave, and takes one step at least",
        producers=[Spot(m.function, m.line, f"asks {shown(m.whole)}") for m in asks]
        + [Spot(f, at, f"loops over {shown(e)}") for f, at, e, _ in loops],
        consumers=[Spot(f, at, f"loops over {shown(e)}") for f, at, e, _ in loops]
        + [Spot(f, at, "joins the lists") for *_, found in loops for f, at in found],
        binding_time="process start",
        verdicts={(scene.path, "C"): for_c if saved else (HARD, reason)},
        why=[
            f"{said((f for f, *_ in loops), 'loops')} over a number of steps.",
            f"{said((f for *_, found in loops for f, _ in found), 'joins')} what the loop appended.",
        ],
        refactor=["Skip the draft where there are no steps, and build nothing for it."],
        fields=[],
        condition="the off step takes no draft steps",
        weight=5,
    )


def _is_one(test: s.Cmp) -> bool:
    return any(isinstance(right, s.Const) and right.value in (0, 1) for right in test.rights)


def _joined(scene: Scene, function: FunctionInfo, loop: s.For) -> list[tuple[FunctionInfo, int]]:
    """Where the lists that a loop fills are handed to, behind it."""
    marks = [m for m in scene.marks.of(function) if m.statement is loop and m.source == WIDTH]
    if not marks:
        return []
    filled = {
        node.func.value.id
        for statement in s.nested(loop.body)
        for node in _calls(statement)
        if isinstance(node.func, s.Attr) and node.func.attr == "append" and isinstance(node.func.value, s.Name)
    }
    end = max([loop.line, *(getattr(x, "line", 0) for x in s.nested(loop.body))])
    out = []
    for statement in s.nested(function.body):
        for node in _calls(statement):
            if node.line > end and any(isinstance(a.value, s.Name) and a.value.id in filled for a in node.args):
                out.append((function, node.line))
                out += [(c, c.line) for c, _ in scene.questions.steps.sites.called(node, function)]
        given = statement.value if isinstance(statement, s.Return) and statement.line > end else None
        if given is not None and any(isinstance(p, s.Name) and p.id in filled for p in s.descend(given)):
            out += [(c, call.line) for c, call in scene.questions.steps.sites.callers.get(function, ())]
    return out


def _calls(statement: s.Stmt) -> Iterator[s.Call]:
    from sgltrace.index.facts.guards import expressions

    for root in expressions(statement):
        for node in s.descend(root):
            if isinstance(node, s.Call):
                yield node


def _extends(scene: Scene) -> list[FunctionInfo]:
    """Speculation's own functions that run the draft over what verify accepted: after it, in the same step."""
    q = scene.questions
    verify = max((q.order.at(f, f.line) for f in scene.own if scene.is_verify_root(f)), default=None)
    if verify is None:
        return []
    return [f for f in scene.own if verify < q.order.at(f, f.line) < 1 << 60 and not scene.verifies(f)]


def _extend(scene: Scene) -> Iterator[Draft]:
    """The draft's extend by a fixed number of rows for each request, or by what verify accepted."""
    q = scene.questions
    functions = _extends(scene)
    marks = [m for f in functions for m in scene.marks.of(f) if m.source == WIDTH and scene.marks.alive(q.on.worker, m)]
    fixed = [m for m in marks if _adds(m)]
    reads = _verified(scene, functions)
    if not functions or not (marks or reads):
        return
    graphs = [m for m in marks if scene.subject(m.function) == "cuda_graph"]
    if fixed:
        first = fixed[0]
        reason = (
            f"{name(first.function)} line {first.line} takes `{shown(first.whole)}` of every request, and an off step "
            "has one row"
        )
        level = (HARD, reason)
    else:
        level = (NONE, f"{said(functions, 'takes')} lengths from what verify accepted")
    yield Draft(
        kind="draft_state",
        slug=slug("extend"),
        title="The draft's extend takes a fixed number of rows of every request"
        if fixed
        else "The draft's extend takes what verify accepted",
        producers=[Spot(m.function, m.line, f"takes {shown(m.whole)}") for m in (*fixed, *marks)]
        + [Spot(a.function, a.line, f"reads {a.field}") for a in reads],
        consumers=interleaved(
            [Spot(m.function, m.line, f"sizes by {shown(m.node)}") for m in (*graphs, *marks)],
            [Spot(a.function, a.line, f"reads {a.field}") for a in reads],
        ),
        binding_time="per step",
        verdicts=scene.verdicts(level, level, (NONE, "verify gives it what it takes")),
        why=[
            f"{said((m.function for m in marks), 'sizes')} by a width of speculation." if marks else "",
            f"{said((a.function for a in reads), 'reads')} {scene.listed(sorted({f'`{a.field}`' for a in reads}))}."
            if reads
            else "",
        ],
        refactor=["Take one row of a request that did not speculate, and extend its length by one."],
        fields=sorted({f"{a.cls.name}.{a.field}" for a in reads}),
        weight=5,
    )


def _adds(mark: Mark) -> bool:
    """Whether a width is added to something, or is a stride: not a product that makes a size."""
    return mark.use == VALUE and any(
        isinstance(part, s.Bin)
        and part.op == "+"
        and mark.node in (part.left, part.right)
        and not isinstance(part.right, s.Const)
        for part in s.descend(mark.whole)
    )


def _verified(scene: Scene, functions: list[FunctionInfo]) -> list[Access]:
    q = scene.questions
    return [
        a
        for f in functions
        for a in q.flow.by_function.get(f, [])
        if not a.is_write
        and a.cls in q.parts.state_classes
        and any(scene.verifies(w.function) for w in q.flow.fields[a.cls, a.field].writes)
    ]


def _kv(scene: Scene) -> Iterator[Draft]:
    """Slots that an off step fills hold the target's KV alone."""
    q = scene.questions
    target = q.parts.target
    if target is None:
        return
    runs = {
        c
        for c, _, _ in q.steps.sites.out.get(target, ())
        if c.owner is not None and q.flow.role(c.owner) == "model_runner"
    }
    mine = scene.own
    passes = [f for f in mine if any(c in runs or _is_model(q, c) for c, _, _ in q.steps.sites.out.get(f, ()))]
    after = [f for f in _extends(scene) if f in passes]
    before = [f for f in passes if f not in after and not scene.verifies(f)]
    loops = [f for f in mine if scene.subject(f) == "attn_metadata" and f.owner in scene.of_the_draft]
    if not after:
        return
    reason = (
        f"only {said(after, 'runs')} the draft over accepted tokens: an off step leaves their slots without KV of the "
        "draft, and acceptance falls"
    )
    base = {
        "binding_time": "per step",
        "verdicts": scene.verdicts(
            (SOFT, reason),
            (SOFT, reason),
            (SOFT, reason)
            if not scene.own_off
            else (SOFT, "where its own step without drafts skips the draft's extend, too"),
        ),
        "refactor": ["Run the draft's extend over the off step's tokens, too, or before the next draft."],
        "fields": [],
        "weight": 3,
    }
    others = sorted(
        (
            f
            for f in q.program.phases.of[scene.path]["every step"]
            if f in q.parts.own and f not in mine and f in _makers(scene, runs)
        ),
        key=lambda f: f.id,
    )
    yield Draft(
        kind="draft_kv",
        slug=slug("slots"),
        title="Tokens of an off step have no KV in the draft's pool",
        producers=[Spot(f, f.line, "runs the draft over accepted tokens") for f in (*after, *others)],
        consumers=[Spot(f, f.line, "drafts over all slots of a request") for f in before]
        + [Spot(f, f.line, "lays out the draft's attention") for f in loops],
        why=[
            f"In a decode step only {said(after, 'runs')} the draft over accepted tokens.",
            f"{said(before, 'drafts')} over them." if before else "",
        ],
        **base,  # type: ignore[arg-type]
    )
    caches = [f for f in scene.shared if scene.subject(f) == "prefix_cache" and _takes_slots(scene, f)]
    if caches:
        yield Draft(
            kind="prefix_cache",
            slug=slug("slots"),
            title="The prefix cache keeps slots without the draft's KV",
            producers=[Spot(f, f.line, "runs the draft over accepted tokens") for f in (*after, *others)]
            + [Spot(f, f.line, "keeps a request's slots") for f in caches],
            consumers=[Spot(f, f.line, "keeps a request's slots") for f in caches]
            + [Spot(f, f.line, "runs the draft over what was not cached") for f in (*others, *before)],
            why=[f"{said(caches, 'keeps')} the slots of finished requests, whichever step filled them."],
            **base,  # type: ignore[arg-type]
        )


def _is_model(q: Questions, function: FunctionInfo) -> bool:
    """Whether a function is a model's forward pass."""
    return function.name == "forward" and function.owner is not None and function not in q.parts.own


def _makers(scene: Scene, runs: set[FunctionInfo]) -> set[FunctionInfo]:
    return {c for r in runs for c, _ in scene.questions.steps.sites.callers.get(r, ())}


def _takes_slots(scene: Scene, function: FunctionInfo) -> bool:
    """Whether a function reads a request's table of slots, or keeps what was read from it."""
    q = scene.questions
    return any(q.flow.role(a.cls) == "request_pool" for a in q.flow.by_function.get(function, []))
