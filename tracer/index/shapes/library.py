"""What is outside the program: Python's built-ins, the methods of its containers, torch, numpy, copy, dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sgltrace.index.shapes import calls, objects
from sgltrace.index.shapes.dims import ONE, ZERO, Dim, Op, atom, const, maximum, minimum, symbol
from sgltrace.index.shapes.factories import FACTORIES, NEW, TYPED, typed
from sgltrace.index.shapes.frames import Frame
from sgltrace.index.shapes.reductions import COMPUTATIONS
from sgltrace.index.shapes.tests import truth
from sgltrace.index.shapes.torchcall import Operation, TorchCall, elements, segments
from sgltrace.index.shapes.values import (
    A_NUMBER,
    NONE,
    Const,
    Either,
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
    join_all,
    number,
)
from sgltrace.index.shapes.views import VIEWS

if TYPE_CHECKING:
    from sgltrace.index.shapes.machine import Machine

Args = list[Value]
DEFAULT = "default"
"""The key under which a dict keeps what makes a value that is missing."""
TORCH: dict[str, Operation] = {**FACTORIES, **COMPUTATIONS, **VIEWS}
METHODS: dict[str, Operation] = {**COMPUTATIONS, **VIEWS, **NEW}
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


def torch(m: Machine, frame: Frame, name: str, args: Args, kwargs: dict[str, Value], line: int) -> Value:
    """A function of torch's or numpy's; where an argument may be one of several, each in turn."""
    rule = typed if name in TYPED else TORCH.get(name)
    if name == "Size":
        return m.view(args[0]) if args else Tuple(())
    if name in ("is_tensor",):
        return Const(isinstance(args[0], Tensor)) if args and not isinstance(args[0], Unknown) else Unknown("a test")
    return operate(m, frame, name, rule, args, kwargs, line)


def operate(
    m: Machine,
    frame: Frame,
    name: str,
    rule: Operation | None,
    args: Args,
    kwargs: dict[str, Value],
    line: int,
) -> Value:
    """Apply an operation, to each of the values that its first alternative argument may be."""
    if rule is None:
        return Unknown(f"torch's {name} is not modelled")
    for i, arg in enumerate(args):
        if isinstance(arg, Either):
            ways = [operate(m, frame, name, rule, [*args[:i], way, *args[i + 1 :]], kwargs, line)
                    for way in arg.values if way != NONE]  # fmt: skip
            return join_all(ways) if ways else Unknown(f"{name} of None")
    views = [m.whole_view(arg) for arg in args]
    named = {key: calls.single(m.view(value)) for key, value in kwargs.items()}
    result = rule(TorchCall(name, views, named, frame.place(line)))
    out = named.get("out")
    return out if isinstance(out, Tensor) else result


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
        from sgltrace.index.shapes import models

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
    from sgltrace.index.shapes.loops import turns

    runs = turns(m, args[0])
    if all(count == ONE for _, count in runs):
        return Tuple(tuple(Tuple((Int(const(i)), value)) for i, (value, _) in enumerate(runs)))
    return Run(tuple((Tuple((Int(symbol("i")), value)), count) for value, count in runs))


def _zip(m: Machine, frame: Frame, args: Args, kwargs: dict[str, Value]) -> Value:
    from sgltrace.index.shapes.loops import UNCOUNTED, turns

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
