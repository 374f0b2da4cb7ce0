"""What builtins and library functions do with the values that they are given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sgltrace.index import syntax as s
from sgltrace.index.containers import merge
from sgltrace.index.values import (
    EXTERNAL,
    OPAQUE,
    Bound,
    ClassRef,
    Container,
    External,
    FunctionRef,
    Instance,
    ModulesOf,
    Node,
    Partial,
    Text,
    Value,
    constant,
)

if TYPE_CHECKING:
    from sgltrace.index.engine import Args, Engine, Site
    from sgltrace.index.lower import Reader

Model = Callable[["Engine", "Site"], None]


def passes_on(decorator: Node) -> bool:
    """Whether a decorator is from outside the tree: those are taken to leave the function what it is."""
    return decorator.fixed and all(type(value) is External for value in decorator.values)


def call_external(engine: Engine, site: Site, path: str) -> None:
    """A call of something outside the tree, found while values flow."""
    engine.solver.link(engine.external_call(site.function, site.expressions[0], path, site.args), site.result)


def _first(site: Site) -> Node | None:
    return next((node for name, node in site.args if name is None), None)


def _positional(site: Site) -> list[Node]:
    return [node for name, node in site.args if name is None]


def _same(engine: Engine, site: Site) -> None:
    """The first argument comes back."""
    nodes = _positional(site) or [node for _, node in site.args]
    if nodes:
        engine.solver.link(nodes[0], site.result)


def _second(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    if len(nodes) > 1:
        engine.solver.link(nodes[1], site.result)


def _collect(kind: str) -> Model:
    def model(engine: Engine, site: Site) -> None:
        container = engine.container_at(site, kind)
        for name, node in site.args:
            if name is None:
                if kind == "dict":
                    engine.solver.watch(node, partial(merge, engine, container))
                else:
                    engine.iterate(node, container.element, site)
            elif name == "key":
                engine.callback(site, node, [(None, container.element)])
            elif kind == "dict" and name == "**":
                engine.solver.watch(node, partial(merge, engine, container))
            elif kind == "dict" and name != "*":
                engine.solver.link(node, container.item(name))
        engine.solver.add(site.result, container)

    return model


def _empty(kind: str) -> Model:
    def model(engine: Engine, site: Site) -> None:
        engine.solver.add(site.result, engine.container_at(site, kind))

    return model


def _default_dict(engine: Engine, site: Site) -> None:
    container = engine.container_at(site, "dict")
    nodes = _positional(site)
    if nodes:
        engine.callback(site, nodes[0], [], container.element)
        for node in nodes[1:]:
            engine.solver.watch(node, partial(merge, engine, container))
    engine.solver.add(site.result, container)


def _map(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    container = engine.container_at(site, "generator")
    if nodes:
        elements: Args = []
        for node in nodes[1:]:
            element = Node()
            engine.iterate(node, element, site)
            elements.append((None, element))
        engine.callback(site, nodes[0], elements, container.element)
    engine.solver.add(site.result, container)


def _filter(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    container = engine.container_at(site, "generator")
    if len(nodes) > 1:
        engine.iterate(nodes[1], container.element, site)
        engine.callback(site, nodes[0], [(None, container.element)])
    engine.solver.add(site.result, container)


def _reduce(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    if len(nodes) > 1:
        element = Node()
        engine.iterate(nodes[1], element, site)
        engine.callback(site, nodes[0], [(None, element), (None, element)], site.result)


def _take(engine: Engine, site: Site) -> None:
    """``next``, ``min``, ``max``: an element comes back."""
    nodes = _positional(site)
    if len(nodes) == 1:
        engine.iterate(nodes[0], site.result, site)
    else:
        for node in nodes:
            engine.solver.link(node, site.result)
    for name, node in site.args:
        if name == "key":
            engine.callback(site, node, [(None, site.result)])


def _next(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    if nodes:
        engine.solver.watch(nodes[0], partial(_next_of, engine, site))
        for node in nodes[1:]:
            engine.solver.link(node, site.result)


def _next_of(engine: Engine, site: Site, value: Value) -> None:
    if type(value) is Container:
        engine.solver.link(value.whole, site.result)
    elif type(value) is Instance:
        engine.dunder(value, "__next__", site, [], site.result)


def _enumerate(engine: Engine, site: Site) -> None:
    nodes = _positional(site)
    container, pair = engine.container_at(site, "generator"), engine.container_at(site, "tuple")
    if nodes:
        engine.solver.add(pair.item(0), OPAQUE)
        engine.iterate(nodes[0], pair.item(1), site)
    engine.solver.add(container.element, pair)
    engine.solver.add(site.result, container)


def _zip(engine: Engine, site: Site) -> None:
    container, row = engine.container_at(site, "generator"), engine.container_at(site, "tuple")
    for i, node in enumerate(_positional(site)):
        engine.iterate(node, row.item(i), site)
    engine.solver.add(container.element, row)
    engine.solver.add(site.result, container)


def _partial(engine: Engine, site: Site) -> None:
    if site.args:
        value = engine.partial_at(site, Partial(site.args[0][1], site.args[1:]))
        engine.solver.add(site.result, value)


def _special(name: str) -> Model:
    """A builtin that calls a special method: ``len``, ``str``, ``hash`` ..."""

    def react(engine: Engine, site: Site, value: Value) -> None:
        if type(value) is Instance:
            engine.dunder(value, name, site, [], Node())

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
        engine.load(base, value.text, site, site.result)


def _setattr(engine: Engine, site: Site) -> None:
    """``setattr`` with a name written out. A name that is passed in would set every field of every object."""
    nodes = _positional(site)
    if len(nodes) > 2 and nodes[1].fixed:
        engine.solver.watch(nodes[1], partial(_setattr_named, engine, site, nodes[0], nodes[2]))


def _setattr_named(engine: Engine, site: Site, base: Node, node: Node, value: Value) -> None:
    if type(value) is Text:
        engine.store(base, value.text, node, site)


def _import_module(engine: Engine, site: Site) -> None:
    node = _first(site)
    if node is not None:
        engine.solver.watch(node, partial(_module_named, engine, site))


def _module_named(engine: Engine, site: Site, value: Value) -> None:
    if type(value) is Text and engine.modules.exists(value.text):
        engine.solver.add(site.result, engine.modules.ref(value.text))
    elif type(value) is ModulesOf and value.names:
        engine.solver.add(site.result, engine.modules_of(value.package, False))
    else:
        engine.solver.add(site.result, OPAQUE)


def _iter_modules(engine: Engine, site: Site) -> None:
    container, row = engine.container_at(site, "generator"), engine.container_at(site, "tuple")
    node = _first(site)
    if node is not None:
        engine.solver.link(node, row.item(1))
    engine.solver.add(container.element, row)
    engine.solver.add(site.result, container)


def _callbacks(engine: Engine, site: Site) -> None:
    """Functions that are handed to the outside may be called from there."""
    for name, node in site.args:
        if name not in ("*", "**"):
            engine.escape(site, node)
    engine.solver.add(site.result, OPAQUE)


_MODELS: dict[str, Model] = {
    "builtins.list": _collect("list"), "builtins.tuple": _collect("list"), "builtins.set": _collect("set"),
    "builtins.frozenset": _collect("set"), "builtins.sorted": _collect("list"), "builtins.reversed": _collect("list"),
    "builtins.iter": _collect("generator"), "builtins.dict": _collect("dict"), "collections.deque": _collect("list"),
    "collections.OrderedDict": _collect("dict"), "collections.defaultdict": _default_dict,
    "itertools.chain": _collect("generator"), "queue.Queue": _empty("list"), "queue.SimpleQueue": _empty("list"),
    "builtins.map": _map, "builtins.filter": _filter, "functools.reduce": _reduce, "builtins.min": _take,
    "builtins.max": _take, "builtins.next": _next, "builtins.enumerate": _enumerate, "builtins.zip": _zip,
    "functools.partial": _partial, "builtins.len": _special("__len__"), "builtins.str": _special("__str__"),
    "builtins.repr": _special("__repr__"), "builtins.bool": _special("__bool__"), "builtins.hash": _special("__hash__"),
    "builtins.int": _special("__int__"), "builtins.float": _special("__float__"), "builtins.type": _type_of,
    "builtins.getattr": _getattr, "builtins.setattr": _setattr, "copy.copy": _same, "copy.deepcopy": _same,
    "dataclasses.replace": _same, "typing.cast": _second, "torch.compile": _same, "torch.jit.script": _same,
    "importlib.import_module": _import_module, "pkgutil.iter_modules": _iter_modules,
    "pkgutil.walk_packages": _iter_modules, "weakref.proxy": _same, "torch.no_grad": _same,
    "functools.lru_cache": _same, "functools.cache": _same, "functools.wraps": _same, "contextlib.contextmanager": _same,
    "contextlib.nullcontext": _same, "torch.inference_mode": _same, "triton.jit": _same, "threading.Lock": _empty("lock"),
    "torch.nn.ModuleList": _collect("list"), "torch.nn.Sequential": _collect("list"),
    "torch.nn.ModuleDict": _collect("dict"), "builtins.staticmethod": _same, "builtins.classmethod": _same, "builtins.property": _same,
}  # fmt: skip


def _inert(engine: Engine, site: Site) -> None:
    """What is passed is looked at, not called."""
    engine.solver.add(site.result, OPAQUE)


_INERT = ("inspect.", "logging.", "typing.", "warnings.", "builtins.print", "builtins.callable", "builtins.id")


def model_of(path: str) -> Model:
    """What a call of the external at a dotted path does."""
    model = _MODELS.get(path)
    if model is None:
        model = _inert if path.startswith(_INERT) else _callbacks
    return model


def _super(reader: Reader, expression: s.Call) -> Node:
    return reader.super_(expression)


def _isinstance(reader: Reader, expression: s.Call) -> Node:
    reader.arguments(expression)
    return EXTERNAL


def _named_attribute(reader: Reader, expression: s.Call) -> Node | None:
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


SPECIAL_FORMS: dict[str, Callable[[Reader, s.Call], Node | None]] = {
    "builtins.super": _super,
    "builtins.isinstance": _isinstance,
    "builtins.issubclass": _isinstance,
    "builtins.hasattr": _isinstance,
    "builtins.getattr": _named_attribute,
}

__all__ = ["SPECIAL_FORMS", "Bound", "ClassRef", "FunctionRef", "call_external", "constant", "model_of", "passes_on"]
