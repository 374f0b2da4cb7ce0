"""The decode step: its calls from the event loop to the worker and below, the workers, the gates before an off step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sgltrace.insight.changes.model import Change
from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.sides import Side, listed, short
from sgltrace.model import CallEdge, OffStep, Place, Worker

BELOW_LOOP, BELOW_WORKER = 2, 3
"""How deep the chain goes below an event loop and below a path's worker."""
STEP = "every step"


def compare_steps(before: Side, after: Side, names: Names) -> list[Change]:
    """The changes of paths, of the chain of calls, and of gates."""
    out = [_path(path, before, after) for path in before.paths if path not in after.paths]
    out += [_path(path, before, after) for path in after.paths if path not in before.paths]
    for path in before.paths:
        if path in after.paths:
            out += _calls(path, before, after, names)
    out += _workers(before, after, names)
    return out + _off_steps(before, after, names)


def _path(path: str, before: Side, after: Side) -> Change:
    gone = path not in after.paths
    side = before if gone else after
    other = after if gone else before
    entry = side.index.entry_points[path]
    assert entry is not None
    unknown = other.index.unknown_paths.get(path)
    if unknown is not None:
        why = f"Whether the other source has {path} is unknown: {unknown}."
    elif gone:
        why = f"No configuration gives a worker of {path} any more. What hung on it alone is gone, not repaired."
    else:
        why = f"There was no worker of {path} before."
    return Change(
        of="call",
        change="gone" if gone else "new",
        title=f"The path {path}",
        functions=[entry],
        before=entry if gone else None,
        after=None if gone else entry,
        why=why,
        paths=[path],
        progress=False,
        weight=200,
    )


# --- the chain ---


def chain(side: Side, path: str) -> set[str]:
    """The functions of a path's decode step near the event loop and below the worker."""
    entry = side.index.entry_points[path]
    assert entry is not None
    step = {f.id for f in side.index.functions if path in f.paths and (STEP in f.phase or not f.phase)}
    above = _above(side, entry, step)
    loops = [loop for loop in side.index.event_loops if loop in above]
    return above | _below(side, loops, step, BELOW_LOOP) | _below(side, [entry], step, BELOW_WORKER)


def _above(side: Side, entry: str, step: set[str]) -> set[str]:
    found, queue = {entry}, deque([entry])
    while queue:
        for edge in side.graph.callers(queue.popleft()):
            if edge.decode and edge.caller in step and edge.caller not in found:
                found.add(edge.caller)
                queue.append(edge.caller)
    return found


def _below(side: Side, roots: Iterable[str], step: set[str], depth: int) -> set[str]:
    found = set(roots)
    ring = found
    for _ in range(depth):
        edges = (edge for name in sorted(ring) for edge in side.graph.calls(name))
        ring = {e.callee for e in edges if e.callee in step and e.decode and not e.virtual} - found
        ring = {name for name in ring if side.graph.calls(name)}
        found = found | ring
    return found


def _calls(path: str, before: Side, after: Side, names: Names) -> list[Change]:
    old, new = chain(before, path), chain(after, path)
    out: list[Change] = []
    entry = before.index.entry_points[path]
    if entry is not None and names.function(entry) != after.index.entry_points[path]:
        now = after.index.entry_points[path] or ""
        out.append(
            Change(of="call", change="changed", title=f"The worker of {path}", functions=[now], before=entry, after=now,
                   why=f"{short(now)} is what the scheduler calls each step.", paths=[path], weight=60)
        )  # fmt: skip
    left = _edges(before, old)
    right = _edges(after, new)
    mapped = {(names.function(a) or a, names.function(b) or b): e for (a, b), e in left.items()}
    back = {(names.function(a) or a) for a in old}
    for (caller, callee), edge in sorted(right.items()):
        if (caller, callee) not in mapped and caller in back:
            fresh = callee not in names.functions.values()
            out.append(_call("new", path, caller, callee, edge, fresh))
    for (caller, callee), edge in sorted(mapped.items()):
        if (caller, callee) not in right and caller in new:
            out.append(_call("gone", path, caller, callee, edge, callee not in after.functions))
        elif (caller, callee) in right and callee in _above(after, after.index.entry_points[path] or "", new):
            out += _guards(path, caller, callee, edge, right[caller, callee], names)
    for one in sorted(old):
        other = names.function(one)
        if other is not None and other != one and other in new:
            out.append(
                Change(of="call", change="moved", title=f"{short(one)} is {short(other)}", functions=[other],
                       before=one, after=other, why="Its body is the same, or most of it.", paths=[path], weight=1)
            )  # fmt: skip
    return out


def _edges(side: Side, inside: set[str]) -> dict[tuple[str, str], CallEdge]:
    found: dict[tuple[str, str], CallEdge] = {}
    for caller in sorted(inside):
        for edge in side.graph.calls(caller):
            if edge.callee in inside and edge.decode:
                found.setdefault((caller, edge.callee), edge)
    return found


def _call(kind: str, path: str, caller: str, callee: str, edge: CallEdge, alone: bool) -> Change:
    guards = _conditions(edge)
    told = f"{short(caller)} calls {short(callee)}"
    why = f"{told}{'' if kind == 'new' else ' no more'}"
    why += f", where {listed(sorted(guards), 2)}." if guards and kind == "new" else "."
    if alone:
        why += f" {short(callee)} {'is new' if kind == 'new' else 'is gone'}."
    return Change(
        of="call",
        change="new" if kind == "new" else "gone",
        title=told,
        functions=[callee, caller],
        before=None if kind == "new" else told,
        after=told if kind == "new" else None,
        where=listed(sorted(guards), 2) or None,
        why=why,
        paths=[path],
        weight=8 + (4 if alone else 0),
    )


