"""What the experiment asks of a server's objects: fields, tensors, ways from one object to another. Imports nothing of
theirs: a tensor is whatever has a shape and a dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DEPTH = 3
"""Objects are looked for through so many attributes."""
WIDE = 400
"""An object with more attributes is a module of the model or the like."""


def fields(obj: Any) -> dict[str, Any]:
    """The attributes that an object itself holds."""
    own = getattr(obj, "__dict__", None)
    if isinstance(own, dict):
        return dict(own)
    slots = getattr(type(obj), "__slots__", ())
    return {name: getattr(obj, name) for name in slots if hasattr(obj, name)}


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "data_ptr")


def is_whole(value: Any) -> bool:
    """Whether a tensor holds integers."""
    return is_tensor(value) and not value.is_floating_point() and "bool" not in str(value.dtype)


def ident(cls: type) -> str:
    """A class as the index names it."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_one_of(obj: Any, wanted: frozenset[str]) -> bool:
    """Whether an object is an instance of one of the classes, or of one that inherits from them."""
    return any(ident(cls) in wanted for cls in type(obj).__mro__)


def ways_to(start: Any, wanted: frozenset[str], depth: int = DEPTH) -> Iterator[list[str]]:
    """The attributes that lead to instances of classes, the short ways first; one way to each object."""
    seen = {id(start)}
    todo: list[tuple[Any, list[str]]] = [(start, [])]
    for _ in range(depth):
        found: list[tuple[Any, list[str]]] = []
        for obj, way in todo:
            for name, value in fields(obj).items():
                if id(value) in seen or not hasattr(value, "__dict__") or isinstance(value, type):
                    continue
                if type(value).__module__.split(".")[0] not in (type(start).__module__.split(".")[0], "__main__"):
                    continue
                seen.add(id(value))
                if is_one_of(value, wanted):
                    yield [*way, name]
                if len(fields(value)) <= WIDE:
                    found.append((value, [*way, name]))
        todo = found


def way_to(start: Any, wanted: Any, depth: int = DEPTH) -> list[str] | None:
    """The attributes that lead to this very object."""
    for way in ways_to(start, frozenset({ident(type(wanted))}), depth):
        if follow(start, way) is wanted:
            return way
    return None


def follow(start: Any, way: list[str]) -> Any:
    """The object at the end of a way."""
    for name in way:
        start = getattr(start, name)
    return start


def same(left: Any, right: Any) -> bool:
    """Whether two tensors of whole numbers hold the same ones, whatever their dtypes and devices. Waits for them."""
    if tuple(left.shape) != tuple(right.shape):
        return False
    return bool(left.tolist() == right.tolist())
