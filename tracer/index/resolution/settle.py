"""What is fallen back on when no value moves any more: what is less certain than a value that was seen to flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.binding import bind_arguments
from sgltrace.index.resolution.contradictions import contradicted, quacking
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.values import External, Text

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine

_DISPATCHED = frozenset(
    ["self_method", "attr_method", "property", "special_method", "context_manager", "nn_module_call", "callback"]
)


def settle(engine: Engine) -> bool:
    """Take the first fallback that gives anything new; False where none does."""
    return any(step(engine) for step in (contradicted, _returned, _unmade, _undeclared, quacking, _interfaces))


def _returned(engine: Engine) -> bool:
    """Where a body does not tell what it returns, the annotation does."""
    moved = False
    for function in list(engine.reached):  # an annotation may be of a class in a module that nobody read yet
        node = function.node
        if function.fell_back or not isinstance(node, s.Func) or node.returns is None or not function.lowered:
            continue
        if function.generator is not None or any(not isinstance(v, (External, Text)) for v in function.result.values):
            continue
        function.fell_back = True
        before = len(function.result.values)
        engine.annotate(function.result, node.returns, function.enclosing)
        if function in engine.getters:
            engine.annotate(engine.getters[function][1], node.returns, function.enclosing)
        moved |= len(function.result.values) > before
    return moved


def _unmade(engine: Engine) -> bool:
    """An object of a class that nobody is seen to make: its fields are what its ``__init__`` would write."""
    moved = False
    for result, cls in list(engine.misses):
        if not (result.values or cls.instantiated):
            moved |= assume_made(engine, cls)
    return moved


def assume_made(engine: Engine, cls: ClassInfo) -> bool:
    """Take it that objects of a class come from where nobody sees them made; whether that is new."""
    if cls.assumed:
        return False
    cls.assumed = True
    for name in ("__init__", "__post_init__"):
        for function in engine.classes.methods(cls, name):
            engine.reach(function)
            engine.assumed.append(function)
            bind_arguments(engine, function, cls.instance, [])
    return True


def _undeclared(engine: Engine) -> bool:
    """Where an annotation names a class that nobody makes, its subclasses are meant."""
    moved = False
    for cls, nodes in list(engine.declared.items()):
        if not cls.instantiated and cls.subclasses:
            for node in engine.declared.pop(cls) if nodes else ():
                engine.solver.link(cls.instances, node)
                moved = True
    return moved


def _interfaces(engine: Engine) -> bool:
    """A call that finds several overrides is a call of the method that they override, too."""
    moved = False
    for (_, callee, kind), uses in list(engine.edges.items()):
        if callee.owner is None or kind not in _DISPATCHED:
            continue
        overridden = _overridden(engine, callee, callee.owner)
        for use in uses:
            if use.is_virtual(callee):
                for function in overridden:
                    if function not in use.targets:
                        engine.edge(use, function, kind)
                        moved = True
    return moved


def _overridden(engine: Engine, function: FunctionInfo, owner: ClassInfo) -> list[FunctionInfo]:
    return [f for base in engine.classes.mro(owner)[1:] for f in base.functions.get(function.name, ())[:1]]
