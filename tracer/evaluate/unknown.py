"""Values of which only a name is known, or a few possibilities."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

MAX_OPTIONS = 8
"""A value that may be more things than this may be anything."""


class Undecided(Exception):
    """Python asked an unknown value for something that only a known one has: its truth, its length."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.name)
        self.unknown = unknown


class Absent:
    """What a place holds that is not bound on one side of a condition."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Unknown:
    """A value that is not known.

    ``name`` says which, in the source's words; ``options`` are the values it may have, where they are few; ``roots``
    are the facts on which it depends; ``parts`` is how it was put together of conditions (``not``, ``and``, ``or``).
    """

    __slots__ = ("name", "options", "parts", "roots")

    def __init__(
        self,
        name: str,
        options: tuple[Any, ...] = (),
        roots: frozenset[str] | None = None,
        parts: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:
        self.name = name if len(name) <= 120 else f"{name[:117]}..."
        self.options = options
        self.roots = frozenset((self.name,)) if roots is None else roots
        self.parts = parts

    def __repr__(self) -> str:
        return f"<{self.name}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __hash__(self) -> int:
        return id(self)

    def _ask(self, *_: Any) -> NoReturn:
        raise Undecided(self)

    __bool__ = __len__ = __iter__ = __contains__ = __index__ = __int__ = __float__ = _ask
    __next__ = __reversed__ = __enter__ = __exit__ = _ask

    def __copy__(self) -> Unknown:
        return self

    def __deepcopy__(self, _: Any) -> Unknown:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self.child(f".{name}")

    def __getitem__(self, key: Any) -> Any:
        return self.child(f"[{describe(key)}]")

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """What a call of it gives, named after it."""
        given = [describe(arg) for arg in args] + [f"{name}={describe(value)}" for name, value in keywords.items()]
        return self.child(f"({', '.join(given)})", args, keywords.values())

    def child(self, suffix: str, *given: Iterable[Any]) -> Unknown:
        """What comes of the value, named after it; of the same facts where it is one of a few values."""
        name = f"{self.name}{suffix}"
        roots = roots_of(value for values in given for value in values)
        own = frozenset((name,)) if self.roots == {self.name} else self.roots
        return Unknown(name, (), own | roots)


class Maybe(Unknown):
    """An element of a list, or a value of a dict, that is there under a condition alone."""

    __slots__ = ("condition", "value")
    condition: Unknown
    value: Any

    def __init__(self, value: Any, condition: Unknown) -> None:
        if isinstance(value, Maybe):
            inner: Unknown = value.condition
            value = value.value
            name = f"{inner.name} and {condition.name}"
            condition = Unknown(name, (), inner.roots | condition.roots, ("and", (inner, condition)))
        super().__init__(describe(value), (), condition.roots | roots_of((value,)))
        self.value = value
        self.condition = condition


def roots_of(values: Iterable[Any]) -> frozenset[str]:
    """The facts on which any of the values depends."""
    found: frozenset[str] = frozenset()
    for value in values:
        if isinstance(value, Unknown):
            found |= value.roots
        elif isinstance(value, (list, tuple, set, frozenset)):
            found |= roots_of(value)
        elif isinstance(value, dict):
            found |= roots_of(value.values())
    return found


def describe(value: Any) -> str:
    """A value as it may stand in a name: short, and the same in every run."""
    if isinstance(value, Unknown):
        return value.name
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:37]}...")
    if isinstance(value, (list, tuple)) and len(value) <= 4:
        return f"({', '.join(map(describe, value))})"
    named = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType))
    return str(value.__name__ if named else type(value).__name__)


def has_unknown(values: Iterable[Any], depth: int = 3) -> bool:
    """Whether any of the values is unknown, or holds something that is."""
    for value in values:
        if isinstance(value, Unknown):
            return True
        if depth and isinstance(value, (list, tuple, set, frozenset)) and has_unknown(value, depth - 1):
            return True
        if depth and isinstance(value, dict) and has_unknown(value.values(), depth - 1):
            return True
    return False


def same(left: Any, right: Any) -> bool:
    """Whether two values are one: the same object, or equal plain data of the same type."""
    if left is right:
        return True
    if isinstance(left, Unknown) and isinstance(right, Unknown):
        return left.name == right.name and left.options == right.options and type(left) is type(right) is Unknown
    if type(left) is not type(right):
        return False
    if isinstance(left, (bool, int, float, str, bytes)):
        return bool(left == right)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (set, frozenset)):
        return bool(left == right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    return False


def one_of(values: Iterable[Any], name: str, roots: frozenset[str]) -> Any:
    """The value that is one of ``values``: itself where there is one only."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Maybe) or (isinstance(value, Unknown) and not value.options):
            return Unknown(name, (), roots | value.roots)
        if isinstance(value, Unknown):
            roots |= value.roots
        for option in value.options if isinstance(value, Unknown) else (value,):
            if not any(same(option, other) for other in found):
                found.append(option)
    if len(found) == 1:
        return found[0]
    return Unknown(name, tuple(found) if len(found) <= MAX_OPTIONS else (), roots)


def combine(function: Callable[..., Any], name: str, *operands: Any) -> Any:
    """``function`` of operands of which some are unknown: each possibility where they have few."""
    roots = roots_of(operands)
    choices: list[list[Any]] = [[]]
    for operand in operands:
        if isinstance(operand, Unknown):
            if not operand.options or isinstance(operand, Maybe):
                return Unknown(name, (), roots)
            choices = [[*chosen, option] for chosen in choices for option in operand.options]
        else:
            choices = [[*chosen, operand] for chosen in choices]
    if len(choices) > MAX_OPTIONS**2:
        return Unknown(name, (), roots)
    results = []
    for chosen in choices:
        try:
            results.append(function(*chosen))
        except Exception:
            continue  # a possibility that Python refuses is none
    return one_of(results, name, roots) if results else Unknown(name, (), roots)


def _binary(symbol: str, function: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(self: Unknown, other: Any) -> Any:
        return combine(function, f"{describe(self)} {symbol} {describe(other)}", self, other)

    def backward(self: Unknown, other: Any) -> Any:
        return combine(function, f"{describe(other)} {symbol} {describe(self)}", other, self)

    return forward, backward


_ARITHMETIC = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "matmul": "@",
}  # fmt: skip
for _name, _symbol in _ARITHMETIC.items():
    _function = getattr(operator, f"__{_name}__")
    _forward, _backward = _binary(_symbol, _function)
    setattr(Unknown, f"__{_name}__", _forward)
    setattr(Unknown, f"__r{_name}__", _backward)
for _name, _symbol in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Unknown, f"__{_name}__", _binary(_symbol, getattr(operator, _name))[0])
for _name, _symbol in {"neg": "-", "pos": "+", "invert": "~", "abs": "abs "}.items():

    def _unary(self: Unknown, symbol: str = _symbol, function: Any = getattr(operator, _name)) -> Any:  # noqa: B008
        return combine(function, f"{symbol}{describe(self)}", self)

    setattr(Unknown, f"__{_name}__", _unary)
