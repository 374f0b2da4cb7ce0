"""Questions after a step was interpreted: what an expression is, what a field access writes or finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.values import Place, Value

if TYPE_CHECKING:
    from sgltrace.index.facts import syntax as s
    from sgltrace.index.fields import Access
    from sgltrace.index.resolution.entities import FunctionInfo
    from sgltrace.index.shapes.interpreter.machine import Machine


def ask(machine: Machine, function: FunctionInfo, node: s.Expr) -> Value:
    """The value of an expression: in the frame of the function's last call, or by its types and assignments."""
    known = machine.frames.get(function)
    if known is None:
        receiver = machine.receiver_for(function)
        frame = Frame(function, receiver=receiver, lazy=True)
    else:
        frame = Frame(function, known.parent, known.receiver, lazy=True, number=known.number)
    mark = machine.store.mark()
    try:
        with machine.question():
            return ev.evaluate(machine, frame, node)
    finally:
        machine.store.undo(mark)


def found_at(machine: Machine, access: Access) -> Value | None:
    """What was written or found at an access; None where the step did not come by."""
    place = Place(access.function.id, access.line)
    classes = {cls.id for cls in (access.cls, *access.cls.subclasses)}
    if access.is_write:
        lines = {access.line, getattr(access.node, "line", access.line)}  # a constructor's argument has its own line
        written = machine.records.written_in(place.function, access.field)
        values = [
            write.value
            for write in written
            if write.place.line in lines and write.obj.cls is not None and write.obj.cls.id in classes
        ]
    else:
        seen = machine.records.seen
        keys = ((place, cls, access.field) for cls in sorted(classes))
        values = [seen[key] for key in keys if key in seen]
    return join_all(values) if values else None
