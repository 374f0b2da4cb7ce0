"""Conditions: what is true, false or open, and what follows for the values that were tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.shapes.symbolic.values import (
    NONE,
    Const,
    Either,
    Int,
    Member,
    Obj,
    Range,
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


def truth(value: Value) -> bool | None:
    """Whether a value is true; None where that is open."""
    match value:
        case Const(value=inner):
            return bool(inner)
        case Int(dim=dim):
            return bool(dim.constant) if dim.constant is not None else (True if dim.is_positive else None)
        case Either(values=values):
            answers = {truth(part) for part in values}
            return answers.pop() if len(answers) == 1 else None
        case Obj(kind="object") | Ref() | Member():
            return True
        case Tuple(items=items):
            return bool(items)
    return None


def compare(m: Machine, op: str, left: Value, right: Value) -> bool | None:
    """``left op right``; None where that is open."""
    if isinstance(left, Either) or isinstance(right, Either):
        answers = {compare(m, op, a, b) for a in alternatives(left) for b in alternatives(right)}
        return answers.pop() if len(answers) == 1 else None
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return None
    if op in ("is", "is not", "==", "!="):
        same = _same(left, right)
        return same if same is None or op in ("is", "==") else not same
    if op in ("in", "not in"):
        found = _contains(m, left, right)
        return found if found is None or op == "in" else not found
    if isinstance(left, Int) and isinstance(right, Int):
        return _ordered(op, left, right)
    return None


def _ordered(op: str, left: Int, right: Int) -> bool | None:
    difference = left.dim - right.dim
    gap = difference.constant
    if gap is None:
        gap = 1 if difference.is_positive else -1 if (-difference).is_positive else None
    if gap is None:
        return None
    match op:
        case "<":
            return gap < 0
        case "<=":
            return gap <= 0
        case ">":
            return gap > 0
        case ">=":
            return gap >= 0
    return None


def _same(left: Value, right: Value) -> bool | None:
    if left == NONE or right == NONE:
        return left == right
    if isinstance(left, Const) and isinstance(right, Const):
        return bool(left.value == right.value)
    if isinstance(left, Int) and isinstance(right, Int):
        difference = left.dim - right.dim
        if difference.is_positive or (-difference).is_positive:
            return False
        return None if difference.constant is None else difference.constant == 0
    if isinstance(left, Member) and isinstance(right, Member):
        return left == right
    if isinstance(left, Obj) and isinstance(right, Obj):
        return True if left is right else None
    if isinstance(left, Ref) and isinstance(right, Ref):
        return left == right
    return None if type(left) is type(right) else _of_kinds(left, right)


def _of_kinds(left: Value, right: Value) -> bool | None:
    apart = (Member, Ref, Obj, Tensor, Tuple, Run, Range)
    return False if isinstance(left, apart) and isinstance(right, apart) else None


def _contains(m: Machine, item: Value, container: Value) -> bool | None:
    listed = m.view(container)
    if not isinstance(listed, Tuple):
        return None
    answers = [compare(m, "==", item, other) for other in listed.items]
    if True in answers:
        return True
    return False if all(answer is False for answer in answers) else None
