"""Statements: what they change, and how a block ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import calls, loops, narrowing, objects
from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.interpreter.frames import Flow
from sgltrace.index.shapes.interpreter.operators import binary
from sgltrace.index.shapes.interpreter.tests import truth
from sgltrace.index.shapes.symbolic.dims import ONE
from sgltrace.index.shapes.symbolic.joins import join_all, specialised
from sgltrace.index.shapes.symbolic.store import Changes
from sgltrace.index.shapes.symbolic.torchcall import elements
from sgltrace.index.shapes.symbolic.values import NONE, Given, Int, Obj, Run, Tensor, Unknown, Value, alternatives

if TYPE_CHECKING:
    from sgltrace.index.shapes.interpreter.frames import Frame
    from sgltrace.index.shapes.interpreter.machine import Machine


def block(m: Machine, frame: Frame, body: list[s.Stmt]) -> Flow:
    """Run statements until one leaves the block."""
    for statement in body:
        flow = _statement(m, frame, statement)
        if flow is not Flow.NEXT:
            return flow
    return Flow.NEXT


def _statement(m: Machine, frame: Frame, node: s.Stmt) -> Flow:
    m.spend()
    line = getattr(node, "line", 0)
    frame.line = line or frame.line
    match node:
        case s.Assign(targets=targets, value=value):
            result = ev.evaluate(m, frame, value)
            for target in targets:
                assign(m, frame, target, result, line)
            if isinstance(value, s.Bool | s.Cmp | s.Name) and isinstance(targets[0], s.Name):
                frame.implied[targets[0].id] = ev.given_by(m, frame, value)
        case s.AnnAssign(target=target, annotation=annotation, value=value):
            if value is not None:
                result = m.as_annotated(frame, ev.evaluate(m, frame, value), annotation)
                assign(m, frame, target, result, line)
        case s.AugAssign(target=target, op=op, value=value):
            old, operand = ev.evaluate(m, frame, target), ev.evaluate(m, frame, value)
            assign(m, frame, target, augmented(m, frame, op, old, operand), line)
        case s.ExprStmt(value=value):
            m.unused = value
            ev.evaluate(m, frame, value)
        case s.Return(value=value):
            frame.returns.append((NONE if value is None else ev.evaluate(m, frame, value), dict(frame.given)))
            return Flow.RETURN
        case s.Raise():
            return Flow.RAISE
        case s.Jump(kind=kind):
            return Flow.BREAK if kind == "break" else Flow.CONTINUE
        case s.Assert(test=test):
            narrowing.assume(m, frame, test)
        case s.If():
            return _if(m, frame, node)
        case s.For():
            return loops.for_loop(m, frame, node)
        case s.While():
            return loops.while_loop(m, frame, node)
        case s.With(items=items, body=body):
            for item in items:
                entered = calls.enter(m, frame, ev.evaluate(m, frame, item.value))
                if item.target is not None:
                    assign(m, frame, item.target, entered, line)
            return block(m, frame, body)
        case s.Try(body=body, orelse=orelse, final=final):
            flow = block(m, frame, body)
            if flow is Flow.NEXT:
                flow = block(m, frame, orelse)
            after = block(m, frame, final)
            return flow if after is Flow.NEXT else after
        case s.Match(cases=cases):
            return _branches(m, frame, [([*case.body], {}) for case in cases] + [([], {})])
        case s.Func():
            m.assign_name(frame, node.name, m.closure(frame, node))
        case _:
            pass
    return Flow.NEXT


def augmented(m: Machine, frame: Frame, op: str, old: Value, operand: Value) -> Value:
    """What ``old op= operand`` leaves; a tensor and a list change in place."""
    if isinstance(old, Obj) and old.kind == "list" and op == "+":
        m.extend(old, operand)
        return old
    if isinstance(old, Tensor) and old.shape is not None:
        return old
    return binary(m, frame, op, old, operand)


def _if(m: Machine, frame: Frame, node: s.If) -> Flow:
    known = truth(ev.evaluate(m, frame, node.test))
    if known is not None:
        return block(m, frame, node.body if known else node.orelse)
    given = ev.given_by(m, frame, node.test)
    opposite = ev.given_by_failure(m, frame, node.test)
    return _branches(m, frame, [(node.body, given), (node.orelse, opposite)], node.test)


def _branches(m: Machine, frame: Frame, branches: list[tuple[list[s.Stmt], Given]], test: s.Expr | None = None) -> Flow:
    """Run branches of which any may be taken, and go on with what they leave."""
    ends: list[tuple[Flow, Changes, Given]] = []
    outer, implied = frame.given, frame.implied
    implications: list[dict[str, Given]] = []
    for i, (body, given) in enumerate(branches):
        mark = m.store.mark()
        frame.given, frame.implied = {**outer, **given}, dict(implied)
        if test is not None:
            narrowing.narrow(m, frame, test, i == 0)
        flow = block(m, frame, body)
        ends.append((flow, m.store.undo(mark), given))
        if flow in (Flow.NEXT, Flow.BREAK, Flow.CONTINUE):
            implications.append(frame.implied)
    frame.given = outer
    falling = [(changes, given) for flow, changes, given in ends if flow in (Flow.NEXT, Flow.BREAK, Flow.CONTINUE)]
    returning = [(changes, given) for flow, changes, given in ends if flow is Flow.RETURN]
    frame.implied = _implied(m, frame, falling, implications)
    if falling:
        frame.exits += [(changes, given) for changes, given in returning]
        m.store.merge(falling)
        flows = {flow for flow, _, _ in ends if flow in (Flow.NEXT, Flow.BREAK, Flow.CONTINUE)}
        return flows.pop() if len(flows) == 1 else Flow.NEXT
    if returning:
        m.store.merge(returning)
        return Flow.RETURN
    return Flow.RAISE


def _implied(
    m: Machine, frame: Frame, ends: list[tuple[Changes, Given]], implications: list[dict[str, Given]]
) -> dict[str, Given]:
    """What variables imply behind branches: what they do at the end of each, or of the only one that sets them."""
    first, *rest = implications or [{}]
    found = {name: given for name, given in first.items() if all(other.get(name) == given for other in rest)}
    for i, (changes, given) in enumerate(ends):
        for key, value in changes.items():
            if key[0] == frame.number and value is not None and NONE not in alternatives(value):
                before = m.store.get(key)
                if all(other.get(key, before) == NONE for j, (other, _) in enumerate(ends) if j != i):
                    found[key[1]] = {**given, **implications[i].get(key[1], {})}
    return found


def assign(m: Machine, frame: Frame, target: s.Expr, value: Value, line: int) -> None:
    """``target = value``"""
    value = specialised(value, frame.given)
    match target:
        case s.Name(id=name):
            m.assign_name(frame, name, value, line)
        case s.Attr(value=base, attr=attr):
            for obj in alternatives(ev.evaluate(m, frame, base)):
                if isinstance(obj, Obj):
                    objects.set_field(m, frame, obj, attr, value, target.line)
        case s.Seq(items=items):
            _unpack(m, frame, items, value, line)
        case s.Sub(value=base, index=index):
            _set_item(m, frame, ev.evaluate(m, frame, base), ev.index_value(m, frame, index), value)
        case s.Star(value=inner):
            assign(m, frame, inner, value, line)


def _unpack(m: Machine, frame: Frame, targets: list[s.Expr], value: Value, line: int) -> None:
    whole = [part for part in alternatives(value) if part != NONE]
    parts = [_parts(m, part, targets) for part in whole] or [_parts(m, value, targets)]
    for i, target in enumerate(targets):
        assign(m, frame, target, join_all(part[i] for part in parts), line)


def _parts(m: Machine, value: Value, targets: list[s.Expr]) -> list[Value]:
    """The values that a sequence gives to so many targets, of which one may take the rest."""
    if isinstance(value, Tensor) and value.shape:
        row = Tensor(value.shape[1:], value.dtype, value.place, value.why)
        return [row] * len(targets)
    view = m.view(value)
    items = elements(view)
    star = next((i for i, target in enumerate(targets) if isinstance(target, s.Star)), None)
    if items is not None and star is not None and len(items) >= len(targets) - 1:
        after = len(targets) - star - 1
        middle = items[star : len(items) - after]
        return [*items[:star], m.new_list(tuple((item, ONE) for item in middle)), *items[len(items) - after :]]
    if items is not None and len(items) == len(targets):
        return list(items)
    if isinstance(view, Run) and len(view.segments) == 1:
        return [view.segments[0][0]] * len(targets)
    why = value.why if isinstance(value, Unknown) else "a part of a value that is unknown"
    return [Unknown(why)] * len(targets)


def _set_item(m: Machine, frame: Frame, base: Value, index: Value, value: Value) -> None:
    if isinstance(base, Obj) and base.kind == "dict":
        m.store.set((base.number, repr(index)), value)
    elif isinstance(base, Obj) and base.kind == "object":
        calls.method(m, frame, base, "__setitem__", [index, value], {}, frame.line)
    elif isinstance(base, Obj) and base.kind == "list":
        view = m.view(base)
        position = index.dim.constant if isinstance(index, Int) else None
        items = elements(view)
        if items is not None and position is not None and -len(items) <= position < len(items):
            changed = list(items)
            changed[position] = value
            m.set_list(base, tuple((item, ONE) for item in changed))
