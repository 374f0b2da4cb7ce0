"""What a call does, for each value that its callee may be.

Kinds of edges: ``direct`` (a function by its name), ``nested_function`` (one defined in a function around it),
``function_variable`` (a function under another name: a variable, parameter, field or alias), ``dict_dispatch`` (out
of a dictionary or list), ``triton_launch`` (``kernel[grid](...)``), ``self_method``, ``attr_method`` (a method of
another object), ``class_method``, ``static_method``, ``unbound_method`` (``Class.method(obj)``), ``super``,
``constructor``,
``call_method`` (``__call__``), ``nn_module_call`` (``forward`` through ``nn.Module.__call__``), ``decorated`` (a
wrapper calls what it wraps), ``callback`` (called from outside the tree, or a method that was passed on),
``property``, ``context_manager``, ``special_method``, ``generator_expression``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.binding import (
    FUNCTIONS,
    argument_of,
    bind_arguments,
    functions_only,
    hands_on,
    is_function,
    makes_wrappers,
)
from sgltrace.index.resolution.containers import WEAK_REFERENCE, call_method
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.uses import Args, Site, Use
from sgltrace.index.resolution.values import (
    OPAQUE,
    Bound,
    ClassRef,
    Container,
    Decorated,
    External,
    FunctionRef,
    Instance,
    Method,
    Node,
    Partial,
    Value,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine


def call(engine: Engine, site: Site) -> None:
    """Let a call react to whatever its callee turns out to be."""
    engine.sites.append(site)
    engine.solver.watch(site.callee, partial(_apply, engine, site))


def _apply(engine: Engine, site: Site, value: Value) -> None:
    if isinstance(value, Bound):
        _apply_function(engine, site, value.function, value.receiver, _bound_kind(site, value))
    elif isinstance(value, FunctionRef):
        _apply_function(engine, site, value.function, None, _function_kind(site, value.function))
    elif isinstance(value, ClassRef):
        _construct(engine, site, value.cls)
    elif isinstance(value, Instance):
        _call_instance(engine, site, value)
    elif isinstance(value, Decorated):
        if value.is_called_by_wrapper(site.function):
            engine.edge(site, value.function, "decorated")
        else:
            _apply_function(engine, site, value.function, None, _function_kind(site, value.function))
    elif isinstance(value, Partial):
        key = (id(site.expressions[0]), value)
        if key in engine.unfolded:  # `f = partial(f, x)` in a loop
            return
        engine.unfolded.add(key)
        args = [*value.args, *site.args]
        call(engine, Site(site.function, site.expressions[0], value.function, args, site.result))
    elif isinstance(value, External):
        from sgltrace.index.resolution.externals import call_external

        made = call_external(engine, site.function, site.expressions[0], value.path, site.args)
        engine.solver.link(made, site.result)
    elif isinstance(value, Method):
        call_method(engine, site, value)
    elif isinstance(value, Container) and value.kind == WEAK_REFERENCE:
        engine.solver.link(value.element, site.result)


def _apply_function(engine: Engine, site: Site, function: FunctionInfo, receiver: Value | None, kind: str) -> None:
    key = (function, receiver)
    if key in site.bound:
        return
    site.bound.add(key)
    if site.function.is_wrapper and hands_on(site):
        engine.edge(site, function, "decorated")
        if receiver is not None:
            bind_arguments(engine, function, receiver, [])
    else:
        invoke(engine, site, function, receiver, site.args, site.result, kind)


def invoke(
    engine: Engine, use: Use, function: FunctionInfo, receiver: Value | None, args: Args, result: Node, kind: str
) -> None:
    """A call edge, with the arguments bound to the parameters and the returned value to ``result``."""
    engine.edge(use, function, kind)
    bind_arguments(engine, function, receiver, args)
    getter = engine.getters.get(function)
    if getter is not None and isinstance(receiver, Instance):
        from sgltrace.index.resolution.attributes import load_from

        # Each object gives its own: a base's getter knows the fields of all that inherit it.
        field, declared = getter
        load_from(engine, field.attr, Use(function, field), result, receiver)
        engine.solver.link(declared, result)
    elif function.hands_back:
        engine.solver.watch(function.result, partial(_return, engine, function, receiver, args, result, set()))
    else:
        engine.solver.link(function.result, result)


def _return(
    engine: Engine,
    function: FunctionInfo,
    receiver: Value | None,
    args: Args,
    result: Node,
    seen: set[str],
    value: Value,
) -> None:
    """What came in through a parameter goes back to those only who passed it."""
    solver = engine.solver
    for name in function.hands_back:
        node = function.params.get(name)
        if node is None or value not in node.values or node.transform is not None:
            continue
        own = argument_of(function, receiver, args, name) if name not in seen else None
        seen.add(name)
        if own is not None:
            solver.link(own, result)
        return
    if type(value) in FUNCTIONS and any(value in node.values for node in function.params.values()):
        if "" not in seen:
            seen.add("")
            passed = Node(transform=functions_only)
            for _, node in args:
                solver.link(node, passed)
            solver.link(passed, result)
        return
    # given a function, `def register(f=None)` does not return its decorator
    inner = isinstance(value, FunctionRef) and value.function.parent is function and makes_wrappers(value.function)
    if not (inner and any(is_function(node) for _, node in args)):
        solver.add(result, value)


# --- objects ---------------------------------------------------------------------------------------------


def _construct(engine: Engine, site: Site, cls: ClassInfo) -> None:
    engine.solver.add(site.result, cls.instance)
    if (None, cls.ref) in site.bound:
        return
    site.bound.add((None, cls.ref))
    engine.classes.instantiate(cls)
    engine.constructed.setdefault(site.function, []).append((cls, site))
    if cls.is_enum:
        return
    made = engine.classes.makes_init(cls)
    for name in ("__new__", "__init__"):
        if name == "__init__" and made:
            continue
        receiver: Value = cls.ref if name == "__new__" else cls.instance
        for function in engine.classes.methods(cls, name):
            engine.edge(site, function, "constructor")
            bind_arguments(engine, function, receiver, site.args)
    if made or engine.classes.lookup(cls, "__init__") is None:
        _construct_from_fields(engine, site, cls)


def _construct_from_fields(engine: Engine, site: Site, cls: ClassInfo) -> None:
    """A constructor that Python makes: its arguments are the fields."""
    engine.edge(site, engine.constructor(cls), "constructor")
    names = engine.classes.record_fields(cls)
    for i, (name, node) in enumerate(site.args):
        if name is None and i < len(names):
            name = names[i]
        if name is not None and name in names:
            engine.solver.link(node, engine.classes.field(cls, name))
        elif name == "**":
            engine.solver.watch(node, partial(_spread_fields, engine, cls, names))
    for function in engine.classes.methods(cls, "__post_init__"):
        engine.edge(site, function, "constructor")
        bind_arguments(engine, function, cls.instance, [])


def _spread_fields(engine: Engine, cls: ClassInfo, names: list[str], value: Value) -> None:
    if isinstance(value, Container):
        for name in names:
            if name in value.items:
                engine.solver.link(value.items[name], engine.classes.field(cls, name))


def _call_instance(engine: Engine, site: Site, value: Instance) -> None:
    cls, kind = value.cls, "call_method"
    functions = engine.classes.methods(cls, "__call__")
    if not functions and engine.classes.has_outside(cls):
        functions, kind = engine.classes.methods(cls, "forward"), "nn_module_call"
        if not functions:
            engine.solver.add(site.result, OPAQUE)
    if functions:
        site.dispatch = True
    for function in functions:
        _apply_function(engine, site, function, value, kind)


# --- kinds -----------------------------------------------------------------------------------------------


def _bound_kind(site: Site, value: Bound) -> str:
    site.dispatch = True
    if value.through_super:
        return "super"
    if isinstance(value.receiver, ClassRef):
        return "class_method"
    expression = site.expressions[0]
    if isinstance(expression, s.Call) and isinstance(expression.func, s.Attr):
        base = expression.func.value
        return "self_method" if isinstance(base, s.Name) and base.id == "self" else "attr_method"
    return "dict_dispatch" if isinstance(expression, s.Call) and isinstance(expression.func, s.Sub) else "callback"


def _function_kind(site: Site, function: FunctionInfo) -> str:
    expression = site.expressions[0]
    func = expression.func if isinstance(expression, s.Call) else None
    if isinstance(func, s.Sub):
        return "triton_launch" if function.is_kernel else "dict_dispatch"
    if function.owner is not None:
        return "static_method" if function.kind == "staticmethod" else "unbound_method"
    called = func.id if isinstance(func, s.Name) else func.attr if isinstance(func, s.Attr) else function.name
    if called != function.name:
        return "function_variable"
    return "nested_function" if function.parent is not None else "direct"
