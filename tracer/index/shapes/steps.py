"""A decode step as the scheduler runs it: prepare the batch, run it, process the result; the functions found by roles.

Before it a batch of new requests runs, as in the engine; and the step runs twice, so that the second turn finds in the
batch and the future map what a step has left there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.fields.tracked import roles
from sgltrace.index.shapes.interpreter import calls
from sgltrace.index.shapes.interpreter.frames import Frame, Records
from sgltrace.index.shapes.interpreter.machine import Machine
from sgltrace.index.shapes.interpreter.stages import ENTRY, PREPARE, RESULT, Stages
from sgltrace.index.shapes.interpreter.vocabulary import shape_vocabulary
from sgltrace.index.shapes.symbolic.dims import symbol
from sgltrace.index.shapes.symbolic.values import Int, Obj, Value, alternatives
from sgltrace.model import PHASES

if TYPE_CHECKING:
    from sgltrace.index.fields import FieldFlow
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo

TURNS = 2


@dataclass
class Step:
    """The functions of a step on one path: what makes a batch of new requests, what prepares it for decode, what runs
    it, what that calls of the worker, and what takes the result."""

    path: str
    entry: FunctionInfo
    run: FunctionInfo
    admit: list[FunctionInfo]
    prepare: list[FunctionInfo]
    process: list[FunctionInfo]


def find_steps(program: Program, flow: FieldFlow) -> list[Step]:
    """The steps of the paths that the program has."""
    entries = [(path, program.functions.get(name or "")) for path, name in program.cast.entry_points.items()]
    found = [find_step(program, flow, path, entry) for path, entry in entries if entry is not None]
    return [step for step in found if step is not None]


def find_step(program: Program, flow: FieldFlow, path: str, entry: FunctionInfo) -> Step | None:
    """The step around a worker's entry point; None where no scheduler's function runs a batch through it."""
    runs = {
        caller
        for caller, _ in program.callers(entry)
        if caller.owner is not None and flow.role(caller.owner) == "scheduler"
        if any(flow.role(c) == "scheduler_batch" for p in caller.parameters for c in _classes(program, caller, p))
    }
    if not runs:
        return None
    run = min(runs, key=lambda function: (not program.phases.runs(function, path, PHASES[-1]), function.id))
    names = shape_vocabulary().step
    admit, prepare = _setting_mode(flow, names.extend), _setting_mode(flow, names.decode)
    return Step(path, entry, run, admit, prepare, _processing(program, flow, run))


def _setting_mode(flow: FieldFlow, mode: str) -> list[FunctionInfo]:
    """The methods of the scheduler's batch that give it a forward mode."""
    names = shape_vocabulary().step
    found = {
        write.function
        for uses in flow.of_role("scheduler_batch", names.mode_field)
        for write in uses.writes
        if isinstance(write.value, s.Attr) and write.value.attr == mode
        if write.function.owner is not None and flow.role(write.function.owner) == "scheduler_batch"
    }
    return sorted(found, key=lambda function: function.id)


def _processing(program: Program, flow: FieldFlow, run: FunctionInfo) -> list[FunctionInfo]:
    """What most event loops call with a batch and the result of its run."""
    loops = {caller for caller, _ in program.callers(run)}
    callers: dict[FunctionInfo, set[FunctionInfo]] = {}
    for caller, callee, _ in program.engine.edges:
        if caller in loops or caller.parent in loops:
            roles_taken = {flow.role(c) for p in callee.parameters[1:] for c in _classes(program, callee, p)}
            if {"scheduler_batch", "result"} <= roles_taken and callee.owner is not None:
                callers.setdefault(callee, set()).add(caller)
    most = max(map(len, callers.values()), default=0)
    return sorted((f for f, found in callers.items() if len(found) == most), key=lambda function: function.id)


def _classes(program: Program, function: FunctionInfo, param: s.Param) -> list[ClassInfo]:
    from sgltrace.index.resolution.values import Instance

    node = function.params.get(param.name)
    return [value.cls for value in (node.values if node else ()) if isinstance(value, Instance)]


def run_step(program: Program, flow: FieldFlow, step: Step) -> Machine:
    """Interpret a step; the records of the last turn are in the machine."""
    stages = Stages(shape_vocabulary().step)
    machine = Machine(program, flow, step.path, stages)
    machine.entry = step.entry
    if step.entry.owner is not None:
        machine.preferred.append(step.entry.owner)
    for name in machine.vocabulary.preferred:
        machine.preferred += program.find_classes(name)
    assert step.run.owner is not None
    scheduler = Obj(step.run.owner, "scheduler", lazy=True)
    batch = machine.batch = _batch(program, flow, step, machine)
    for function in step.admit:
        _call(machine, function, batch, {})
    _call(machine, step.run, scheduler, {"scheduler_batch": batch})
    for _ in range(TURNS):
        _forget_numbers(machine)
        machine.records = Records()
        machine.spent = 0
        stages.begin(PREPARE)
        for function in step.prepare:
            _call(machine, function, batch, {})
        stages.begin(ENTRY)
        result = _call(machine, step.run, scheduler, {"scheduler_batch": batch})
        stages.begin(RESULT)
        for function in step.process:
            _call(machine, function, scheduler, {"scheduler_batch": batch, "result": result})
    return machine


def _batch(program: Program, flow: FieldFlow, step: Step, machine: Machine) -> Obj:
    classes = [c for p in step.run.parameters[1:] for c in _classes(program, step.run, p)]
    own = min((c for c in classes if flow.role(c) == "scheduler_batch"), key=lambda c: c.id)
    batch = _made(program, flow, machine, own) or Obj(own, "batch")
    batch.name = "batch"
    for name in {*machine.world.fields(own), *(name for name, _ in machine.store.under(batch.number))}:
        seeded = machine.seed(batch, name)
        if seeded is not None:
            machine.store.put((batch.number, name), seeded)
    return batch


def _made(program: Program, flow: FieldFlow, machine: Machine, cls: ClassInfo) -> Obj | None:
    """A batch as its class makes one of new requests: by the class method that calls the constructor."""
    makers = {
        write.function
        for uses in flow
        if uses.cls in machine.world.mro(cls)
        for write in uses.writes
        if write.kind in ("constructor", "copy")
        and write.function.kind == "classmethod"
        and write.function.owner is cls
    }
    for maker in sorted(makers, key=lambda function: function.id):
        made = _call(machine, maker, machine.class_ref(cls), {})
        if isinstance(made, Obj):
            return made
    return None


def _call(machine: Machine, function: FunctionInfo, receiver: Value, given: dict[str, Value]) -> Value:
    """Call a root of the step; a parameter gets the value that is of its role."""
    kwargs: dict[str, Value] = {}
    for param in function.parameters[1:]:
        for cls in machine.world.param_classes(function, param):
            value = given.get(machine.role(cls) or "")
            if value is not None:
                kwargs[param.name] = value
    frame = Frame(function, lazy=True)
    return calls.call_function(machine, frame, machine.function_ref(function, receiver), [], kwargs, function.line)


def _forget_numbers(machine: Machine) -> None:
    """A new step knows nothing of the counters that the last has moved: each is a symbol of its field's name."""
    for write in machine.records.fields:
        if roles()[machine.role(write.obj.cls) or ""].carries == "step":
            continue
        key = (write.obj.number, write.field)
        value = machine.store.get(key)
        if value is not None and any(isinstance(part, Int) for part in alternatives(value)):
            machine.store.put(key, Int(symbol(write.field)))
            if write.obj.each:
                machine.each_symbols.add(write.field)
