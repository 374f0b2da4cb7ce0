"""What is outside the program: Python's built-ins, the methods of its containers, torch, numpy, copy, dataclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.interpreter import calls, objects
from sgltrace.index.shapes.interpreter.builtin import BUILTINS
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.interpreter.operations import Args, torch
from sgltrace.index.shapes.symbolic.dims import symbol
from sgltrace.index.shapes.symbolic.torchcall import segments
from sgltrace.index.shapes.symbolic.values import (
    Int,
    Obj,
    Run,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.machine import Machine

DEFAULT = "default"
"""The key under which a dict keeps what makes a value that is missing."""
_LIBRARIES = ("torch", "numpy", "np", "F")


def external(m: Machine, frame: Frame, target: str, args: Args, kwargs: dict[str, Value], line: int) -> Value:
    """A call of a name outside the program."""
    package, _, name = target.rpartition(".")
    if package == "builtins":
        rule = BUILTINS.get(name)
        return rule(m, frame, args, kwargs) if rule is not None else Unknown(f"{name} is not modelled")
    if target == "collections.defaultdict" and args:
        made = copied(m, args[1]) if len(args) > 1 else Obj(None, kind="dict")
        if isinstance(made, Obj):
            m.store.put((made.number, DEFAULT), args[0])
        return made
    if target == "itertools.chain.from_iterable" and args:
        return _chained(m, args[0])
    if target in ("copy.copy", "copy.deepcopy") and args:
        return copied(m, args[0]) if name == "copy" else args[0]
    if target == "dataclasses.replace" and args:
        return _replaced(m, frame, args[0], kwargs, line)
    if package.partition(".")[0] in _LIBRARIES:
        return torch(m, frame, name, args, kwargs, line)
    if package == "math" and args and isinstance(args[0], Int) and name in ("ceil", "floor"):
        return args[0]
    return Unknown(f"{target} is outside the source")


def _chained(m: Machine, value: Value) -> Value:
    """The elements of the elements."""
    runs = segments(m.view(value))
    if runs is None:
        return Unknown("the elements of something that is unknown")
    inner = [(segments(m.view(part)), count) for part, count in runs]
    if all(parts is not None for parts, _ in inner):
        return Run(tuple((item, times * count) for parts, count in inner for item, times in parts or ()))
    return Run(((Unknown("an element"), symbol("total_length")),))


def copied(m: Machine, value: Value) -> Value:
    """A shallow copy."""
    if not isinstance(value, Obj):
        return value
    made = Obj(value.cls, value.name, value.kind, value.each, value.lazy, value.arguments)
    for name, inner in m.fields_of(value):
        m.store.set((made.number, name), inner)
    return made


def _replaced(m: Machine, frame: Frame, value: Value, changes: dict[str, Value], line: int) -> Value:
    made = copied(m, calls.single(value))
    if isinstance(made, Obj):
        for name, inner in changes.items():
            objects.set_field(m, frame, made, name, inner, line)
    return made
