"""Abstract values, and the nodes through which they flow.

A node stands for what an expression, a variable, a parameter, a field or a return may be: a set of values that
only grows. Nodes are joined by links (everything here is also there) and watched by what must react to a value
(a call, an attribute load). The solver delivers each value once to each link and watcher.

Values are compared by identity; each is made in one place only and kept there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo


class Value:
    """What an expression may be when the program runs."""

    __slots__ = ()


class Instance(Value):
    """An object of a class of the tree."""

    __slots__ = ("cls",)

    def __init__(self, cls: ClassInfo) -> None:
        self.cls = cls

    def __repr__(self) -> str:
        return f"<{self.cls.id}>"


class ClassRef(Value):
    """A class of the tree itself."""

    __slots__ = ("cls",)

    def __init__(self, cls: ClassInfo) -> None:
        self.cls = cls

    def __repr__(self) -> str:
        return f"<class {self.cls.id}>"


class FunctionRef(Value):
    """A function, method (not bound) or lambda of the tree."""

    __slots__ = ("function",)

    def __init__(self, function: FunctionInfo) -> None:
        self.function = function

    def __repr__(self) -> str:
        return f"<function {self.function.id}>"


class Decorated(Value):
    """A function as its decorator gets it.

    One decorator wraps many functions, and its wrapper would call each of them with the arguments of all. The
    wrapper's call is an edge, no more: the arguments and the result flow past it, from the caller to the function.
    """

    __slots__ = ("decorator", "function")

    def __init__(self, function: FunctionInfo, decorator: Node) -> None:
        self.function = function
        self.decorator = decorator

    def is_called_by_wrapper(self, caller: FunctionInfo | None) -> bool:
        """Whether a caller is the decorator itself or was made by it."""
        makers = {v.function for v in self.decorator.values if isinstance(v, (FunctionRef, Bound))}
        classes = {v.cls for v in self.decorator.values if isinstance(v, (ClassRef, Instance))}
        while caller is not None:
            if caller in makers or (caller.owner is not None and caller.owner in classes):
                return True
            caller = caller.parent
        return False


class Bound(Value):
    """A function with its first argument: a bound method, or a class method of a class."""

    __slots__ = ("function", "receiver", "through_super")

    def __init__(self, function: FunctionInfo, receiver: Value, through_super: bool) -> None:
        self.function = function
        self.receiver = receiver
        self.through_super = through_super

    def __repr__(self) -> str:
        return f"<{self.function.id} of {self.receiver!r}>"


class SuperRef(Value):
    """``super()`` in a method of ``owner``: lookup starts after ``owner`` in the order of ``receiver``'s class."""

    __slots__ = ("owner", "receiver")

    def __init__(self, owner: ClassInfo, receiver: Value) -> None:
        self.owner = owner
        self.receiver = receiver


class ModuleRef(Value):
    """A module or package of the tree."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<module {self.name}>"


class ModulesOf(Value):
    """Any module of a package, as ``pkgutil.iter_modules`` and ``importlib.import_module`` yield them.

    ``names`` says whether the value is the modules' names rather than the modules.
    """

    __slots__ = ("names", "package")

    def __init__(self, package: str, names: bool) -> None:
        self.package = package
        self.names = names


class External(Value):
    """Something that the tree only uses: ``path`` is its dotted name where that is known, else empty."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<external {self.path}>"