def _guards(path: str, caller: str, callee: str, old: CallEdge, new: CallEdge, names: Names) -> list[Change]:
    """The conditions of a call on the way to the worker."""
    was, now = {names.text(text) for text in _conditions(old)}, _conditions(new)
    if was == now:
        return []
    came, went = sorted(now - was), sorted(was - now)
    told = [f"It is asked now: {listed(came)}." if came else "", f"Asked no more: {listed(went)}." if went else ""]
    return [
        Change(
            of="gate",
            change="changed",
            title=f"The conditions under which {short(caller)} calls {short(callee)}",
            functions=[caller, callee],
            before=" and ".join(sorted(was)) or "none",
            after=" and ".join(sorted(now)) or "none",
            why=" ".join(filter(None, told)),
            paths=[path],
            weight=26,
        )
    ]


def _conditions(edge: CallEdge) -> set[str]:
    """What every site of a call asks."""
    sites = [
        {f"`{g.text}`" if g.holds else f"not `{g.text}`" for g in site.guards if g.kind in ("if", "return")}
        for site in edge.sites
    ]
    return set.intersection(*sites) if sites else set()


# --- workers and off steps ---


def _workers(before: Side, after: Side, names: Names) -> list[Change]:
    left = {_after(names, worker.cls): worker for worker in before.index.workers}
    right = {worker.cls: worker for worker in after.index.workers}
    out = []
    for cls in sorted({*left, *right}):
        old, new = left.get(cls), right.get(cls)
        if old is not None and new is not None and _created(old) == _created(new):
            continue
        worker = new or old
        assert worker is not None
        name = cls.partition(":")[2]
        out.append(
            Change(
                of="gate",
                change="new" if old is None else "gone" if new is None else "changed",
                title=f"When `{name}` is created",
                functions=[cls],
                before=None if old is None else _created(old),
                after=None if new is None else _created(new),
                why=f"`{name}` is the worker for {_created(new)}." if new else f"Nothing creates `{name}` any more.",
                paths=[worker.path] if worker.path else [],
                progress=new is not None,
                weight=70 if worker.path else 25,
            )
        )
    return out


def _after(names: Names, cls: str) -> str:
    """A class's id as it is after, by its methods."""
    for old, new in names.functions.items():
        if old.rpartition(".")[0] == cls and old.rpartition(".")[2] == new.rpartition(".")[2]:
            return new.rpartition(".")[0]
    module, _, name = cls.partition(":")
    return f"{module}:{names.classes.get(name, name)}"


def _created(worker: Worker) -> str:
    overlap = {True: "with overlap", False: "without overlap", None: "with and without overlap"}[worker.overlap]
    return f"{', '.join(worker.algorithms) or 'an unknown algorithm'}, {overlap}"


def _off_steps(before: Side, after: Side, names: Names) -> list[Change]:
    """Off steps of the source's own, and what may forbid them."""
    out: list[Change] = []
    paths = [path for path in ("v1", "v2") if path in before.paths or path in after.paths]
    for path in paths:
        old = [step for step in before.index.off_steps if step.path == path]
        new = [step for step in after.index.off_steps if step.path == path]
        known = {(names.function(step.function), names.text(step.what)) for step in old}
        here = {(step.function, step.what) for step in new}
        out += [_off_step("new", step) for step in new if (step.function, step.what) not in known]
        out += [
            _off_step("gone", step, path in after.paths)
            for step in old
            if (names.function(step.function), names.text(step.what)) not in here
        ]
        left, right = _gates(old, names), _gates(new, None)
        if old and new:
            out += [_gate("new", path, right[key]) for key in right if key not in left]
            out += [_gate("gone", path, left[key]) for key in left if key not in right]
    return out


def _off_step(kind: str, step: OffStep, progress: bool = True) -> Change:
    new = kind == "new"
    gates = [gate.what for gate in step.gates]
    why = f"{short(step.function)} {step.what}" if new else f"{short(step.function)} has no such step any more"
    if new and gates:
        why += f"; {len(gates)} gates stand before it, such as: {listed(gates, 2)}"
    return Change(
        of="gate",
        change="new" if new else "gone",
        title=f"A step of {step.path} without drafts",
        designs={"C": "easier" if new else "harder"} if progress else {},
        functions=[step.function],
        before=None if new else step.what,
        after=step.what if new else None,
        why=f"{why}.",
        paths=[step.path],
        progress=progress,
        weight=110,
    )


def _gate(kind: str, path: str, gate: Place) -> Change:
    new = kind == "new"
    return Change(
        of="gate",
        change="new" if new else "gone",
        title=f"A gate before the step of {path} without drafts",
        designs={"C": "harder" if new else "easier"},
        functions=[gate.function],
        before=None if new else gate.what,
        after=gate.what if new else None,
        why=f"{short(gate.function)} {'now refuses' if new else 'no longer refuses'}: {gate.what}.",
        paths=[path],
        weight=42,
    )


def _gates(steps: list[OffStep], names: Names | None) -> dict[str, Place]:
    return {(names.text(gate.what) if names else gate.what): gate for step in steps for gate in step.gates}
