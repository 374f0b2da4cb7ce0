"""What builtins and library functions do with the values that they are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.attributes import load, store
from sgltrace.index.resolution.binding import functions_only, is_function
from sgltrace.index.resolution.calls import call, invoke
from sgltrace.index.resolution.containers import WEAK_REFERENCE, callback, merge
from sgltrace.index.resolution.elements import advance, iterate, special_method
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.index.resolution.uses import Args, Site, Use
from sgltrace.index.resolution.values import (
    EXTERNAL,
    OPAQUE,
    Bound,
    Decorated,
    External,
    FunctionRef,
    Instance,
    ModulesOf,
    Node,
    Partial,
    Text,
    Value,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine
    from sgltrace.index.resolution.expressions import ExpressionReader

Model = Callable[["Engine", "Site"], None]


def passes_on(decorator: Node) -> bool:
    """Whether a decorator is from outside the tree: those are taken to leave the function what it is."""
    return bool(decorator.values) and all(isinstance(value, External) for value in decorator.values)


def call_external(engine: Engine, function: FunctionInfo, expression: s.Expr | s.Stmt, path: str, args: Args) -> Node:
    """A call of something outside the tree, by its dotted name: the node of what it returns."""
    model = _MODELS.get(path)
    if model is not None:
        site = Site(function, expression, EXTERNAL, args, Node())
        model(engine, site)
        return site.result
    if not path.startswith(_INERT):
        for name, node in args:
            if name not in ("*", "**") and (not node.fixed or is_function(node)):
                engine.solver.watch(node, partial(_escape, engine, Use(function, expression)))
        if args and args[0][0] is None and is_function(args[0][1]):
            result = Node(transform=functions_only)  # most likely wrapped: torch.compiler.disable(f)
            engine.solver.link(args[0][1], result)
            return result
    return EXTERNAL


_INERT = (
    "inspect.", "logging.", "typing.", "warnings.", "functools.wraps",
    "builtins.print", "builtins.callable", "builtins.id",
)  # fmt: skip
"""What is passed to these is looked at, not called."""


def _escape(engine: Engine, use: Use, value: Value) -> None:
    """A function that is handed to the outside may be called from there."""
    if isinstance(value, (FunctionRef, Decorated)):
        invoke(engine, use, value.function, None, [], Node(), "callback")
    elif isinstance(value, Bound):
        invoke(engine, use, value.function, value.receiver, [], Node(), "callback")
    elif isinstance(value, Partial):
        call(engine, Site(use.function, use.expressions[0], value.function, value.args, Node()))


def _first(site: Site) -> Node | None:
    return next((node for name, node in site.args if name is None), None)


def _positional(site: Site) -> list[Node]:
    return [node for name, node in site.args if name is None]


def _same(engine: Engine, site: Site) -> None:
    """The first argument comes back."""
    nodes = _positional(site) or [node for _, node in site.args]
    if nodes:
        engine.solver.link(nodes[0], site.result)
    else:
        engine.solver.add(site.result, OPAQUE)  # torch.no_grad(), functools.lru_cache(maxsize=1)


def _second(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    if len(nodes) > 1:
        engine.solver.link(nodes[1], site.result)


def _collect(kind: str) -> Model:
    def model(engine: Engine, site: Site) -> None:
        container = engine.interned.container_at(site, kind)
        for name, node in site.args:
            if name is None:
                if kind == "dict":
                    engine.solver.watch(node, partial(merge, engine, container))
                else:
                    iterate(engine, node, container.element, site)
            elif name == "key":
                callback(engine, site, node, [(None, container.element)])
            elif kind == "dict" and name == "**":
                engine.solver.watch(node, partial(merge, engine, container))
            elif kind == "dict" and name != "*":
                engine.solver.link(node, container.item(name))
        engine.solver.add(site.result, container)

    return model


def _empty(kind: str) -> Model:
    def model(engine: Engine, site: Site) -> None:
        engine.solver.add(site.result, engine.interned.container_at(site, kind))

    return model


def _default_dict(engine: Engine, site: Site) -> None:
    container = engine.interned.container_at(site, "dict")
    nodes = _positional(site)
    if nodes:
        callback(engine, site, nodes[0], [], container.element)
        for node in nodes[1:]:
            engine.solver.watch(node, partial(merge, engine, container))
    engine.solver.add(site.result, container)


def _map(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    container = engine.interned.container_at(site, "generator")
    if nodes:
        elements: Args = []
        for node in nodes[1:]:
            element = Node()
            iterate(engine, node, element, site)
            elements.append((None, element))
        callback(engine, site, nodes[0], elements, container.element)
    engine.solver.add(site.result, container)


def _filter(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    container = engine.interned.container_at(site, "generator")
    if len(nodes) > 1:
        iterate(engine, nodes[1], container.element, site)
        callback(engine, site, nodes[0], [(None, container.element)])
    engine.solver.add(site.result, container)


def _reduce(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    if len(nodes) > 1:
        element = Node()
        iterate(engine, nodes[1], element, site)
        callback(engine, site, nodes[0], [(None, element), (None, element)], site.result)


def _take(engine: Engine, site: Site) -> None:
    """``next``, ``min``, ``max``: an element comes back."""
    nodes = _positional(site)
    if len(nodes) == 1:
        iterate(engine, nodes[0], site.result, site)
    else:
        for node in nodes:
            engine.solver.link(node, site.result)
    for name, node in site.args:
        if name == "key":
            callback(engine, site, node, [(None, site.result)])


def _next(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    if nodes:
        advance(engine, nodes[0], site.result, site)
        for node in nodes[1:]:
            engine.solver.link(node, site.result)


def _weak_reference(engine: Engine, site: Site) -> None:
    """``weakref.ref(x)``: called, it gives x."""
    container = engine.interned.container_at(site, WEAK_REFERENCE)
    node = _first(site)
    if node is not None:
        engine.solver.link(node, container.element)
    engine.solver.add(site.result, container)


def _enumerate(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    container, pair = engine.interned.container_at(site, "generator"), engine.interned.container_at(site, "tuple")
    if nodes:
        engine.solver.add(pair.item(0), OPAQUE)
        iterate(engine, nodes[0], pair.item(1), site)
    engine.solver.add(container.element, pair)
    engine.solver.add(site.result, container)


def _zip(engine: Engine, site: Site) -> None:
    container, row = engine.interned.container_at(site, "generator"), engine.interned.container_at(site, "tuple")
    for i, node in enumerate(_positional(site)):
        iterate(engine, node, row.item(i), site)
    engine.solver.add(container.element, row)
    engine.solver.add(site.result, container)


def _partial(engine: Engine, site: Site) -> None:
    if site.args:
        value = engine.interned.partial_at(site, Partial(site.args[0][1], site.args[1:]))
        engine.solver.add(site.result, value)


def _special(name: str) -> Model:
    """A builtin that calls a special method: ``len``, ``str``, ``hash`` ..."""

    def react(engine: Engine, site: Site, value: Value) -> None:
        if type(value) is Instance:
            special_method(engine, value, name, site, [], Node())

    def model(engine: Engine, site: Site) -> None:
        node = _first(site)
        if node is not None and not node.fixed:
            engine.solver.watch(node, partial(react, engine, site))
        engine.solver.add(site.result, OPAQUE)

    return model


def _type_of(engine: Engine, site: Site) -> None:
    node = _first(site)
    if node is not None and len(site.args) == 1:
        engine.solver.watch(node, partial(_class_of, engine, site))


def _class_of(engine: Engine, site: Site, value: Value) -> None:
    engine.solver.add(site.result, value.cls.ref if type(value) is Instance else OPAQUE)


def _getattr(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    if len(nodes) > 1:
        engine.solver.watch(nodes[1], partial(_getattr_named, engine, site, nodes[0]))
    for node in nodes[2:]:
        engine.solver.link(node, site.result)


def _getattr_named(engine: Engine, site: Site, base: Node, value: Value) -> None:
    if type(value) is Text:
        load(engine, base, value.text, site, site.result)


def _setattr(engine: Engine, site: Site) -> None:
    """``setattr`` with a name written out. A name that is passed in would set every field of every object."""
    nodes = _positional(site)
    if len(nodes) > 2 and nodes[1].fixed:
        engine.solver.watch(nodes[1], partial(_setattr_named, engine, site, nodes[0], nodes[2]))


def _setattr_named(engine: Engine, site: Site, base: Node, node: Node, value: Value) -> None:
    if type(value) is Text:
        store(engine, base, value.text, node, site)


def _import_module(engine: Engine, site: Site) -> None:
    node = _first(site)
    if node is not None:
        engine.solver.watch(node, partial(_module_named, engine, site))


def _module_named(engine: Engine, site: Site, value: Value) -> None:
    if type(value) is Text and engine.modules.exists(value.text):
        engine.solver.add(site.result, engine.modules.ref(value.text))
    elif type(value) is ModulesOf and value.names:
        engine.solver.add(site.result, engine.interned.modules_of(value.package, False))
    else:
        engine.solver.add(site.result, OPAQUE)


def _iter_modules(engine: Engine, site: Site) -> None:
    container, row = engine.interned.container_at(site, "generator"), engine.interned.container_at(site, "tuple")
    node = _first(site)
    if node is not None:
        engine.solver.link(node, row.item(1))
    engine.solver.add(container.element, row)
    engine.solver.add(site.result, container)


_MODELS: dict[str, Model] = {
    "builtins.list": _collect("list"), "builtins.tuple": _collect("list"), "builtins.set": _collect("set"),
    "builtins.frozenset": _collect("set"), "builtins.sorted": _collect("list"), "builtins.reversed": _collect("list"),
    "builtins.iter": _collect("generator"), "builtins.dict": _collect("dict"), "collections.deque": _collect("list"),
    "collections.OrderedDict": _collect("dict"), "collections.defaultdict": _default_dict,
    "itertools.chain": _collect("generator"), "queue.Queue": _empty("list"), "queue.SimpleQueue": _empty("list"),
    "builtins.map": _map, "builtins.filter": _filter, "functools.reduce": _reduce, "builtins.min": _take,
    "builtins.max": _take, "builtins.next": _next, "builtins.enumerate": _enumerate, "builtins.zip": _zip,
    "functools.partial": _partial, "builtins.len": _special("__len__"), "builtins.str": _special("__str__"),
    "builtins.repr": _special("__repr__"), "builtins.bool": _special("__bool__"),
    "builtins.hash": _special("__hash__"), "builtins.int": _special("__int__"),
    "builtins.float": _special("__float__"), "builtins.type": _type_of, "builtins.getattr": _getattr,
    "builtins.setattr": _setattr, "copy.copy": _same, "copy.deepcopy": _same, "dataclasses.replace": _same,
    "typing.cast": _second, "torch.compile": _same, "torch.jit.script": _same,
    "importlib.import_module": _import_module, "pkgutil.iter_modules": _iter_modules,
    "pkgutil.walk_packages": _iter_modules, "weakref.proxy": _same, "weakref.ref": _weak_reference,
    "torch.no_grad": _same,
    "functools.lru_cache": _same, "functools.cache": _same, "functools.update_wrapper": _same,
    "contextlib.contextmanager": _same, "contextlib.nullcontext": _same, "torch.inference_mode": _same,
    "triton.jit": _same, "threading.Lock": _empty("lock"), "torch.nn.ModuleList": _collect("list"),
    "torch.nn.Sequential": _collect("list"), "torch.nn.ModuleDict": _collect("dict"), "builtins.staticmethod": _same,
    "builtins.classmethod": _same, "builtins.property": _same,
}  # fmt: skip


def _super(reader: ExpressionReader, expression: s.Call) -> Node:
    return reader.super_()


def _isinstance(reader: ExpressionReader, expression: s.Call) -> Node:
    reader.arguments(expression)
    return EXTERNAL


def _named_attribute(reader: ExpressionReader, expression: s.Call) -> Node | None:
    """``getattr(x, "name")`` and ``getattr(x, "name", default)`` with the name written out."""
    args = expression.args
    if len(args) not in (2, 3) or any(a.name is not None for a in args):
        return None
    name = args[1].value
    if not isinstance(name, s.Const) or not isinstance(name.value, str):
        return None
    load = s.Attr(args[0].value, name.value, expression.line)
    reader.function.kept.append(load)
    node = reader.expression(load)
    if len(args) == 2 or node is EXTERNAL:
        return node
    result = Node()
    reader.solver.link(node, result)
    reader.solver.link(reader.expression(args[2].value), result)
    return result


SPECIAL_FORMS: dict[str, Callable[[ExpressionReader, s.Call], Node | None]] = {
    "builtins.super": _super,
    "builtins.isinstance": _isinstance,
    "builtins.issubclass": _isinstance,
    "builtins.hasattr": _isinstance,
    "builtins.getattr": _named_attribute,
}