class Text(Value):
    """A string constant."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return repr(self.text)


class Container(Value):
    """A list, tuple, set, dict, generator or the like, made at one place.

    ``element`` holds what is put in under no known key, ``items`` what is under a known one (a tuple's index, a
    dict's constant key), ``whole`` all of it, ``keys`` a dict's keys.
    """

    __slots__ = ("element", "followers", "items", "keys", "kind", "places", "whole")

    def __init__(self, kind: str, places: str = "own") -> None:
        self.kind = kind
        self.places = places
        """Where its elements stand: at their ``own`` places, at others (``moved``, of a slice) or at ``any``."""
        self.followers: list[Callable[[Any, Node], None]] | None = None
        """What is told of each key that becomes known."""
        self.element = Node()
        self.whole = Node()
        self.element.targets = [self.whole]
        self.keys = Node()
        self.items: dict[Any, Node] = {}

    def item(self, key: Any) -> Node:
        """The node under a known key."""
        node = self.items.get(key)
        if node is None:
            node = self.items[key] = Node()
            node.targets = [self.whole]
            for follow in self.followers or ():
                follow(key, node)
        return node

    def follow(self, react: Callable[[Any, Node], None]) -> None:
        """Tell of every known key and its node, now and later."""
        if self.followers is None:
            self.followers = []
        self.followers.append(react)
        for key, node in list(self.items.items()):
            react(key, node)

    def __repr__(self) -> str:
        return f"<{self.kind} of {self.whole.values!r}>"


class Method(Value):
    """A method of a container, as ``reqs.append``."""

    __slots__ = ("container", "name")

    def __init__(self, container: Container, name: str) -> None:
        self.container = container
        self.name = name


class Partial(Value):
    """``functools.partial(function, *args)``: arguments are pairs of a name (or None) and a node."""

    __slots__ = ("args", "function")

    def __init__(self, function: Node, args: list[tuple[str | None, Node]]) -> None:
        self.function = function
        self.args = args


Transform = Callable[[Value], "Value | None"]
_NONE: dict[Value, None] = {}


class Node:
    """A set of values, in the order in which they came.

    ``transform`` maps a value that comes in, or refuses it with None. ``is_name``: the node of a module's or a
    class's name, where the path of an external is kept.
    """

    __slots__ = ("fixed", "is_name", "targets", "transform", "values", "watchers")

    def __init__(self, transform: Transform | None = None) -> None:
        self.values: dict[Value, None] = _NONE
        self.targets: list[Node] | None = None
        self.watchers: list[Callable[[Value], None]] | None = None
        self.transform = transform
        self.fixed = False
        self.is_name = False


def constant(value: Value) -> Node:
    """A node that holds one value for good."""
    node = Node()
    node.values = {value: None}
    node.fixed = True
    return node


OPAQUE = External("")
"""An external object of which no more is known (a tensor, a number, a logger)."""
EXTERNAL = constant(OPAQUE)
NOTHING = Node()
"""What ``None`` is: no value that anything could be called on."""
NOTHING.fixed = True

MAX_TEXTS = 24
"""More string constants than this in one node mean a free string."""

MAX_VALUES = 64
"""A node that holds more than this takes no further containers."""


class Solver:
    """Delivers values along links and to watchers until nothing is left."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Node, Value, int, int]] = deque()
        self.refused: dict[Node, dict[Instance, None]] = {}
        """The instances that the transform of a node refused."""
        self.lost = 0
        """How many values led to so much at once that they were given up."""

    def add(self, node: Node, value: Value) -> None:
        """Put a value into a node."""
        if value in node.values or node.fixed:
            return
        if node.transform is not None:
            changed = node.transform(value)
            if changed is None:
                if type(value) is Instance:
                    self.refused.setdefault(node, {})[value] = None
                return
            if changed in node.values:
                return
            value = changed
        if type(value) is External and not node.is_name:
            value = OPAQUE  # only names tell what an external is: nobody needs torch.int32 in a thousand places
            if value in node.values:
                return
        elif type(value) is Container and len(node.values) >= MAX_VALUES:
            value = OPAQUE  # data that many places pass around
            if value in node.values:
                return
        elif type(value) is Text and len(node.values) >= MAX_TEXTS:
            value = OPAQUE
            if value in node.values:
                return
        if node.values is _NONE:
            node.values = {value: None}
        else:
            node.values[value] = None
        targets, watchers = node.targets, node.watchers
        if targets or watchers:
            self._pending.append((node, value, len(targets or ()), len(watchers or ())))

    def force(self, node: Node, value: Value) -> None:
        """Put a value into a node past its transform."""
        transform, node.transform = node.transform, None
        self.add(node, value)
        node.transform = transform

    def link(self, source: Node, target: Node) -> None:
        """Everything in ``source`` is in ``target``, now and later."""
        if source is target or target.fixed:
            return
        if not source.fixed:
            if source.targets is None:
                source.targets = [target]
            elif target in source.targets:
                return
            else:
                source.targets.append(target)
        for value in list(source.values):
            self.add(target, value)

    def watch(self, node: Node, react: Callable[[Value], None]) -> None:
        """Call ``react`` with every value of ``node``, now and later, once each."""
        if not node.fixed:
            if node.watchers is None:
                node.watchers = [react]
            else:
                node.watchers.append(react)
        for value in list(node.values):
            react(value)

    def run(self) -> None:
        """Deliver until nothing is pending."""
        while self._pending:
            try:
                self._deliver()
            except RecursionError:
                self.lost += 1

    def _deliver(self) -> None:
        pending, add = self._pending, self.add
        while pending:
            node, value, targets, watchers = pending.popleft()
            if targets:
                for target in node.targets[:targets]:  # type: ignore[index]
                    add(target, value)
            if watchers:
                for react in node.watchers[:watchers]:  # type: ignore[index]
                    react(value)
