"""The buffers of CUDA graph runners: tensors made when graphs are captured, in the shape of the largest batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.fields import READS
from sgltrace.index.shapes.interpreter import objects
from sgltrace.index.shapes.interpreter.frames import FieldWrite, Frame
from sgltrace.index.shapes.report import as_listed, field_tensor, without_repeats
from sgltrace.index.shapes.symbolic.values import Obj, Place, Tensor, alternatives

if TYPE_CHECKING:
    from sgltrace import model
    from sgltrace.index.fields import FieldFlow
    from sgltrace.index.resolution.entities import ClassInfo
    from sgltrace.index.shapes.interpreter.machine import Machine

STAGE = "graph buffers"
RUNNER, BUFFERS = "graph_runner", "graph_buffers"


def buffer_tensors(machine: Machine, flow: FieldFlow) -> list[model.Tensor]:
    """The buffers of the graph runners that the path makes."""
    found: list[model.Tensor] = []
    for cls in _runners(machine, flow):
        runner = Obj(cls, cls.name, lazy=True)
        found += _of_object(machine, flow, runner, cls.name)
    return without_repeats(sorted(found, key=lambda t: (t.cls or "", t.name, t.producer.function, t.producer.line)))


def _runners(machine: Machine, flow: FieldFlow) -> list[ClassInfo]:
    """The classes of graph runners of which objects are made while the path's process starts."""
    runs = machine.world.program.phases.of.get(machine.path, {})
    made = {
        function.owner
        for reached in runs.values()
        for function in reached
        if function.name == "__init__" and function.owner is not None and flow.role(function.owner) == RUNNER
    }
    return sorted((cls for cls in made if cls.instantiated), key=lambda cls: cls.id)


def _of_object(machine: Machine, flow: FieldFlow, obj: Obj, title: str) -> list[model.Tensor]:
    assert obj.cls is not None
    found: list[model.Tensor] = []
    for name in _fields(machine, flow, obj.cls):
        frame = Frame(obj.cls.module.body, lazy=True)
        for value in alternatives(objects.get_field(machine, frame, obj, name, 0)):
            if isinstance(value, Obj) and machine.role(value.cls) == BUFFERS:
                found += _of_object(machine, flow, value, title)
            elif isinstance(value, Tensor) and value.shape is not None and value.place is not None:
                write = FieldWrite(0, STAGE, value.place, obj, name, value, ())
                listed = as_listed(machine, value)
                assert listed is not None
                found.append(field_tensor(machine, write, listed, title, _uses(machine, flow, obj.cls, name)))
    return found


def _fields(machine: Machine, flow: FieldFlow, cls: ClassInfo) -> list[str]:
    classes = machine.world.mro(cls)
    names = {uses.field for uses in flow if uses.cls in classes and uses.writes}
    return sorted(names)


def _uses(machine: Machine, flow: FieldFlow, cls: ClassInfo, name: str) -> set[Place]:
    """The places of the path that read a buffer, or fill it."""
    classes, phases = machine.world.mro(cls), machine.world.program.phases
    accesses = [a for uses in flow if uses.field == name and uses.cls in classes for a in (*uses.reads, *uses.writes)]
    return {
        Place(access.function.id, access.line)
        for access in accesses
        if access.kind in (*READS, "in-place", "kernel") and machine.path in phases.paths(access.function)
    }
