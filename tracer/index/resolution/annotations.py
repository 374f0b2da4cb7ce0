"""What an annotation says about a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import ClassInfo, Scope
from sgltrace.index.resolution.modules import dotted
from sgltrace.index.resolution.values import (
    OPAQUE,
    Bound,
    ClassRef,
    Container,
    External,
    FunctionRef,
    Instance,
    Node,
    Transform,
    Value,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine

_ALIASES = {"Optional", "Union", "Final", "ClassVar", "Annotated", "Required", "NotRequired", "InitVar", "Awaitable"}
_LISTS = {
    "List": "list", "list": "list", "Sequence": "list", "Iterable": "list", "Iterator": "generator",
    "Generator": "generator", "Set": "set", "set": "set", "FrozenSet": "set", "frozenset": "set", "Deque": "list",
    "deque": "list", "Collection": "list", "MutableSequence": "list", "AsyncIterator": "generator",
    "AsyncGenerator": "generator", "AbstractSet": "set", "MutableSet": "set", "Queue": "list",
}  # fmt: skip
_DICTS = {
    "Dict",
    "dict",
    "Mapping",
    "MutableMapping",
    "OrderedDict",
    "DefaultDict",
    "defaultdict",
    "WeakValueDictionary",
}
_OPEN = {"Any", "object", "Callable", "Type", "type", "TypeVar", "Protocol", "Hashable", "Self", "T"}


@dataclass
class Annotation:
    """The classes that an annotation names, and other values. ``open`` where it leaves room for anything."""

    classes: list[ClassInfo] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    open: bool = False
    outside: set[str] = field(default_factory=set)
    """The names of the classes outside the tree that it names, without their modules."""
    is_tensor: bool = False
    """Whether it names something of torch's, which no function of the tree is."""
    holds_objects: bool = False
    """Whether it names a container that may hold objects of the tree."""


def read_annotation(engine: Engine, expression: s.Expr, scope: Scope) -> Annotation:
    """The meaning of an annotation where it stands; kept, so that its containers are always the same."""
    key = id(expression)
    found = engine.annotations.get(key)
    if found is None:
        found = engine.annotations[key] = Annotation()
        _read(engine, expression, scope, found)
    return found


def _read(engine: Engine, expression: s.Expr, scope: Scope, out: Annotation) -> None:
    if isinstance(expression, s.Bin) and expression.op == "|":
        _read(engine, expression.left, scope, out)
        _read(engine, expression.right, scope, out)
    elif isinstance(expression, s.Sub):
        _read_subscript(engine, expression, scope, out)
    elif isinstance(expression, s.Const):
        out.open |= isinstance(expression.value, str)
    elif isinstance(expression, (s.Name, s.Attr)):
        _read_name(engine, expression, scope, out)
    else:
        out.open = True


def _read_name(engine: Engine, expression: s.Expr, scope: Scope, out: Annotation) -> None:
    values = engine.evaluate(expression, scope)
    if not values:
        out.open = True
    for value in values:
        if type(value) is ClassRef:
            out.classes.append(value.cls)
            out.values.append(value.cls.instance)
            if engine.classes.is_abstract(value.cls):
                out.nodes.append(value.cls.instances)
        elif type(value) is External:
            last = value.path.rpartition(".")[2]
            if last in _OPEN or last in _LISTS or last in _DICTS or last in ("tuple", "Tuple"):
                out.open = True
            else:
                out.values.append(OPAQUE)
                out.outside.add(last)
                out.is_tensor |= value.path.startswith("torch.")
        elif type(value) is Container:  # an alias: X = Union[A, B]
            out.open = True
        else:
            out.open = True


def _read_subscript(engine: Engine, expression: s.Sub, scope: Scope, out: Annotation) -> None:
    name = (dotted(expression.value) or "").rpartition(".")[2]
    index = expression.index
    parts = index.items if isinstance(index, s.Seq) and index.kind == "tuple" else [index]
    if name in _ALIASES:
        for part in parts[:1] if name == "Annotated" else parts:
            _read(engine, part, scope, out)
    elif name in _LISTS:
        _container(engine, _LISTS[name], parts[:1], scope, out)
    elif name in _DICTS:
        _container(engine, "dict", parts[1:2], scope, out)
    elif name in ("Tuple", "tuple"):
        if len(parts) == 2 and isinstance(parts[1], s.Ellipsis_):
            _container(engine, "tuple", parts[:1], scope, out)
        else:
            container = Container("tuple")
            for i, part in enumerate(parts):
                engine.declare(container.item(i), part, scope)
            out.values.append(container)
            out.holds_objects = True
    elif name in ("Type", "type"):
        inner = read_annotation(engine, parts[0], scope)
        for cls in inner.classes:
            out.values.append(cls.ref)
        out.open = True
    elif name == "Literal":
        out.values.append(OPAQUE)
    elif name == "Callable":
        out.open = True
    else:
        _read(engine, expression.value, scope, out)


def _container(engine: Engine, kind: str, parts: list[s.Expr], scope: Scope, out: Annotation) -> None:
    container = Container(kind)
    for part in parts:
        engine.declare(container.element, part, scope)
        inner = read_annotation(engine, part, scope)
        out.open |= inner.open
        out.holds_objects |= bool(inner.classes or inner.outside & {"Module"} or inner.holds_objects)
    out.values.append(container)
    out.open |= not parts


def narrowing(engine: Engine, annotation: Annotation) -> Transform | None:
    """A transform that lets through what fits an annotation; None where anything may.

    Functions pass, but not for a tensor: where one comes in, the annotation is not meant as it is written.
    """
    if annotation.open or not annotation.values:
        return None
    classes = frozenset(annotation.classes)
    protocols = [cls for cls in annotation.classes if engine.classes.is_protocol(cls)]

    def transform(value: Value) -> Value | None:
        if isinstance(value, Instance):
            fits = not classes.isdisjoint(engine.classes.mro(value.cls)) or _is_outside(value.cls, annotation.outside)
            return value if fits or any(engine.classes.implements(value.cls, p) for p in protocols) else None
        if isinstance(value, Container):
            return value if annotation.holds_objects or value in annotation.values else None
        return None if annotation.is_tensor and isinstance(value, (Bound, FunctionRef)) else value

    return transform


def _is_outside(cls: ClassInfo, names: set[str]) -> bool:
    """Whether a class inherits from one of these classes outside the tree. A parameter of torch's is a tensor."""
    bases = {path.rpartition(".")[2] for path in cls.external_bases}
    return not bases.isdisjoint(names) or ("Tensor" in names and any(base.endswith("Parameter") for base in bases))
