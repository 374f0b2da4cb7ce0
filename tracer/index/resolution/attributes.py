"""``base.name``, read and written, for each value that the base may be."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sgltrace.index.resolution.calls import invoke
from sgltrace.index.resolution.containers import METHODS as CONTAINER_METHODS
from sgltrace.index.resolution.entities import ClassInfo
from sgltrace.index.resolution.uses import Use
from sgltrace.index.resolution.values import (
    OPAQUE,
    ClassRef,
    Container,
    External,
    FunctionRef,
    Instance,
    ModuleRef,
    ModulesOf,
    Node,
    SuperRef,
    Value,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine


def load(engine: Engine, base: Node, name: str, use: Use, result: Node) -> None:
    """``base.name`` goes into ``result``."""
    engine.solver.watch(base, partial(load_from, engine, name, use, result))


def load_from(engine: Engine, name: str, use: Use, result: Node, value: Value) -> None:
    """``value.name`` goes into ``result``."""
    if isinstance(value, Instance):
        _load_instance(engine, value, name, use, result)
    elif isinstance(value, ModuleRef):
        _load_module(engine, value, name, result)
    elif isinstance(value, External):
        for external in engine.modules.external(f"{value.path}.{name}").values if value.path else (OPAQUE,):
            engine.solver.add(result, external)
    elif isinstance(value, ClassRef):
        _load_class(engine, value.cls, name, result)
    elif isinstance(value, SuperRef):
        _load_super(engine, value, name, use, result)
    elif isinstance(value, Container):
        known = name in CONTAINER_METHODS
        engine.solver.add(result, engine.interned.method(value, name) if known else OPAQUE)
    elif isinstance(value, ModulesOf):
        for module in filter(None, map(engine.modules.load, engine.modules.plugins(value.package))):
            found = engine.modules.lookup(module, name)
            if found is not None:
                engine.solver.link(found, result)
    else:
        engine.solver.add(result, OPAQUE)  # of a function, a string: nothing that leads back into the tree


def _load_module(engine: Engine, value: ModuleRef, name: str, result: Node) -> None:
    if name == "__path__":
        engine.solver.add(result, engine.interned.modules_of(value.name, True))
        return
    found = engine.modules.imported(value.name, name)
    if found is not None:
        engine.solver.link(found, result)


def _load_instance(engine: Engine, receiver: Instance, name: str, use: Use, result: Node) -> None:
    """Python's order: a property of the class, then the object's own field, then the class's attribute."""
    solver, classes, cls = engine.solver, engine.classes, receiver.cls
    found = classes.lookup(cls, name)
    if found is not None:
        owner, node = found
        functions = owner.functions.get(name)
        if not (functions and classes.is_placeholder(cls, functions[0])):
            solver.watch(node, partial(_bind_loaded, engine, receiver, cls, use, result, False))
        if functions and functions[0].is_property:
            return
        if owner.is_enum:
            solver.add(result, OPAQUE)
    elif name == "__class__":
        solver.add(result, cls.ref)
        return
    elif name == "_replace" and cls.is_record:
        solver.add(result, OPAQUE)
        return
    solver.link(classes.read(cls, name), result)
    if not result.values:
        engine.misses.append((result, cls))
    if found is None and classes.has_outside(cls):
        solver.add(result, OPAQUE)


def _bind_loaded(
    engine: Engine, receiver: Value, cls: ClassInfo, use: Use, result: Node, through_super: bool, value: Value
) -> None:
    """A function that is found on a class becomes what an object makes of it."""
    if not isinstance(value, FunctionRef):
        engine.solver.add(result, value)
        return
    function = value.function
    if function.is_property:
        use.dispatch = True
        invoke(engine, use, function, receiver, [], result, "property")
    elif function.kind == "staticmethod":
        engine.solver.add(result, value)
    elif function.kind == "classmethod":
        engine.solver.add(result, function.bind(cls.ref, through_super))
    else:
        engine.solver.add(result, function.bind(receiver, through_super))


def _load_class(engine: Engine, cls: ClassInfo, name: str, result: Node) -> None:
    solver, classes = engine.solver, engine.classes
    found = classes.lookup(cls, name)
    if found is not None:
        owner, node = found
        solver.watch(node, partial(_bind_class, engine, cls, result))
        if owner.is_enum and name not in owner.functions:
            classes.instantiate(cls)
            solver.add(result, cls.instance)
    elif classes.has_outside(cls) or name.startswith("__"):
        solver.add(result, OPAQUE)
    solver.link(classes.read(cls, name), result)


def _bind_class(engine: Engine, cls: ClassInfo, result: Node, value: Value) -> None:
    if isinstance(value, FunctionRef) and value.function.kind == "classmethod":
        engine.solver.add(result, value.function.bind(cls.ref, False))
    else:
        engine.solver.add(result, value)


def _load_super(engine: Engine, value: SuperRef, name: str, use: Use, result: Node) -> None:
    receiver = value.receiver
    cls = receiver.cls if isinstance(receiver, (Instance, ClassRef)) else value.owner
    found = engine.classes.lookup(cls, name, value.owner)
    if found is not None:
        engine.solver.watch(found[1], partial(_bind_loaded, engine, receiver, cls, use, result, True))
    else:
        engine.solver.add(result, OPAQUE)


def store(engine: Engine, base: Node, name: str, value: Node, use: Use) -> None:
    """``base.name = value``."""
    engine.solver.watch(base, partial(_store_into, engine, name, value, use))


def _store_into(engine: Engine, name: str, node: Node, use: Use, value: Value) -> None:
    if isinstance(value, (Instance, ClassRef)):
        found = engine.classes.lookup(value.cls, name)
        setters = [f for f in found[0].functions.get(name, ()) if f.is_property] if found is not None else []
        if setters and isinstance(value, Instance):
            for setter in setters:
                if len(setter.parameters) == 2:
                    invoke(engine, use, setter, value, [(None, node)], Node(), "property")
            return
        engine.solver.link(node, engine.classes.field(value.cls, name))
    elif isinstance(value, ModuleRef):
        found_node = engine.modules.imported(value.name, name)
        if found_node is not None:
            engine.solver.link(node, found_node)
