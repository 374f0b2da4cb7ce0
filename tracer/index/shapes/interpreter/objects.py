"""Attributes: of tensors, of objects (fields, properties, methods), of enum members, modules and outside names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import calls, lazy
from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.torchcall import DTYPES
from sgltrace.index.shapes.symbolic.values import (
    A_NUMBER,
    NONE,
    Const,
    Either,
    Int,
    Member,
    Obj,
    Ref,
    Run,
    Span,
    Tensor,
    Tuple,
    Unknown,
    Value,
    number,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.frames import Frame
    from sgltrace.index.shapes.interpreter.machine import Machine


def attribute(m: Machine, frame: Frame, base: Value, name: str, node: s.Attr) -> Value:
    """``base.name``"""
    match base:
        case Either(values=values):
            # None has no attribute that a running program reads.
            parts = [attribute(m, frame, value, name, node) for value in values if value != NONE]
            return join_all(parts) if parts else Unknown("an attribute of None")
        case Tensor():
            m.note_use(base, frame.place(node.line))
            return tensor_attribute(base, name)
        case Obj(kind="object"):
            return get_field(m, frame, base, name, node.line)
        case Obj(kind="config"):
            return m.configured(name, base)
        case Obj(kind="weights"):
            return m.store.get((base.number, name)) or Unknown(f"{name} of weights")
        case Obj():
            return Ref("builtin method", name, base)
        case Ref(kind="super"):
            return _of_super(m, base, name)
        case Tuple(names=names) if name in names:
            return base.items[names.index(name)]
        case Const(value=None):
            return Unknown("an attribute of None")
        case Tuple() | Run() | Const() | Int():
            return Ref("builtin method", name, base)
        case Span():
            part = {"start": base.lower, "stop": base.upper, "step": base.step}.get(name)
            return part if part is not None else Ref("builtin method", name, base)
        case Member():
            return _of_member(m, frame, base, name)
        case Ref(kind="class"):
            return _of_class(m, frame, base, name)
        case Ref(kind="module") | Ref(kind="external"):
            found = m.world.static(frame.function, node)
            return found if found is not None else Ref("external", f"{base.target}.{name}")
    found = m.world.static(frame.function, node)
    if found is not None:
        return found
    return m.configured(name, base)


def tensor_attribute(tensor: Tensor, name: str) -> Value:
    """``shape``, ``dtype`` and the like; a method otherwise."""
    if name == "shape":
        if tensor.shape is None:
            return Unknown(tensor.why or "the shape of a tensor that is unknown")
        return Tuple(tuple(A_NUMBER if dim is None else Int(dim) for dim in tensor.shape))
    if name == "dtype":
        return Const(tensor.dtype) if tensor.dtype in DTYPES.values() else Unknown("a dtype")
    if name == "ndim":
        return A_NUMBER if tensor.shape is None else number(len(tensor.shape))
    if name in ("T", "mT"):
        return tensor.same_data(None if tensor.shape is None else tuple(reversed(tensor.shape)))
    if name in ("data", "grad"):
        return tensor
    if name in ("device", "is_cuda", "is_cpu", "layout", "nbytes", "itemsize"):
        return Unknown("where a tensor lies")
    return Ref("builtin method", name, tensor)


def get_field(m: Machine, frame: Frame, obj: Obj, name: str, line: int) -> Value:
    """``obj.name``, with properties run and methods bound."""
    if name == "__class__":
        return m.class_ref(obj.cls) if obj.cls is not None else Unknown("a class")
    known = m.store.get((obj.number, name))
    if known is None:
        known = _unset(m, frame, obj, name)
    if m.is_tracked(obj.cls):
        m.note_read(obj, name, frame.place(line), known)
    return known


def _unset(m: Machine, frame: Frame, obj: Obj, name: str) -> Value:
    """A field that nothing on the way has written yet."""
    assert obj.cls is not None
    fixed = m.fixed(name)
    if fixed is not None:
        return fixed
    method = m.world.method(obj.cls, name)
    if method is not None:
        bound = m.function_ref(method, obj)
        if method.is_property:
            return calls.call_ref(m, frame, bound, [], {}, frame.line)
        return bound
    value = lazy.first_value(m, obj, name)
    # It was there from the start: no branch may take it back.
    m.store.put((obj.number, name), value)
    return value


def set_field(m: Machine, frame: Frame, obj: Obj, name: str, value: Value, line: int) -> None:
    """``obj.name = value``"""
    if obj.kind != "object":
        return
    setter = m.world.method(obj.cls, name) if obj.cls is not None else None
    if setter is not None and setter.is_property:
        found = m.world.setter(obj.cls, name)
        if found is not None:
            calls.call_ref(m, frame, m.function_ref(found, obj), [value], {}, line)
            return
    m.store.set((obj.number, name), value)
    m.note_write(frame, obj, name, value, line)


def _of_member(m: Machine, frame: Frame, member: Member, name: str) -> Value:
    if name == "name":
        return Const(member.name)
    if name == "value":
        return Unknown("the value of an enum member")
    method = m.world.method(member.cls, name)
    if method is None:
        return _of_class(m, frame, m.class_ref(member.cls), name)
    bound = m.function_ref(method, member)
    return calls.call_ref(m, frame, bound, [], {}, frame.line) if method.is_property else bound


def _of_class(m: Machine, frame: Frame, ref: Ref, name: str) -> Value:
    cls = ref.info
    method = m.world.method(cls, name)
    if method is not None:
        return m.function_ref(method, ref if method.kind == "classmethod" else None)
    found = m.world.class_value(cls, name)
    if found is None:
        # A registry that stands for an enum gets its members while the program runs.
        registered = cls.name in m.vocabulary.members and name.isupper()
        return Member(cls, name) if registered else Unknown(f"{cls.name}.{name}")
    owner, expression = found
    if m.world.is_enum(cls):
        return Member(cls, name)
    return ev.evaluate(m, m.module_frame(owner.module), expression)


def _of_super(m: Machine, base: Ref, name: str) -> Value:
    """``super().name``: looked up behind the class whose method says so."""
    receiver = base.bound
    cls = receiver.cls if isinstance(receiver, Obj | Member) else receiver.info if isinstance(receiver, Ref) else None
    found = m.world.after(cls, base.info, name) if cls is not None else None
    return m.function_ref(found, receiver) if found is not None else Unknown(f"{name} of a base outside the source")
