"""Operations of torch and numpy, applied to values that may be one of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.interpreter import calls
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.symbolic.factories import FACTORIES, NEW, TYPED, typed
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.reductions import COMPUTATIONS
from sgltrace.index.shapes.symbolic.torchcall import Operation, TorchCall
from sgltrace.index.shapes.symbolic.values import (
    NONE,
    Const,
    Either,
    Tensor,
    Tuple,
    Unknown,
    Value,
)
from sgltrace.index.shapes.symbolic.views import VIEWS

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.machine import Machine

Args = list[Value]
TORCH: dict[str, Operation] = {**FACTORIES, **COMPUTATIONS, **VIEWS}
METHODS: dict[str, Operation] = {**COMPUTATIONS, **VIEWS, **NEW}


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
        choices = _choices(arg)
        if choices is not None:
            ways = [operate(m, frame, name, rule, [*args[:i], way, *args[i + 1 :]], kwargs, line) for way in choices]
            return join_all(ways) if ways else Unknown(f"{name} of None")
    views = [m.whole_view(arg) for arg in args]
    named = {key: calls.single(m.view(value)) for key, value in kwargs.items()}
    result = rule(TorchCall(name, views, named, frame.place(line)))
    out = named.get("out")
    return out if isinstance(out, Tensor) else result


def _choices(arg: Value) -> list[Value] | None:
    """The values that an argument may be, or a tuple (a size) with such a value in it; None where there is one."""
    if isinstance(arg, Either):
        return [way for way in arg.values if way != NONE]
    if isinstance(arg, Tuple):
        for i, item in enumerate(arg.items):
            if isinstance(item, Either):
                return [Tuple((*arg.items[:i], way, *arg.items[i + 1 :])) for way in item.values if way != NONE]
    return None
