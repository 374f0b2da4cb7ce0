"""What the methods of lists, dicts, sets and queues do with values."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.uses import Args, Site, Use
from sgltrace.index.resolution.values import OPAQUE, Container, Method, Node, Text, Value

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine

_PUT = {"append", "add", "appendleft", "put", "put_nowait", "push"}
_TAKE = {"pop", "popleft", "get", "get_nowait", "popitem", "peek", "__getitem__"}
_ALL = {"extend", "update", "extendleft", "union", "__ior__"}
_SAME = {"copy", "union", "difference", "intersection"}
_OTHERS = {
    "insert",
    "remove",
    "reverse",
    "clear",
    "setdefault",
    "items",
    "keys",
    "values",
    "__iter__",
    "__next__",
    "send",
    "sort",
}
METHODS = _PUT | _TAKE | _ALL | _SAME | _OTHERS
"""The methods that put values into a container or take them out."""


_MOVING = {"insert", "pop", "popleft", "appendleft", "extendleft", "remove", "sort", "reverse", "clear"}
"""The methods after which an element of a list may stand at another place."""

WEAK_REFERENCE = "weakref"
"""The kind of a container that gives its element when it is called."""


def call_method(engine: Engine, site: Site, method: Method) -> None:
    """``container.name(args)``."""
    container, name, solver = method.container, method.name, engine.solver
    values = [node for _, node in site.args]
    if name in _MOVING and container.kind == "list":
        solver.link(container.whole, container.element)
    if name in _PUT and values:
        solver.link(values[0], container.element)
    elif name == "insert" and len(values) > 1:
        solver.link(values[1], container.element)
    elif name == "setdefault" and len(values) > 1:
        solver.link(values[0], container.keys)
        solver.link(values[1], container.element)
        solver.link(container.whole, site.result)
    elif name in _ALL:
        for key, node in site.args:
            if key is None:
                solver.watch(node, partial(merge, engine, container))
            elif key not in ("*", "**"):
                solver.link(node, container.item(key))
    if name in _TAKE:
        _take(engine, site, container)
    elif name in _SAME:
        solver.add(site.result, container)
    elif name in ("items", "keys", "values") and container.kind != "dict":
        solver.add(site.result, OPAQUE)
    elif name == "items":
        solver.add(site.result, _pairs(engine, container))
    elif name == "keys":
        solver.add(site.result, _view(engine, container, "keys", container.keys))
    elif name == "values":
        solver.add(site.result, _view(engine, container, "values", container.whole))
    elif name in ("__iter__", "__next__", "send"):
        solver.link(container.whole, site.result)
    elif name not in _PUT and name not in _ALL and name != "setdefault":
        solver.add(site.result, OPAQUE)
    if name == "sort":
        for key, node in site.args:
            if key == "key":
                callback(engine, site, node, [(None, container.whole)])


def callback(engine: Engine, use: Use, node: Node, args: Args, result: Node | None = None) -> None:
    """Something outside the tree calls what is in ``node`` with known arguments."""
    from sgltrace.index.resolution.calls import call

    call(engine, Site(use.function, use.expressions[0], node, args, result if result is not None else Node()))


def _take(engine: Engine, site: Site, container: Container) -> None:
    expression = site.expressions[0]
    if isinstance(expression, s.Call) and expression.args:
        first = expression.args[0].value
        if isinstance(first, s.Const) and first.value in container.items:
            engine.solver.link(container.items[first.value], site.result)
            engine.solver.link(container.element, site.result)
        else:
            engine.solver.link(container.whole, site.result)
        for _, node in site.args[1:]:
            engine.solver.link(node, site.result)
    else:
        engine.solver.link(container.whole, site.result)


def merge(engine: Engine, container: Container, value: Value) -> None:
    """All that is in ``value`` is in ``container`` too."""
    solver = engine.solver
    if type(value) is Container:
        if value.kind == "dict" and container.kind == "dict":
            value.follow(lambda key, node: solver.link(node, container.item(key)))
            solver.link(value.element, container.element)
            solver.link(value.keys, container.keys)
        elif container.kind == "dict":
            solver.watch(value.whole, partial(_add_pair, engine, container))
        else:
            solver.link(value.keys if value.kind == "dict" else value.whole, container.element)
    elif type(value) is not Text:
        solver.add(container.element, OPAQUE)


def _add_pair(engine: Engine, container: Container, value: Value) -> None:
    """A pair of a key and a value, out of which a dict is made."""
    if type(value) is Container and value.kind == "tuple":
        engine.solver.link(value.item(0), container.keys)
        engine.solver.link(value.item(1), container.element)


def unordered(engine: Engine, container: Container) -> Container:
    """A container with the elements of another, of which none has a place of its own any more (``a + b``)."""
    if container.kind not in ("list", "tuple") or container.places == "any" or not container.items:
        return container
    view = engine.interned.views.get((container, "unordered"))
    if view is None:
        view = engine.interned.views[container, "unordered"] = Container(container.kind, "any")
        engine.solver.link(container.whole, view.element)
    return view


def sliced(engine: Engine, container: Container, part: s.Slice) -> Container:
    """``container[lower:upper]``: the elements at their new places, where the bounds are written out."""
    if container.kind not in ("list", "tuple"):
        return container
    lower, upper = _bound(part.lower, 0), _bound(part.upper, None)
    if part.step is not None or lower is NotImplemented or upper is NotImplemented or container.places != "own":
        return unordered(engine, container)
    name = f"{lower}:{upper}"
    view = engine.interned.views.get((container, name))
    if view is None:
        view = engine.interned.views[container, name] = Container(container.kind, "moved")
        engine.solver.link(container.element, view.element)
        container.follow(partial(_shifted, engine, view, lower, upper))
    return view


def _bound(bound: s.Expr | None, default: int | None) -> Any:
    """A bound that is written out and counts from the left; NotImplemented for any other."""
    if bound is None:
        return default
    known = isinstance(bound, s.Const) and isinstance(bound.value, int) and not isinstance(bound.value, bool)
    return bound.value if known else NotImplemented  # type: ignore[union-attr]


def _shifted(engine: Engine, view: Container, lower: int, upper: int | None, key: object, node: Node) -> None:
    if not isinstance(key, int):
        engine.solver.link(node, view.element)
    elif lower <= key and (upper is None or key < upper):
        engine.solver.link(node, view.item(key - lower))


def _view(engine: Engine, container: Container, name: str, node: Node) -> Container:
    view = engine.interned.views.get((container, name))
    if view is None:
        view = engine.interned.views[container, name] = Container("list")
        engine.solver.link(node, view.element)
    return view


def _pairs(engine: Engine, container: Container) -> Container:
    view = engine.interned.views.get((container, "items"))
    if view is None:
        view = engine.interned.views[container, "items"] = Container("list")
        pair = Container("tuple")
        engine.solver.link(container.keys, pair.item(0))
        engine.solver.link(container.whole, pair.item(1))
        engine.solver.add(view.element, pair)
    return view
