"""The tensors of a step as the index lists them: by stage, with who makes and who uses each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sgltrace import model
from sgltrace.index.shapes.interpreter.frames import FieldWrite, LocalWrite
from sgltrace.index.shapes.interpreter.stages import ORDER
from sgltrace.index.shapes.symbolic.formulas import dtype_text, shape_text, stride_text, why_unknown
from sgltrace.index.shapes.symbolic.values import (
    Const,
    Either,
    Int,
    Member,
    Obj,
    Place,
    Ref,
    Run,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.machine import Machine


def step_tensors(machine: Machine) -> list[model.Tensor]:
    """The tensors, and lists of what is known, that a step writes to tracked fields or to variables."""
    found: dict[tuple[str, str, str, str, int], model.Tensor] = {}
    for write in machine.records.fields:
        value = as_listed(machine, write.value)
        if value is not None and not _is_scalar(value):
            made = field_tensor(machine, write, value)
            key = (made.stage, made.cls or "", made.name, made.producer.function, made.producer.line)
            found[key] = _merged(found.get(key), made)
    for local in machine.records.locals:
        if isinstance(local.value, Tensor) and local.value.shape is not None:
            made = _of_local(machine, local)
            key = (made.stage, "", made.name, made.producer.function, made.producer.line)
            found[key] = _merged(found.get(key), made)
    return without_repeats(sorted(found.values(), key=_order))


def without_repeats(tensors: list[model.Tensor]) -> list[model.Tensor]:
    """One row for what is alike but for its place: the first, with what uses any of them.

    A variable that is called and shaped as a field of the stage is that field.
    """
    fields: dict[tuple[str | None, ...], model.Tensor] = {}
    for tensor in sorted(tensors, key=lambda tensor: tensor.cls is None):
        alike = (tensor.stage, tensor.name, tensor.shape, tensor.dtype, tensor.stride)
        owner = (tensor.cls, *alike)
        kept = fields.get(owner) or (fields.get(("", *alike)) if tensor.cls is None else None)
        if kept is None:
            fields[owner] = tensor
            fields.setdefault(("", *alike), tensor)
        else:
            uses = {(use.function, use.line): use for use in (*kept.consumers, *tensor.consumers)}
            kept.consumers = [uses[key] for key in sorted(uses)]
    kept_rows = {id(tensor) for tensor in fields.values()}
    return [tensor for tensor in tensors if id(tensor) in kept_rows]


def _is_scalar(value: Value) -> bool:
    """Whether a value is a number, or a list of things that are not known."""
    return all(
        isinstance(part, Int) or (isinstance(part, Run) and all(isinstance(item, Unknown) for item, _ in part.segments))
        for part in alternatives(value)
    )


def as_listed(machine: Machine, value: Value) -> Value | None:
    """A value in the form in which it is listed; None for what has no shape (objects, flags, texts)."""
    parts = [machine.view(part) for part in alternatives(value)]
    parts = [part for part in parts if not isinstance(part, Const | Member | Obj | Ref) and part != Tuple(())]
    if not parts or all(isinstance(part, Unknown) for part in parts):
        return None
    known = [part for part in parts if not isinstance(part, Unknown)]
    return known[0] if len(known) == 1 else Either(tuple(known))


def field_tensor(
    machine: Machine, write: FieldWrite, value: Value, title: str = "", uses: Iterable[Place] | None = None
) -> model.Tensor:
    """A written field as the index lists it.

    ``title`` names the object's class where another name says more; ``uses`` are the places that take it, if not those
    that the step came by.
    """
    cls = write.obj.cls
    producer = _producer(value, write.place)
    what = f"{cls.name if cls else ''}.{write.field} = ... ({_where(machine, write.place)})"
    if uses is None:
        uses = machine.records.reads.get((write.obj.number, write.field), {})
    return _tensor(machine, write.stage, write.field, title or (cls.name if cls else None), value, producer, what, uses)


def _of_local(machine: Machine, local: LocalWrite) -> model.Tensor:
    assert isinstance(local.value, Tensor)
    uses = machine.records.uses.get(local.value.place, {}) if local.value.place else {}
    return _tensor(machine, local.stage, local.name, None, local.value, local.place, "", uses)


def _tensor(
    machine: Machine,
    stage: str,
    name: str,
    cls: str | None,
    value: Value,
    producer: Place,
    what: str,
    uses: Iterable[Place],
) -> model.Tensor:
    shape = shape_text(value)
    unknown = shape is None or "?" in shape
    return model.Tensor(
        path=machine.path,
        stage=stage,
        name=name,
        cls=cls,
        field=name if cls is not None else None,
        shape=shape,
        dtype=dtype_text(value),
        stride=stride_text(value),
        why_unknown=why_unknown(value) if unknown else None,
        producer=_place(machine, producer, what),
        consumers=[_place(machine, use) for use in sorted(uses, key=lambda u: (u.function, u.line)) if use != producer],
    )


def _producer(value: Value, written: Place) -> Place:
    """Where a tensor is made; where it is written if that is not known."""
    places = [part.place for part in alternatives(value) if isinstance(part, Tensor) and part.place is not None]
    return places[0] if places else written


def _where(machine: Machine, place: Place) -> str:
    return f"{place.function.partition(':')[2]}:{place.line}"


def _place(machine: Machine, place: Place, what: str = "") -> model.Place:
    function = machine.world.program.functions.get(place.function)
    file = function.module.path if function is not None else ""
    return model.Place(function=place.function, line=place.line, what=what, file=file)


def _merged(old: model.Tensor | None, new: model.Tensor) -> model.Tensor:
    """Of two turns of a loop the later one, with what uses either."""
    if old is None:
        return new
    uses = {(use.function, use.line): use for use in (*old.consumers, *new.consumers)}
    new.consumers = [uses[key] for key in sorted(uses)]
    return new if new.shape is not None else old


def _order(tensor: model.Tensor) -> tuple[str, int, str, str, str, int]:
    stage = ORDER.index(tensor.stage) if tensor.stage in ORDER else len(ORDER)
    return tensor.path, stage, tensor.name, tensor.cls or "", tensor.producer.function, tensor.producer.line
