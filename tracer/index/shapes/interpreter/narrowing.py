"""What a test that holds says of the variables and fields in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.symbolic.joins import join_all
from sgltrace.index.shapes.symbolic.values import (
    NONE,
    Either,
    Int,
    Obj,
    Ref,
    Tensor,
    Tuple,
    alternatives,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.machine import Machine


def assume(m: Machine, frame: Frame, test: s.Expr) -> None:
    """An ``assert``: what it says counts from here on."""
    ev.evaluate(m, frame, test)
    narrow(m, frame, test, True)


def narrow(m: Machine, frame: Frame, test: s.Expr, holds: bool) -> None:
    """Take a test to hold, or not to."""
    if isinstance(test, s.Unary) and test.op == "not":
        narrow(m, frame, test.value, not holds)
    elif isinstance(test, s.Bool) and (test.op == "and") is holds:
        narrow(m, frame, test.left, holds)
        narrow(m, frame, test.right, holds)
    elif isinstance(test, s.Cmp) and test.ops in (["is"], ["is not"]) and _is_none(test.rights[0]):
        _keep(m, frame, test.left, (test.ops == ["is"]) is holds)
    elif isinstance(test, s.Cmp) and test.ops == ["=="] and holds:
        _keep_shape(m, frame, test.left, test.rights[0])
    elif isinstance(test, s.Call) and holds and isinstance(test.func, s.Name) and test.func.id == "isinstance":
        _narrow_class(m, frame, test)
    elif isinstance(test, s.Name | s.Attr) and holds:
        _keep(m, frame, test, False)


def _narrow_class(m: Machine, frame: Frame, test: s.Call) -> None:
    if len(test.args) == 2:
        cls = ev.evaluate(m, frame, test.args[1].value)
        if isinstance(cls, Ref) and cls.kind == "class":
            m.narrowed_to(ev.evaluate(m, frame, test.args[0].value), [cls.info])


def _keep_shape(m: Machine, frame: Frame, left: s.Expr, right: s.Expr) -> None:
    """``x.shape == (a, b)``: of the tensors that ``x`` may be, keep those of the shape, if any are."""
    if not isinstance(left, s.Attr) or left.attr != "shape" or not isinstance(left.value, s.Name):
        return
    value = ev.evaluate(m, frame, left.value)
    shape = ev.evaluate(m, frame, right)
    if isinstance(value, Either) and isinstance(shape, Tuple):
        dims = tuple(item.dim if isinstance(item, Int) else None for item in shape.items)
        fitting = [part for part in value.values if isinstance(part, Tensor) and part.shape == dims]
        if fitting:
            m.store.set((frame.number, left.value.id), join_all(fitting))


def _keep(m: Machine, frame: Frame, node: s.Expr, none: bool) -> None:
    """Of the values that a variable or field may have, keep None or the others."""
    if not isinstance(node, s.Name | s.Attr):
        return
    value = ev.evaluate(m, frame, node)
    if not isinstance(value, Either) or NONE not in value.values:
        return
    kept = NONE if none else join_all(part for part in value.values if part != NONE)
    if isinstance(node, s.Name):
        m.store.set((frame.number, node.id), kept)
    else:
        for obj in alternatives(ev.evaluate(m, frame, node.value)):
            if isinstance(obj, Obj):
                m.store.set((obj.number, node.attr), kept)


def _is_none(node: s.Expr) -> bool:
    return isinstance(node, s.Const) and node.value is None
