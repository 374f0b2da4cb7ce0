"""Loops and comprehensions: run for each element where they are few, else once for all with the effects scaled.

A loop over ``n`` elements runs its first turn as it is where the turn's number may matter, then one turn that stands
for all others. What that turn adds to a number is added once for each element; what it appends to a list stands
there that often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.shapes.interpreter import evaluate as ev
from sgltrace.index.shapes.interpreter import execute as ex
from sgltrace.index.shapes.interpreter.frames import Flow
from sgltrace.index.shapes.interpreter.tests import truth
from sgltrace.index.shapes.symbolic.dims import ONE, ZERO, Dim, Op, atom, some_of, symbol, times
from sgltrace.index.shapes.symbolic.joins import join
from sgltrace.index.shapes.symbolic.torchcall import elements
from sgltrace.index.shapes.symbolic.values import NONE, Either, Int, Range, Run, Tensor, Tuple, Unknown, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from sgltrace.index.shapes.interpreter.frames import Frame
    from sgltrace.index.shapes.interpreter.machine import Machine
    from sgltrace.index.shapes.symbolic.store import Changes, Key

FEW = 6
"""Up to so many elements, each has its own turn."""
UNCOUNTED = symbol("unknown_count")


def turns(m: Machine, value: Value) -> list[tuple[Value, Dim]]:
    """What a loop over a value gives: elements, and for how many turns in a row each stands."""
    if isinstance(value, Either):
        views = [m.view(part) for part in value.values if part != NONE and not isinstance(part, Unknown)]
        filled = [view for view in views if view != Tuple(())]
        value = (filled or views or [value])[0]
    value = m.view(value)
    if isinstance(value, Tuple):
        return [(item, ONE) for item in value.items]
    if isinstance(value, Run):
        return _separate(value)
    if isinstance(value, Range):
        return _numbers(value)
    if isinstance(value, Tensor) and value.shape:
        size = value.shape[0]
        return [(Tensor(value.shape[1:], value.dtype, value.place, value.why), size or UNCOUNTED)]
    if isinstance(value, Unknown):
        return [(value, UNCOUNTED)]
    return [(Unknown("an element of a value that is not followed"), UNCOUNTED)]


def _separate(run: Run) -> list[tuple[Value, Dim]]:
    whole = elements(run)
    if whole is not None and len(whole) <= FEW:
        return [(item, ONE) for item in whole]
    return list(run.segments)


def _numbers(numbers: Range) -> list[tuple[Value, Dim]]:
    """The first number by itself, the others as one symbol: code often treats the first turn apart."""
    count = numbers.count
    if count.constant is not None and count.constant <= FEW:
        return [(Int(numbers.start + _times(i, numbers.step)), ONE) for i in range(max(count.constant, 0))]
    rest = Int(numbers.start + symbol("i") * numbers.step)
    return [(Int(numbers.start), ONE), (rest, count - ONE)]


def _times(count: int, step: Dim) -> Dim:
    total = ZERO
    for _ in range(count):
        total = total + step
    return total


def for_loop(m: Machine, frame: Frame, node: s.For) -> Flow:
    """``for target in iter``"""
    flow = Flow.NEXT
    for element, count in turns(m, ev.evaluate(m, frame, node.iter)):
        flow = run_turns(m, frame, node.body, count, lambda e=element: ex.assign(m, frame, node.target, e, node.line))  # type: ignore[misc]
        if flow is Flow.RETURN:
            return flow
        if flow is Flow.BREAK:
            break
    m.stages.on_loop_end()
    if flow is Flow.BREAK:
        return Flow.NEXT
    return ex.block(m, frame, node.orelse)


def while_loop(m: Machine, frame: Frame, node: s.While) -> Flow:
    """``while test``: one turn that stands for an unknown number."""
    if truth(ev.evaluate(m, frame, node.test)) is False:
        return ex.block(m, frame, node.orelse)
    flow = run_turns(m, frame, node.body, UNCOUNTED, lambda: None)
    return flow if flow is Flow.RETURN else Flow.NEXT


def run_turns(m: Machine, frame: Frame, body: list[s.Stmt], count: Dim, begin: Callable[[], None]) -> Flow:
    """Run a loop's body as ``count`` turns in a row."""
    if count == ZERO:
        return Flow.NEXT
    if count == ONE:
        begin()
        flow = ex.block(m, frame, body)
        return Flow.NEXT if flow is Flow.CONTINUE else flow
    mark = m.store.mark()
    returns, exits = len(frame.returns), len(frame.exits)
    written = m.records.mark()
    begin()
    flow = ex.block(m, frame, body)
    if flow in (Flow.RETURN, Flow.RAISE):
        return flow
    changes = m.store.changed_since(mark)
    if _carries(m, mark, changes):
        # The second turn begins with what the first left: run it from there, from the state both may find.
        m.store.undo(mark)
        del frame.returns[returns:], frame.exits[exits:]
        m.records.back_to(written)
        _widen(m, changes)
        mark = m.store.mark()
        begin()
        flow = ex.block(m, frame, body)
    scale(m, m.store.originals(mark), m.store.changed_since(mark), count)
    return Flow.NEXT if flow in (Flow.CONTINUE, Flow.BREAK) else flow


