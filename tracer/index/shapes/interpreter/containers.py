"""The methods of tensors, lists, dicts and tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.interpreter import objects
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.symbolic.dims import ONE
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.torchcall import elements
from sgltrace.index.shapes.symbolic.values import (
    A_NUMBER,
    NONE,
    Const,
    Either,
    Int,
    Obj,
    Range,
    Run,
    Tensor,
    Tuple,
    Unknown,
    Value,
    number,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.machine import Machine
from sgltrace.index.shapes.interpreter.operations import METHODS, Args, operate


def builtin_method(
    m: Machine, frame: Frame, base: Value, name: str, args: Args, kwargs: dict[str, Value], line: int
) -> Value:
    """A method of a tensor, list, dict, tuple, slice or text."""
    if isinstance(base, Tensor):
        return tensor_method(m, frame, base, name, args, kwargs, line)
    if isinstance(base, Obj) and base.kind == "list":
        return _list_method(m, base, name, args)
    if isinstance(base, Obj) and base.kind == "dict":
        return _dict_method(m, base, name, args)
    if isinstance(base, Obj) and base.kind == "model":
        from sgltrace.index.shapes.interpreter import models

        return models.run(m, frame, base, args, kwargs, line)
    if isinstance(base, Tuple) and name == "numel":
        return _numel(base)
    if isinstance(base, Tuple | Run) and name in ("index", "count"):
        return A_NUMBER
    return Unknown(f"{name} of a value that is not followed")


def _numel(shape: Tuple) -> Value:
    total = ONE
    for item in shape.items:
        if not isinstance(item, Int):
            return A_NUMBER
        total = total * item.dim
    return Int(total)


def tensor_method(
    m: Machine, frame: Frame, tensor: Tensor, name: str, args: Args, kwargs: dict[str, Value], line: int
) -> Value:
    """``tensor.name(...)``"""
    if name == "size":
        shape = objects.tensor_attribute(tensor, "shape")
        if not args and not kwargs:
            return shape
        position = args[0] if args else kwargs.get("dim", NONE)
        index = position.dim.constant if isinstance(position, Int) else None
        items = elements(shape) or ()
        return items[index] if index is not None and -len(items) <= index < len(items) else A_NUMBER
    if name in ("numel", "nelement"):
        return Int(tensor.numel) if tensor.numel is not None else A_NUMBER
    if name in ("dim", "ndimension"):
        return number(len(tensor.shape)) if tensor.shape is not None else A_NUMBER
    if name == "tolist":
        return _to_list(m, tensor)
    if name == "item":
        return A_NUMBER
    if name in ("__len__",):
        return length(m, tensor)
    if name in ("record_stream", "backward", "storage_offset", "stride", "data_ptr", "element_size", "get_device"):
        return Unknown(f"{name} of a tensor")
    return operate(m, frame, name, METHODS.get(name), [tensor, *args], kwargs, line)


def _to_list(m: Machine, tensor: Tensor) -> Value:
    if not tensor.shape:
        return A_NUMBER if tensor.shape == () else Unknown("a list made of a tensor that is unknown")
    inner = tensor.same_data(tensor.shape[1:])
    element = Unknown("an element of a tensor") if len(tensor.shape) == 1 else _to_list(m, inner)
    size = tensor.shape[0]
    return Unknown("a list of unknown length") if size is None else m.new_list(((element, size),))


def _list_method(m: Machine, base: Obj, name: str, args: Args) -> Value:
    if name == "append" and args:
        m.set_list(base, (*m.list_segments(base), (args[0], ONE)))
        return NONE
    if name == "extend" and args:
        m.extend(base, args[0])
        return NONE
    if name == "pop":
        runs = m.list_segments(base)
        return runs[-1][0] if runs else Unknown("pop of an empty list")
    if name == "copy":
        return m.new_list(m.list_segments(base))
    if name in ("insert",) and len(args) == 2:
        m.set_list(base, ((args[1], ONE), *m.list_segments(base)))
        return NONE
    if name == "clear":
        m.set_list(base, ())
        return NONE
    if name in ("sort", "reverse"):
        return NONE
    return Unknown(f"{name} of a list")


def _dict_method(m: Machine, base: Obj, name: str, args: Args) -> Value:
    if name == "get" and args:
        found = m.store.get((base.number, repr(args[0])))
        if found is not None:
            return found
        return args[1] if len(args) > 1 and not m.fields_of(base) else Unknown("a key that is not known here")
    if name == "items":
        return Run(tuple((Tuple((Unknown("a key"), value)), ONE) for _, value in m.fields_of(base)))
    if name == "values":
        return Run(tuple((value, ONE) for _, value in m.fields_of(base)))
    return Unknown(f"{name} of a dict")


def length(m: Machine, value: Value) -> Value:
    """``len(value)``"""
    if isinstance(value, Either):
        return join_all(length(m, part) for part in value.values if part != NONE)
    if isinstance(value, Tensor):
        return Int(value.shape[0]) if value.shape and value.shape[0] is not None else A_NUMBER
    view = m.view(value)
    if isinstance(view, Run | Range):
        return Int(view.count)
    if isinstance(view, Tuple):
        return number(len(view.items))
    if isinstance(view, Const) and isinstance(view.value, str):
        return number(len(view.value))
    return Unknown("the length of a value that is unknown")
