"""Python's builtins as the source sees them: they know what is unknown, and reach nothing outside the interpreter."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sgltrace.evaluate.expressions import Elements
from sgltrace.evaluate.functions import External, Function, Module, Opaque
from sgltrace.evaluate.unknown import Maybe, Unknown, combine, describe, has_unknown, roots_of

if TYPE_CHECKING:
    from sgltrace.evaluate.machine import Machine

PLAIN = [
    "abs",
    "all",
    "any",
    "ascii",
    "bin",
    "bool",
    "bytearray",
    "bytes",
    "callable",
    "chr",
    "classmethod",
    "complex",
    "dict",
    "divmod",
    "enumerate",
    "filter",
    "float",
    "format",
    "frozenset",
    "hash",
    "hex",
    "id",
    "int",
    "iter",
    "list",
    "map",
    "max",
    "memoryview",
    "min",
    "next",
    "object",
    "oct",
    "ord",
    "pow",
    "property",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "slice",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "zip",
    "NotImplemented",
    "Ellipsis",
    "True",
    "False",
    "None",
]


def make_builtins(machine: Machine) -> dict[str, Any]:
    """Names that every module has."""
    found = {name: getattr(builtins, name) for name in PLAIN if hasattr(builtins, name)}
    found.update({n: v for n, v in vars(builtins).items() if isinstance(v, type) and issubclass(v, BaseException)})
    own: dict[str, Callable[..., Any]] = {
        name[1:]: getattr(_Builtins(machine), name) for name in vars(_Builtins) if name[0] == "_" and name[1] != "_"
    }
    found.update(own)
    found["__debug__"] = True
    found["__build_class__"] = Unknown("__build_class__")
    return found


class _Builtins:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def _print(self, *args: Any, **keywords: Any) -> None:
        return None

    def _len(self, value: Any) -> Any:
        if isinstance(value, Unknown):
            return combine(len, f"len({value.name})", value)
        elements = value.values() if isinstance(value, dict) else value
        if isinstance(value, (list, dict, tuple, set)) and any(isinstance(item, Maybe) for item in elements):
            return Unknown(f"len({describe(value)})", (), roots_of((value,)))
        return self._machine.native(len, (value,), {}, f"len({describe(value)})")

    def _isinstance(self, value: Any, kinds: Any) -> Any:
        if isinstance(value, Maybe):
            value = value.value
        if isinstance(value, Unknown):
            return combine(
                lambda one: self._isinstance(one, kinds), f"isinstance({value.name}, {describe(kinds)})", value
            )
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        if any(isinstance(value, kind) for kind in listed if not isinstance(kind, Unknown)):
            return True
        if any(isinstance(kind, Unknown) for kind in listed) and isinstance(value, Opaque):
            return Unknown(f"isinstance({describe(value)}, {describe(kinds)})")
        return False

    def _issubclass(self, value: Any, kinds: Any) -> Any:
        if isinstance(value, Unknown) or has_unknown((kinds,)):
            return Unknown(f"issubclass({describe(value)}, {describe(kinds)})")
        return issubclass(value, kinds)

    def _getattr(self, value: Any, name: Any, *default: Any) -> Any:
        if isinstance(name, Unknown):
            return combine(
                lambda one: self._getattr(value, one, *default), f"getattr({describe(value)}, {name.name})", name
            )
        try:
            return self._machine.get_attribute(value, name)
        except (AttributeError, ModuleNotFoundError):
            if default:
                return default[0]
            raise

    def _hasattr(self, value: Any, name: Any) -> Any:
        if isinstance(value, (Module, External)) or not isinstance(value, Unknown):
            try:
                found = self._machine.get_attribute(value, name)
            except AttributeError:
                return False
            if isinstance(value, External) and isinstance(found, Unknown) and name not in value.names:
                return Unknown(f"hasattr({describe(value)}, {name!r})")
            return True
        if value.options:
            return combine(lambda one: self._hasattr(one, name), f"hasattr({value.name}, {name!r})", value)
        fact = Unknown(f"hasattr({value.name}, {name!r})", (), None if value.roots == {value.name} else value.roots)
        return self._machine.assumed_value(fact)

    def _setattr(self, value: Any, name: Any, to: Any) -> None:
        if isinstance(name, Unknown) or self._machine.frame is None:
            return
        self._machine.set_attribute(value, name, to, self._machine.frame)

    def _delattr(self, value: Any, name: str) -> None:
        delattr(value, name)

    def _vars(self, *value: Any) -> Any:
        if not value:
            return self._machine.frame.locals if self._machine.frame is not None else {}
        if isinstance(value[0], Unknown):
            return Unknown(f"vars({value[0].name})")
        return value[0].scope if isinstance(value[0], Module) else vars(value[0])

    def _dir(self, *value: Any) -> Any:
        return Unknown("dir()") if not value or isinstance(value[0], Unknown) else dir(value[0])

    def _globals(self) -> Any:
        return self._machine.frame.module.scope if self._machine.frame is not None else {}

    def _locals(self) -> Any:
        return self._machine.frame.locals if self._machine.frame is not None else {}

    def _any(self, values: Any) -> Any:
        return self._fold(values, True)

    def _all(self, values: Any) -> Any:
        return self._fold(values, False)

    def _fold(self, values: Any, decisive: bool) -> Any:
        word = "any" if decisive else "all"
        items = self._machine.expressions.iterate(values)
        if items is None:
            return Unknown(f"{word}({describe(values)})", (), roots_of((values,)))
        doubts: list[Unknown] = []
        for item in items:
            truth = self._machine.truth(item.value if isinstance(item, Maybe) else item)
            if isinstance(item, Maybe) and truth is not (not decisive):
                doubts.append(item.condition)
            elif isinstance(truth, Unknown):
                doubts.append(truth)
            elif truth is decisive:
                return decisive
        if not doubts:
            return not decisive
        if len(doubts) == 1:
            return doubts[0] if decisive or not isinstance(doubts[0], Maybe) else Unknown(word, (), doubts[0].roots)
        return Unknown(f"{word}({', '.join(d.name for d in doubts)})", (), roots_of(doubts))

    def _open(self, path: Any, mode: str = "r", *args: Any, **keywords: Any) -> Any:
        from sgltrace.evaluate.library import open_for_reading

        return open_for_reading(self._machine, path, mode)

    def _iter(self, value: Any, *sentinel: Any) -> Any:
        items = self._machine.expressions.iterate(value)
        return Unknown(f"iter({describe(value)})", (), roots_of((value,))) if items is None else Elements(items)

    def _next(self, value: Any, *default: Any) -> Any:
        if isinstance(value, Elements):
            if not value:
                if default:
                    return default[0]
                raise StopIteration
            first = value.pop(0)
            return (
                Unknown(f"the first of {describe(value)}", (), roots_of((first,)))
                if isinstance(first, Maybe)
                else first
            )
        return self._machine.native(next, (value, *default), {}, f"next({describe(value)})")

    def _exec(self, *_: Any) -> Any:
        return None

    def _eval(self, *_: Any) -> Any:
        return Unknown("eval(...)")

    def _compile(self, *_: Any, **__: Any) -> Any:
        return Unknown("compile(...)")

    def _input(self, *_: Any) -> Any:
        return Unknown("input()")

    def _breakpoint(self, *_: Any) -> Any:
        return None

    def ___import__(self, name: str, *_: Any) -> Any:
        return Unknown(name)

    def _callable(self, value: Any) -> Any:
        return Unknown(f"callable({value.name})") if isinstance(value, Unknown) else callable(value)

    def _sorted(self, values: Any, *, key: Any = None, reverse: Any = False) -> Any:
        items = self._machine.expressions.iterate(values)
        if items is None or has_unknown(items, 1):
            return Unknown(f"sorted({describe(values)})", (), roots_of((values,)))
        return sorted(items, key=key, reverse=bool(reverse))

    def _type(self, *args: Any, **keywords: Any) -> Any:
        return type(*args, **keywords)


del _Builtins._type  # `type` is a base class, too


__all__ = ["Function", "make_builtins"]
