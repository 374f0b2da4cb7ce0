"""Functions and modules of the interpreted source, as objects that Python's own machinery can hold and call."""

from __future__ import annotations

import abc
import ast
import types
from typing import TYPE_CHECKING, Any

from sgltrace.evaluate.unknown import Unknown

if TYPE_CHECKING:
    from sgltrace.evaluate.machine import Machine

Scope = dict[str, Any]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Module:
    """A module of the source. Names are bound as its statements run; imports are followed when a name is used."""

    def __init__(self, name: str, path: str, tree: ast.Module | None, is_package: bool) -> None:
        self.name = name
        self.path = path
        self.tree = tree
        self.is_package = is_package
        self.scope: Scope = {"__name__": name, "__file__": path, "__doc__": None}
        self.stars: list[str] = []
        self.is_loaded = False

    def __repr__(self) -> str:
        return f"<module {self.name}>"


class LazyImport:
    """A name bound by ``from module import name`` (or ``import module``) that nobody has used yet."""

    def __init__(self, module: str, name: str | None) -> None:
        self.module = module
        self.name = name


class External:
    """The value of a module outside the source that may be asked for single names."""

    def __init__(self, name: str, names: dict[str, Any]) -> None:
        self.name = name
        self.names = names

    def __repr__(self) -> str:
        return f"<module {self.name}>"


class Function:
    """A function whose body is interpreted. It is called, bound, decorated and stored like any other."""

    def __init__(
        self,
        machine: Machine,
        node: FunctionNode,
        module: Module,
        scopes: tuple[Scope, ...],
        qualname: str,
        defaults: list[Any],
        keyword_defaults: dict[str, Any],
    ) -> None:
        self.machine = machine
        self.node = node
        self.module = module
        self.scopes = scopes
        self.defaults = defaults
        self.keyword_defaults = keyword_defaults
        self.__name__ = getattr(node, "name", "<lambda>")
        self.__qualname__ = qualname
        self.__module__ = module.name
        self.__doc__ = None if isinstance(node, ast.Lambda) else ast.get_docstring(node, clean=False)
        self._is_generator: bool | None = None

    @property
    def is_generator(self) -> bool:
        """Whether the body yields."""
        if self._is_generator is None:
            self._is_generator = not isinstance(self.node, ast.Lambda) and _yields(self.node.body)
        return self._is_generator

    @property
    def id(self) -> str:
        """``module:qualname``."""
        return f"{self.module.name}:{self.__qualname__}"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Run it."""
        return self.machine.call_function(self, args, keywords)

    def __repr__(self) -> str:
        return f"<function {self.__qualname__}>"

    def bind(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Scope:
        """The arguments by name; TypeError, in Python's words, where they do not fit."""
        spec = self.node.args
        names = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        bound: Scope = dict(zip(names, args, strict=False))
        rest = args[len(names) :]
        if spec.vararg is not None:
            bound[spec.vararg.arg] = tuple(rest)
        elif rest:
            raise TypeError(f"{self.__name__}() takes {len(names)} positional arguments but {len(args)} were given")
        allowed = {*names[len(spec.posonlyargs) :], *(arg.arg for arg in spec.kwonlyargs)}
        others: Scope = {}
        for name, value in keywords.items():
            if name not in allowed:
                others[name] = value
            elif name in bound:
                raise TypeError(f"{self.__name__}() got multiple values for argument {name!r}")
            else:
                bound[name] = value
        if spec.kwarg is not None:
            bound[spec.kwarg.arg] = others
        elif others:
            raise TypeError(f"{self.__name__}() got an unexpected keyword argument {next(iter(others))!r}")
        for name, default in zip(names[len(names) - len(self.defaults) :], self.defaults, strict=True):
            bound.setdefault(name, default)
        for name, default in self.keyword_defaults.items():
            bound.setdefault(name, default)
        missing = [name for name in (*names, *(arg.arg for arg in spec.kwonlyargs)) if name not in bound]
        if missing:
            raise TypeError(f"{self.__name__}() missing required argument: {missing[0]!r}")
        return bound


class Annotation:
    """The annotation of a class's field, evaluated only where somebody asks for it."""

    def __init__(self, node: ast.expr, frame: Any) -> None:
        self.node = node
        self.frame = frame

    def __repr__(self) -> str:
        return ast.unparse(self.node)


class _OpaqueMeta(abc.ABCMeta):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Unknown(f"{cls.__name__}.{name}")


class Opaque(metaclass=_OpaqueMeta):
    """Stands for a base class outside the source, and for instances that are not looked into."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{type(self).__name__}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Something unknown."""
        return Unknown(f"{type(self).__name__}()")


def _yields(body: list[ast.stmt]) -> bool:
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            stack.extend(ast.iter_child_nodes(node))
    return False


class Partial:
    """An object of which some attributes are known: asking whether it has another says no, reading it is unknown."""

    partial_name = "?"
