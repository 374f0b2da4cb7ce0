"""What kind of state a field is: told from how it is written and who uses it, not from its name."""

from __future__ import annotations

from sgltrace.coupling.groups.scene import Scene
from sgltrace.coupling.groups.waits import waits_for
from sgltrace.index.facts import syntax as s
from sgltrace.index.fields import Access, FieldUses

ADDS = frozenset({"add_", "sub_", "__iadd__"})
APPENDS = frozenset({"append", "extend", "insert"})


def kind_of(scene: Scene, uses: FieldUses) -> str:
    """The kind of a coupling through a field."""
    q = scene.questions
    if any(waits_for(r) for r in uses.reads):
        return "stream_order"
    if uses.cls in q.parts.state_classes:
        return "draft_state"
    writes = [w for w in uses.writes if w.kind != "default" and (q.plain.runs(w) or q.on.runs(w))]
    role = uses.role
    if role == "sampling_info":
        return "sampling"
    if role in ("future_map", "future_indices"):
        return "future_map"
    if role == "request":
        return _of_request(scene, uses, writes)
    if role == "scheduler_batch":
        if any(_counts(w) for w in writes):
            return "seq_lens_semantics"
        if any(_allocated(scene, w) for w in writes):
            return "kv_alloc"
        if any(_is_mode(scene, w) for w in writes):
            return "forward_mode"
        return "input_ids"
    if role in ("request_pool", "kv_allocator"):
        return "kv_alloc"
    if role in ("graph_runner", "graph_buffers"):
        return "cuda_graph"
    return "step_state"


def _of_request(scene: Scene, uses: FieldUses, writes: list[Access]) -> str:
    q = scene.questions
    if any(_appends(w) for w in writes):
        return "logprob" if any(_from(scene, w, "logits_output") for w in writes if _appends(w)) else "result_format"
    if not any(_counts(w) for w in writes):
        return "request_state"
    readers = {r.function for r in uses.reads if q.attached.runs(r) or q.on.runs(r)}
    asserted = any(isinstance(r.statement, s.Assert) for r in uses.reads)
    return "kv_bookkeeping" if asserted or any(map(scene.handles_slots, readers)) else "metrics"


def _counts(access: Access) -> bool:
    """Whether a write moves a number on: ``x += n``, ``x = x + n``, ``x.add_(n)``."""
    if access.kind == "augment":
        return True
    node = access.node
    if access.kind == "in-place" and isinstance(node, s.Call) and isinstance(node.func, s.Attr):
        return node.func.attr in ADDS
    value = access.value
    return (
        isinstance(value, s.Bin)
        and value.op in "+-"
        and any(isinstance(part, s.Attr) and part.attr == access.field for part in s.descend(value))
    )


def _appends(access: Access) -> bool:
    node = access.node
    return isinstance(node, s.Call) and isinstance(node.func, s.Attr) and node.func.attr in APPENDS


def _from(scene: Scene, access: Access, role: str) -> bool:
    return any(scene.questions.flow.role(a.cls) == role for a in scene.questions.flow.origins(access))


def _allocated(scene: Scene, access: Access) -> bool:
    value = access.value
    return isinstance(value, s.Call) and scene.allocates(
        callee for callee, _ in scene.questions.steps.sites.called(value, access.function)
    )


def _is_mode(scene: Scene, access: Access) -> bool:
    mode = scene.questions.parts.mode
    return (
        access.value is not None
        and mode is not None
        and mode in scene.questions.program.classes_of(access.value, access.function)
    )
