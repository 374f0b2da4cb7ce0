"""What a field holds before the step writes it: by the vocabulary, by what the class's methods assign, or by its type.

The objects that live as long as the process (workers, runners, pools) are not built by running their constructors,
which do a great deal that shapes don't ask for. A field of theirs is what the assignments to it give, each evaluated
where it stands when somebody reads the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.interpreter import parameters
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.interpreter.tests import truth
from sgltrace.index.shapes.symbolic.dims import symbol
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.values import NONE, Const, Int, Obj, Unknown, Value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sgltrace.index.resolution.entities import FunctionInfo
    from sgltrace.index.shapes.interpreter.machine import Machine
    from sgltrace.index.shapes.interpreter.reading import Assignment

_COUNTS = {"max", "min", "len", "int", "sum", "round", "abs"}


def first_value(m: Machine, obj: Obj, name: str) -> Value:
    """The value of a field that nothing on the way has written."""
    assert obj.cls is not None
    seeded = m.seed(obj, name)
    if seeded is not None:
        return seeded
    if m.batch is not None and m.role(obj.cls) == "scheduler":
        classes = m.world.declared(obj.cls, name)
        if any(m.role(cls) == "scheduler_batch" for cls in classes):
            return m.batch  # the running batch is the only one that there is
    if obj.lazy:
        value = _assigned(m, obj, name)
        if value == NONE:
            declared = m.declared(obj, name)
            if isinstance(declared, Obj) and declared.cls in m.preferred:
                return declared  # what makes it was not understood, but the path has it
        if value is not None and not isinstance(value, Unknown):
            if isinstance(value, Obj) and value.owner is None:
                value.owner = obj
            return m.assumed(value)
        declared = m.declared(obj, name)
        if not isinstance(declared, Unknown):
            return declared
        return value if value is not None else declared
    return m.declared(obj, name)


def _assigned(m: Machine, obj: Obj, name: str) -> Value | None:
    """What the assignments to the field in the class's methods give; None where there is none."""
    assert obj.cls is not None
    key = (obj.number, name)
    if key in m.being_asked or len(m.being_asked) > m.MOST_QUESTIONS:
        return Unknown(f"{name} depends on itself")
    m.being_asked.add(key)
    try:
        with m.question():
            found = m.world.assignments(obj.cls, name)
            if not found:
                default = m.world.class_value(obj.cls, name)
                return None if default is None else ev.evaluate(m, m.module_frame(default[0].module), default[1])
            values = _in_order((a, *_of_assignment(m, obj, a)) for a in found)
    finally:
        m.being_asked.discard(key)
    if not values:
        return None
    value = join_all(_said(values))
    if isinstance(value, Unknown) and any(_is_number(a.value) for a in found):
        return Int(symbol(name))
    return value


def _said(values: list[tuple[Assignment, Value]]) -> list[Value]:
    """The values of a field without the None that only holds its place until another function fills it."""
    filled = {a.function for a, value in values if value != NONE}
    kept = [value for a, value in values if value != NONE or a.function in filled]
    return kept or [value for _, value in values]


def _is_number(node: s.Expr) -> bool:
    match node:
        case s.Call(func=s.Name(id=name)):
            return name in _COUNTS
        case s.Bin(op=op, left=left, right=right):
            return op in ("//", "-", "*", "+") and (_is_number(left) or _is_number(right) or _is_int(right))
    return False


def _is_int(node: s.Expr) -> bool:
    return isinstance(node, s.Const) and type(node.value) is int


def _in_order(found: Iterable[tuple[Assignment, bool | None, Value]]) -> list[tuple[Assignment, Value]]:
    """The values that may be left after assignments in a row: one that is certain to run replaces those before it
    in the same function."""
    kept: list[tuple[Assignment, Value]] = []
    for assignment, runs, value in found:
        if runs:
            kept = [(a, v) for a, v in kept if a.function is not assignment.function]
        if runs is not False:
            kept.append((assignment, value))
    return kept


def _runs(m: Machine, frame: Frame, assignment: Assignment) -> bool | None:
    """Whether an assignment's guards hold; None where that is open."""
    answers = [truth(ev.evaluate(m, frame, test)) for test, _ in assignment.guards]
    if any(answer is (not holds) for answer, (_, holds) in zip(answers, assignment.guards, strict=True)):
        return False
    return None if None in answers else True


def _of_assignment(m: Machine, obj: Obj, assignment: Assignment) -> tuple[bool | None, Value]:
    """Whether an assignment to a field runs, and its value."""
    frame = m.lazy_frame(assignment.function, obj)
    runs = _runs(m, frame, assignment)
    if runs is False:
        return False, NONE
    value = ev.evaluate(m, frame, assignment.value)
    if assignment.index is not None:
        value = m.parts(value, assignment.count)[assignment.index]
    return runs, value


def variable(m: Machine, frame: Frame, name: str) -> Value | None:
    """A variable of a lazy frame: its parameter's value or what its assignments give; None if it has no such."""
    function = frame.function
    param = next((p for p in function.parameters if p.name == name), None)
    if name in frame.asked:
        return Unknown(f"{name} depends on itself")
    frame.asked.add(name)
    try:
        with m.question():
            found = [(a, *_of_local(m, frame, a)) for a in m.world.local_assignments(function, name)]
            values = [value for _, value in _in_order(found)]
            if param is not None:
                values.append(_argument(m, frame, param))
    finally:
        frame.asked.discard(name)
    if not values:
        return None
    value = join_all(values)
    if function.qualname == "<module>" and value == NONE:
        return Unknown(f"{name} is set after its module was read")
    return value


def _of_local(m: Machine, frame: Frame, assignment: Assignment) -> tuple[bool | None, Value]:
    """Whether an assignment to a variable runs, and its value."""
    runs = _runs(m, frame, assignment)
    if runs is False:
        return False, NONE
    value = ev.evaluate(m, frame, assignment.value)
    if assignment.index is not None:
        value = m.parts(value, assignment.count)[assignment.index]
    if assignment.annotation is not None:
        value = m.as_annotated(frame, value, assignment.annotation)
    return runs, m.element(value) if assignment.element else value


def _argument(m: Machine, frame: Frame, param: s.Param) -> Value:
    """What a parameter gets when the function runs as a part of making its object, or else by its type."""
    function = frame.function
    obj = frame.receiver
    if function.parameters and function.parameters[0] is param and function.owner is not None:
        return obj if obj is not None else Unknown("self")
    if isinstance(obj, Obj) and function.owner is not None and function.name == "__init__":
        given = _constructor_argument(m, obj, function, param)
        if given is not None:
            return given
    if isinstance(param.default, s.Const) and isinstance(param.default.value, bool):
        return Const(param.default.value)
    return m.by_type(function, param)


def _constructor_argument(m: Machine, obj: Obj, function: FunctionInfo, param: s.Param) -> Value | None:
    """The argument of ``__init__`` that the object's own constructor got, or that a subclass's hands on."""
    assert obj.cls is not None
    own = m.world.method(obj.cls, "__init__")
    if own is function:
        if obj.arguments is None:
            return None
        return parameters.bind_one(m, function, param, *obj.arguments)
    call = m.world.super_init(own, function) if own is not None else None
    if own is None or call is None:
        return None
    frame = m.lazy_frame(own, obj)
    positional = [ev.evaluate(m, frame, arg.value) for arg in call.args if arg.name is None]
    named = {arg.name: arg.value for arg in call.args if arg.name not in (None, "*", "**")}
    if param.name in named:
        return ev.evaluate(m, frame, named[param.name])
    return parameters.bind_one(m, function, param, positional, {})
