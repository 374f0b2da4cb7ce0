"""Python's built-in functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sgltrace.index.shapes.interpreter import calls, objects
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.interpreter.tests import truth
from sgltrace.index.shapes.symbolic.dims import ONE, ZERO, Dim, Op, atom, const, maximum, minimum, symbol
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.torchcall import elements, segments
from sgltrace.index.shapes.symbolic.values import (
    A_NUMBER,
    NONE,
    Const,
    Int,
    Obj,
    Range,
    Run,
    Span,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
    number,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.machine import Machine
from sgltrace.index.shapes.interpreter.containers import length
from sgltrace.index.shapes.interpreter.operations import Args


def _len(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    value = calls.single(args[0]) if args else NONE
    if isinstance(value, Obj) and value.kind == "object":
        result = calls.method(m, frame, value, "__len__", [], {}, frame.line)
        return result if result is not None else A_NUMBER
    return length(m, value)


def _range(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    dims = [arg.dim if isinstance(arg, Int) else None for arg in args]
    if None in dims or not dims:
        return Unknown("a range of unknown length")
    known = [dim for dim in dims if dim is not None]
    if len(known) == 1:
        return Range(ZERO, known[0])
    return Range(*known[:3])


def _extreme(pick: Callable[[list[Dim]], Dim]) -> Callable[[Machine, Frame, Args, dict[str, Value]], Value]:
    def rule(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
        values = list(args)
        if len(args) == 1:
            runs = segments(m.view(args[0]))
            if not runs:
                return kwargs.get("default", A_NUMBER) if not runs and "default" in kwargs else A_NUMBER
            values = [value for value, _ in runs]
        dims = [part.dim for value in values for part in alternatives(value) if isinstance(part, Int)]
        whole = all(isinstance(part, Int) for value in values for part in alternatives(value))
        return Int(pick(dims)) if dims and whole else A_NUMBER

    return rule


def _sum(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    runs = segments(m.view(args[0])) if args else None
    if runs is None:
        return A_NUMBER
    total = ZERO
    for value, count in runs:
        if not isinstance(value, Int):
            return A_NUMBER
        each = value.dim.symbols() & m.each_symbols
        total = total + (atom(Op("sum", (value.dim,))) if each else value.dim * count)
    return Int(total)


def _enumerate(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    from sgltrace.index.shapes.interpreter.loops import turns

    runs = turns(m, args[0])
    if all(count == ONE for _, count in runs):
        return Tuple(tuple(Tuple((Int(const(i)), value)) for i, (value, _) in enumerate(runs)))
    return Run(tuple((Tuple((Int(symbol("i")), value)), count) for value, count in runs))


def _zip(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    from sgltrace.index.shapes.interpreter.loops import UNCOUNTED, turns

    columns = [turns(m, arg) for arg in args]
    if columns and len({len(column) for column in columns}) == 1:
        rows = zip(*columns, strict=True)
        return Run(tuple((Tuple(tuple(value for value, _ in row)), row[0][1]) for row in rows))
    firsts = tuple(join_all(value for value, _ in column) if column else Unknown("nothing") for column in columns)
    known = next((m.view(arg) for arg in args if length(m, arg) != A_NUMBER), None)
    count = length(m, known) if known is not None else None
    return Run(((Tuple(firsts), count.dim if isinstance(count, Int) else UNCOUNTED),))


def _list(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    if not args:
        return m.new_list(())
    runs = segments(m.view(args[0]))
    return m.new_list(runs) if runs is not None else Unknown("a list of something that is unknown")


def _tuple(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    return m.view(args[0]) if args else Tuple(())


def _dict(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    made = Obj(None, "dict", "dict")
    for name, value in kwargs.items():
        m.store.set((made.number, repr(Const(name))), value)
    return made


def _isinstance(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    if len(args) != 2:
        return Unknown("a test")
    classes = elements(m.view(args[1])) or (args[1],)
    answers = {m.is_instance(value, cls) for value in alternatives(args[0]) for cls in classes}
    if True in answers and len(alternatives(args[0])) == 1:
        return Const(True)
    return Const(answers.pop()) if len(answers) == 1 and None not in answers else Unknown("a test")


def _getattr(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    if len(args) < 2 or not isinstance(args[1], Const) or not isinstance(args[1].value, str):
        return Unknown("an attribute by a name that is not known")
    found = [objects.get_field(m, frame, obj, args[1].value, frame.line)
             for obj in alternatives(args[0]) if isinstance(obj, Obj) and obj.kind == "object"]  # fmt: skip
    known = [value for value in found if not isinstance(value, Unknown)]
    if known:
        return join_all(known)
    if len(args) == 3 and not isinstance(args[0], Unknown) and not found:
        return args[2]
    return m.configured(args[1].value, args[0])


def _hasattr(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    return Unknown("a test")


def _quantifier(name: str) -> Callable[[Machine, Frame, Args, dict[str, Value]], Value]:
    def rule(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
        runs = segments(m.view(args[0])) if args else None
        answers = {truth(value) for value, _ in runs} if runs is not None else {None}
        decisive = name == "any"
        if decisive in answers:
            return Const(decisive)
        return Unknown("a test") if None in answers else Const(not decisive)

    return rule


def _to_int(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    value = calls.single(args[0]) if args else number(0)
    if isinstance(value, Const) and isinstance(value.value, bool | float):
        return number(int(value.value))
    if isinstance(value, Tensor):
        return A_NUMBER
    return value if isinstance(value, Int) else A_NUMBER


def _to_bool(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    known = truth(args[0]) if args else False
    return Const(known) if known is not None else Unknown("a condition")


def _slice(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    bounds: list[Value | None] = [None if arg == NONE else arg for arg in args]
    if len(bounds) == 1:
        return Span(None, bounds[0])
    return Span(*bounds[:3]) if bounds else Span(None, None)


def _same(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    return m.view(args[0]) if args else Unknown("nothing")


def _type(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    value = calls.single(args[0]) if args else NONE
    return m.class_ref(value.cls) if isinstance(value, Obj) and value.cls is not None else Unknown("a class")


BUILTINS: dict[str, Callable[[Machine, Frame, Args, dict[str, Value]], Value]] = {
    "len": _len, "range": _range, "max": _extreme(maximum), "min": _extreme(minimum), "sum": _sum,
    "enumerate": _enumerate, "zip": _zip, "list": _list, "tuple": _tuple, "dict": _dict, "isinstance": _isinstance,
    "getattr": _getattr, "hasattr": _hasattr, "any": _quantifier("any"), "all": _quantifier("all"), "int": _to_int,
    "bool": _to_bool, "slice": _slice, "sorted": _same, "reversed": _same, "iter": _same, "type": _type,
    "print": lambda m, frame, args, kwargs: NONE, "abs": _same,
}  # fmt: skip
