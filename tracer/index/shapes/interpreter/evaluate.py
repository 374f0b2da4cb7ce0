"""Expressions: what one gives in a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import calls, library, loops, narrowing, objects
from sgltrace.index.shapes.interpreter.operators import binary
from sgltrace.index.shapes.interpreter.tests import compare, truth
from sgltrace.index.shapes.symbolic.dims import Dim, const, symbol
from sgltrace.index.shapes.symbolic.indexing import element_of, subscript
from sgltrace.index.shapes.symbolic.joins import join, join_all
from sgltrace.index.shapes.symbolic.reductions import elementwise
from sgltrace.index.shapes.symbolic.torchcall import TorchCall, elements, segments
from sgltrace.index.shapes.symbolic.values import (
    FALSE,
    NONE,
    TRUE,
    Const,
    Either,
    Given,
    Int,
    Obj,
    Run,
    Span,
    Tensor,
    Tuple,
    Unknown,
    Value,
    alternatives,
)

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.frames import Frame
    from sgltrace.index.shapes.interpreter.machine import Machine


def evaluate(m: Machine, frame: Frame, node: s.Expr) -> Value:
    """The value of an expression; what it writes (a walrus, a call's effects) is in the store afterwards."""
    match node:
        case s.Name(id=name):
            return m.variable(frame, name, node)
        case s.Attr(value=base, attr=attr):
            frame.line = node.line
            return objects.attribute(m, frame, evaluate(m, frame, base), attr, node)
        case s.Const(value=value):
            return Int(const(value)) if type(value) is int else Const(value)
        case s.Call():
            return calls.call(m, frame, node)
        case s.Sub(value=base, index=index):
            return index_into(m, frame, evaluate(m, frame, base), index_value(m, frame, index), node.line)
        case s.Bin(op=op, left=left, right=right):
            return binary(m, frame, op, evaluate(m, frame, left), evaluate(m, frame, right))
        case s.Bool(op=op, left=left, right=right):
            return _boolean(m, frame, op, left, right)
        case s.Cmp(left=left, ops=ops, rights=rights):
            return _comparison(m, frame, left, ops, rights)
        case s.Unary(op=op, value=operand):
            return _unary(m, frame, op, evaluate(m, frame, operand))
        case s.Cond(body=body, test=test, orelse=orelse):
            return _conditional(m, frame, body, test, orelse)
        case s.Seq(kind=kind, items=items):
            return _display(m, frame, kind, items)
        case s.Map(keys=keys, values=values):
            return _dict(m, frame, keys, values)
        case s.Comp():
            return loops.comprehension(m, frame, node)
        case s.Walrus(target=target, value=inner):
            named = evaluate(m, frame, inner)
            m.assign_name(frame, target, named)
            return named
        case s.Lambda():
            return m.closure(frame, node)
        case s.Star(value=inner):
            return evaluate(m, frame, inner)
        case s.Ellipsis_():
            return Const(Ellipsis)
        case s.Format():
            return Unknown("a text")
        case s.Await(value=inner) if inner is not None:
            return evaluate(m, frame, inner)
    return Unknown("not a value")


def index_value(m: Machine, frame: Frame, node: s.Expr) -> Value:
    """The value of a subscript, with its slices."""
    if isinstance(node, s.Slice):
        parts = [None if part is None else evaluate(m, frame, part) for part in (node.lower, node.upper, node.step)]
        return Span(*parts)
    if isinstance(node, s.Seq) and node.kind == "tuple":
        return Tuple(tuple(index_value(m, frame, item) for item in node.items))
    return m.view(evaluate(m, frame, node))


def index_into(m: Machine, frame: Frame, base: Value, index: Value, line: int) -> Value:
    """``base[index]``"""
    place = frame.place(line)
    if isinstance(base, Either):
        return join_all(index_into(m, frame, value, index, line) for value in base.values if value != NONE)
    if isinstance(base, Tensor):
        if isinstance(index, Either):
            return join_all(index_into(m, frame, base, value, line) for value in index.values)
        return subscript(base, index, place)
    if isinstance(base, Obj):
        if base.kind == "dict":
            return _entry(m, frame, base, index, line)
        if base.kind == "object":
            return calls.method(m, frame, base, "__getitem__", [index], {}, line) or Unknown(
                f"a subscript of {base.name or base}"
            )
    found = element_of(m.view(base), index)
    if isinstance(base, Obj) and isinstance(index, Span):  # a list of its own
        runs = segments(found)
        return m.new_list(runs) if runs is not None else found
    return found


def _entry(m: Machine, frame: Frame, base: Obj, index: Value, line: int) -> Value:
    """``dict[key]``"""
    found = m.store.get((base.number, repr(index)))
    if found is not None:
        return found
    default = m.store.get((base.number, library.DEFAULT))
    if default is not None and isinstance(index, Const):
        return calls.call_ref(m, frame, default, [], {}, line)
    entries = [value for name, value in m.fields_of(base) if name != library.DEFAULT]
    return join_all(entries) if entries and not isinstance(index, Const) else Unknown("a key that is not known here")


def _boolean(m: Machine, frame: Frame, op: str, left: s.Expr, right: s.Expr) -> Value:
    first = evaluate(m, frame, left)
    known = truth(first)
    if known is (op == "or"):
        return first
    second = evaluate(m, frame, right)
    if known is not None:
        return second
    if op == "or" and isinstance(first, Int | Either):
        # ``x or 1``: what is given or else a default; the formula is what matters.
        kept = [value for value in alternatives(first) if value not in (NONE, FALSE)]
        return join_all(kept) if kept else second
    if truth(second) is (op == "or"):
        return Unknown("a condition") if op == "and" else second
    if truth(second) is False and op == "and":
        return FALSE
    return Unknown("a condition") if not isinstance(second, Tensor | Obj) else join(first, second)


def _comparison(m: Machine, frame: Frame, left: s.Expr, ops: list[str], rights: list[s.Expr]) -> Value:
    first = evaluate(m, frame, left)
    results = []
    for op, right in zip(ops, rights, strict=True):
        second = evaluate(m, frame, right)
        if op not in ("is", "is not", "in", "not in") and (isinstance(first, Tensor) or isinstance(second, Tensor)):
            shaped = elementwise(TorchCall(op, [first, second], {}, frame.place()))
            return Tensor(shaped.shape, "bool", shaped.place, shaped.why) if isinstance(shaped, Tensor) else shaped
        results.append(compare(m, op, first, second))
        first = second
    if any(result is False for result in results):
        return FALSE
    return TRUE if all(result is True for result in results) else Unknown("a condition")


def _unary(m: Machine, frame: Frame, op: str, value: Value) -> Value:
    if op == "not":
        known = truth(value)
        return Unknown("a condition") if known is None else Const(not known)
    if isinstance(value, Either):
        return join_all(_unary(m, frame, op, part) for part in value.values)
    if isinstance(value, Int) and op == "-":
        return Int(-value.dim)
    if isinstance(value, Const) and isinstance(value.value, float) and op == "-":
        return Const(-value.value)
    if isinstance(value, Tensor):
        return Tensor(value.shape, value.dtype, frame.place(), value.why)
    return value


def _conditional(m: Machine, frame: Frame, body: s.Expr, test: s.Expr, orelse: s.Expr) -> Value:
    known = truth(evaluate(m, frame, test))
    if known is not None:
        return evaluate(m, frame, body if known else orelse)
    given, otherwise = given_by(m, frame, test), given_by_failure(m, frame, test)
    mark = m.store.mark()
    narrowing.narrow(m, frame, test, True)
    first = evaluate(m, frame, body)
    ones = tuple((name, dim) for name, dim in given.items() if dim == const(1))
    if ones and isinstance(first, Int):
        first = Int(first.dim, ones)
    left = m.store.undo(mark)
    narrowing.narrow(m, frame, test, False)
    second = evaluate(m, frame, orelse)
    m.store.merge([(left, given), (m.store.undo(mark), otherwise)])
    return join(second, first, otherwise) if otherwise else join(first, second, given)


def given_by(m: Machine, frame: Frame, test: s.Expr) -> Given:
    """What a test takes for granted where it holds: ``topk == 1``, ``bs == raw_bs`` say what a symbol is."""
    if isinstance(test, s.Bool) and test.op == "and":
        return {**given_by(m, frame, test.left), **given_by(m, frame, test.right)}
    if isinstance(test, s.Name):
        return frame.implied.get(test.id, {})
    if isinstance(test, s.Cmp) and test.ops == ["is not"] and isinstance(test.left, s.Name):
        return frame.implied.get(test.left.id, {})
    if isinstance(test, s.Cmp) and test.ops == ["=="]:
        left, right = evaluate(m, frame, test.left), evaluate(m, frame, test.rights[0])
        if isinstance(left, Int) and isinstance(right, Int):
            for one, other in ((left.dim, right.dim), (right.dim, left.dim)):
                names = one.symbols()
                if len(names) == 1 and one == symbol(next(iter(names))):
                    return {next(iter(names)): other}
    return {}


def given_by_failure(m: Machine, frame: Frame, test: s.Expr) -> Given:
    """``topk > 1`` that does not hold means 1, as sizes are positive; ``topk != 1`` likewise."""
    if isinstance(test, s.Cmp) and test.ops == ["is"] and isinstance(test.left, s.Name):
        return frame.implied.get(test.left.id, {})
    if isinstance(test, s.Cmp) and test.ops in ([">"], ["!="]):
        left, right = evaluate(m, frame, test.left), evaluate(m, frame, test.rights[0])
        if isinstance(left, Int) and isinstance(right, Int):
            names = left.dim.symbols()
            if len(names) == 1 and str(left.dim) in names and (test.ops == ["!="] or right.dim == const(1)):
                return {next(iter(names)): right.dim}
    return {}


def _display(m: Machine, frame: Frame, kind: str, items: list[s.Expr]) -> Value:
    runs: list[tuple[Value, Dim]] = []
    for item in items:
        if isinstance(item, s.Star):
            inner = m.view(evaluate(m, frame, item.value))
            parts = elements(inner)
            if parts is None and isinstance(inner, Run):
                runs += inner.segments
            elif parts is None:
                return Unknown("a sequence with unknown parts")
            else:
                runs += [(part, const(1)) for part in parts]
        else:
            runs.append((evaluate(m, frame, item), const(1)))
    if kind == "tuple":
        if all(count == const(1) for _, count in runs):
            return Tuple(tuple(value for value, _ in runs))
        return Run(tuple(runs))
    if kind == "set":
        return Unknown("a set")
    return m.new_list(tuple(runs))


def _dict(m: Machine, frame: Frame, keys: list[s.Expr | None], values: list[s.Expr]) -> Value:
    made = Obj(None, kind="dict")
    for key, value in zip(keys, values, strict=True):
        result = evaluate(m, frame, value)
        if key is not None:
            m.store.set((made.number, repr(evaluate(m, frame, key))), result)
        elif isinstance(result, Obj) and result.kind == "dict":
            for name, inner in m.fields_of(result):
                m.store.set((made.number, name), inner)
    return made
