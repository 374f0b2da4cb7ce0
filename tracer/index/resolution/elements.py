"""Iteration, subscripts, unpacking and special methods."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.calls import invoke
from sgltrace.index.resolution.containers import sliced
from sgltrace.index.resolution.uses import Args, Use
from sgltrace.index.resolution.values import (
    OPAQUE,
    Bound,
    ClassRef,
    Container,
    External,
    FunctionRef,
    Instance,
    Node,
    Text,
    Value,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine


def special_method(
    engine: Engine, value: Instance, name: str, use: Use, args: Args, result: Node, kind: str = "special_method"
) -> bool:
    """Call a special method of an object's class; whether the class has it."""
    functions = engine.classes.methods(value.cls, name)
    if not functions and engine.classes.has_outside(value.cls):
        engine.solver.add(result, OPAQUE)
    for function in functions:
        use.dispatch = True
        invoke(engine, use, function, value, args, result, kind)
    return bool(functions)


def iterate(engine: Engine, node: Node, target: Node, use: Use) -> None:
    """The elements of what is in ``node`` go into ``target``."""
    use.base = node
    engine.solver.watch(node, partial(_iterate, engine, target, use))


def _iterate(engine: Engine, target: Node, use: Use, value: Value) -> None:
    if isinstance(value, Container):
        engine.solver.link(value.keys if value.kind == "dict" else value.whole, target)
    elif isinstance(value, Instance):
        returned = Node()
        if special_method(engine, value, "__iter__", use, [], returned):
            engine.solver.watch(returned, partial(_advance, engine, target, use))
        elif value.cls.is_record:
            for name in engine.classes.record_fields(value.cls):
                engine.solver.link(engine.classes.read(value.cls, name), target)
        elif returned.values:
            engine.solver.add(target, OPAQUE)
    elif isinstance(value, ClassRef) and value.cls.is_enum:
        engine.solver.add(target, value.cls.instance)
    elif isinstance(value, (External, Text)):
        engine.solver.add(target, OPAQUE)


def advance(engine: Engine, iterator: Node, target: Node, use: Use) -> None:
    """What the next step of an iterator gives goes into ``target``."""
    engine.solver.watch(iterator, partial(_advance, engine, target, use))


def _advance(engine: Engine, target: Node, use: Use, value: Value) -> None:
    if isinstance(value, Container):
        engine.solver.link(value.whole, target)
    elif isinstance(value, Instance):
        special_method(engine, value, "__next__", use, [], target)
    elif isinstance(value, External):
        engine.solver.add(target, OPAQUE)


def subscript(
    engine: Engine, base: Node, key: object, index: Node, use: Use, result: Node, part: s.Slice | None = None
) -> None:
    """``base[key]`` goes into ``result``; ``key`` is None where it is not known, ``part`` the slice if it is one."""
    use.base = base
    engine.solver.watch(base, partial(_subscript, engine, key, index, use, result, part))


def _subscript(
    engine: Engine, key: object, index: Node, use: Use, result: Node, part: s.Slice | None, value: Value
) -> None:
    solver = engine.solver
    if isinstance(value, Container):
        if part is not None:
            solver.add(result, sliced(engine, value, part))
        elif key is not None and (key in value.items or value.kind == "dict"):
            solver.link(value.item(key), result)
            solver.link(value.element, result)
        else:
            solver.link(value.whole, result)
    elif isinstance(value, Instance):
        special_method(engine, value, "__getitem__", use, [(None, index)], result)
    elif isinstance(value, ClassRef) and value.cls.is_enum:
        engine.classes.instantiate(value.cls)
        solver.add(result, value.cls.instance)  # Mode["DECODE"]
    elif isinstance(value, (FunctionRef, Bound, ClassRef)):
        solver.add(result, value)  # kernel[grid], Generic[T]
    elif isinstance(value, (External, Text)):
        solver.add(result, OPAQUE)


def store_item(engine: Engine, base: Node, key: object, index: Node, node: Node, use: Use) -> None:
    """``base[key] = node``."""
    use.base = base
    engine.solver.watch(base, partial(_store_item, engine, key, index, node, use))


def _store_item(engine: Engine, key: object, index: Node, node: Node, use: Use, value: Value) -> None:
    if isinstance(value, Container):
        known = key is not None and (value.kind == "dict" or key in value.items)
        engine.solver.link(node, value.item(key) if known else value.element)
        if value.kind == "dict":
            engine.solver.link(index, value.keys)
    elif isinstance(value, Instance):
        special_method(engine, value, "__setitem__", use, [(None, index), (None, node)], Node())


def unpack(engine: Engine, node: Node, targets: list[tuple[int | None, Node]], use: Use) -> None:
    """Take apart a tuple: ``targets`` are pairs of an index (None for a starred one and behind it) and a node."""
    engine.solver.watch(node, partial(_unpack, engine, targets, use))


def _unpack(engine: Engine, targets: list[tuple[int | None, Node]], use: Use, value: Value) -> None:
    names = engine.classes.record_fields(value.cls) if isinstance(value, Instance) and value.cls.is_record else []
    for key, target in targets:
        if isinstance(value, Container) and value.kind in ("tuple", "list") and value.items:
            engine.solver.link(value.item(key) if key is not None else value.whole, target)
            engine.solver.link(value.element, target)
        elif isinstance(value, Instance) and key is not None and key < len(names):
            engine.solver.link(engine.classes.read(value.cls, names[key]), target)
        else:
            _iterate(engine, target, use, value)


def enter(engine: Engine, manager: Node, entered: Node, use: Use) -> None:
    """``with manager as entered``: ``__enter__`` and ``__exit__``, or the body of a generator."""
    engine.solver.watch(manager, partial(_enter, engine, entered, use))


def _enter(engine: Engine, entered: Node, use: Use, value: Value) -> None:
    if isinstance(value, Instance):
        for name in ("__enter__", "__aenter__", "__exit__", "__aexit__"):
            result = entered if name.endswith("enter__") else Node()
            special_method(engine, value, name, use, [], result, "context_manager")
    elif isinstance(value, Container):
        engine.solver.link(value.element, entered)
    elif isinstance(value, External):
        engine.solver.add(entered, value)


def ask(engine: Engine, node: Node, use: Use) -> None:
    """Whether ``node`` is true: an object answers by ``__bool__`` or ``__len__``."""
    engine.solver.watch(node, partial(_ask, engine, use))


def _ask(engine: Engine, use: Use, value: Value) -> None:
    if isinstance(value, Instance) and not special_method(engine, value, "__bool__", use, [], Node()):
        special_method(engine, value, "__len__", use, [], Node())


def on_object(engine: Engine, node: Node, name: str, args: Args, use: Use) -> None:
    """A special method of whatever object is in ``node``, for its effect alone (``in``, ``==``, ``del``)."""
    use.base = node
    engine.solver.watch(node, partial(_on_object, engine, name, args, use))


def _on_object(engine: Engine, name: str, args: Args, use: Use, value: Value) -> None:
    if isinstance(value, Instance):
        special_method(engine, value, name, use, args, Node())
