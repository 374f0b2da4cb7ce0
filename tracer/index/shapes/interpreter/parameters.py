"""What a function's parameters and a dataclass's fields get from a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.symbolic.values import (
    Obj,
    Tuple,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.entities import FunctionInfo, ModuleInfo
    from sgltrace.index.shapes.interpreter.machine import Machine
from sgltrace.index.shapes.interpreter import objects


def bind(m: Machine, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Give a function's parameters their arguments, defaults, or what their types say."""
    position = 0
    for param in frame.function.parameters:
        value: Value | None = None
        if param.kind == "*":
            value = Tuple(tuple(args[position:]))
            position = len(args)
        elif param.kind == "**":
            value = m.new_dict({k: v for k, v in kwargs.items() if not _names(frame.function, k)})
        elif param.kind != "=" and position < len(args):
            value = args[position]
            position += 1
        elif param.name in kwargs:
            value = kwargs[param.name]
        elif param.default is not None:
            value = ev.evaluate(m, m.module_frame(frame.function.module), param.default)
        if value is None or isinstance(value, Unknown):
            typed = m.by_type(frame.function, param)
            value = typed if value is None or not isinstance(typed, Unknown) else value
        elif param.annotation is not None:
            value = m.narrowed_to(value, m.world.param_classes(frame.function, param))
        m.store.set((frame.number, param.name), value)


def bind_one(
    m: Machine, function: FunctionInfo, param: s.Param, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The argument that a method's parameter gets from a call, ``m`` not counted; its default; or None."""
    if param.name in kwargs:
        return kwargs[param.name]
    names = [p.name for p in function.parameters if p.kind in ("", "/")][1:]
    if param.name in names and names.index(param.name) < len(args):
        return args[names.index(param.name)]
    if param.default is not None:
        return ev.evaluate(m, m.module_frame(function.module), param.default)
    return None


def fill_dataclass(m: Machine, frame: Frame, obj: Obj, args: list[Value], kwargs: dict[str, Value], line: int) -> None:
    """Set a dataclass's fields from a constructor's arguments and the defaults."""
    assert obj.cls is not None
    for i, name in enumerate(m.world.fields(obj.cls)):
        if i < len(args):
            value: Value | None = args[i]
        else:
            value = kwargs.get(name)
        if value is None:
            default = m.world.class_value(obj.cls, name)
            if default is not None:
                value = _default(m, default[0].module, default[1])
                m.store.set((obj.number, name), value)
            continue
        objects.set_field(m, frame, obj, name, value, line)


def _default(m: Machine, module: ModuleInfo, expression: s.Expr) -> Value:
    """A field's default; ``field(default_factory=list)`` is an empty one."""
    if isinstance(expression, s.Call):
        for arg in expression.args:
            if arg.name == "default_factory" and isinstance(arg.value, s.Name) and arg.value.id == "list":
                return m.new_list(())
            if arg.name == "default":
                return _default(m, module, arg.value)
    return ev.evaluate(m, m.module_frame(module), expression)


def _names(function: FunctionInfo, name: str) -> bool:
    return any(param.name == name and param.kind != "**" for param in function.parameters)