def _carries(m: Machine, mark: int, changes: Changes) -> bool:
    originals = m.store.originals(mark)
    return any(
        originals[key] is not None
        and value is not None
        and type(value) not in (Int, Run, Unknown)
        and value != originals[key]
        for key, value in changes.items()
    )


def _widen(m: Machine, changes: Changes) -> None:
    for key, value in changes.items():
        old = m.store.get(key)
        if old is None or value is None or type(value) in (Int, Run, Unknown):
            continue
        m.store.set(key, value if old == NONE else join(old, value))


def scale(m: Machine, originals: dict[Key, Value | None], changes: Changes, count: Dim) -> None:
    """Make of the effects of one turn those of ``count`` turns."""
    for key, value in changes.items():
        old = originals[key]
        if isinstance(value, Int) and isinstance(old, Int):
            if not m.is_of_each(key):
                m.store.set(key, Int(old.dim + added(m, value.dim - old.dim, count)))
        elif isinstance(value, Run) and isinstance(old, Run):
            kept = len(old.segments)
            if value.segments[:kept] == old.segments:
                tail = tuple((item, times(each, count)) for item, each in value.segments[kept:])
                m.store.set(key, Run(old.segments + tail))


def added(m: Machine, step: Dim, count: Dim) -> Dim:
    """What ``step`` in each of ``count`` turns adds up to."""
    if step.symbols() & m.each_symbols:
        return atom(Op("sum", (step,)))
    if "i" in step.symbols():
        return atom(Op("sum", (step, count)))
    return step * count


def comprehension(m: Machine, frame: Frame, node: s.Comp) -> Value:
    """A list, set, dict or generator made by a comprehension. A dict is not followed."""
    segments: list[tuple[Value, Dim]] = []
    inner = m.nested(frame)
    _generate(m, inner, node, 0, ONE, segments)
    if node.kind == "dict":
        return Unknown("a dict made in a loop")
    if node.kind == "set":
        return Unknown("a set")
    merged: list[tuple[Value, Dim]] = []
    for value, count in segments:
        if merged and merged[-1][0] == value:
            merged[-1] = (value, merged[-1][1] + count)
        else:
            merged.append((value, count))
    return m.new_list(tuple(merged)) if node.kind == "list" else Run(tuple(merged))


def _generate(m: Machine, frame: Frame, node: s.Comp, depth: int, count: Dim, out: list[tuple[Value, Dim]]) -> None:
    if depth == len(node.gens):
        out.append((ev.evaluate(m, frame, node.element), count))
        return
    gen = node.gens[depth]
    for element, each in turns(m, ev.evaluate(m, frame, gen.iter)):
        ex.assign(m, frame, gen.target, element, frame.line)
        answers = [truth(ev.evaluate(m, frame, test)) for test in gen.tests]
        if False in answers:
            continue
        total = count * each
        if None in answers:
            total = some_of(total)
        _generate(m, frame, node, depth + 1, total, out)
