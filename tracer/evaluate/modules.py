"""The source's modules, run when something in them is used; modules outside the source by what is known of them."""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from sgltrace.evaluate.frame import Frame
from sgltrace.evaluate.functions import External, LazyImport, Module
from sgltrace.evaluate.library import library_module
from sgltrace.evaluate.unknown import Unknown
from sgltrace.sources import SourceTree, UndecodableSource, UnreadableFile, decode_source

if TYPE_CHECKING:
    from sgltrace.evaluate.machine import Machine


class Modules:
    """Loads modules of a tree; imports of names wait until the name is used."""

    def __init__(self, machine: Machine, tree: SourceTree, installed: frozenset[str]) -> None:
        self._machine = machine
        self._tree = tree
        self._installed = installed
        self.loaded: dict[str, Module] = {}
        self._packages = {
            ".".join(parts[:i]) for parts in (name.split(".") for name in tree.modules) for i in range(1, len(parts))
        }
        self._externals: dict[str, Any] = {}
        self.loading = 0
        """How many modules' tops are running."""
        self._names_used: dict[str, set[str]] = {}

    def is_own(self, name: str) -> bool:
        """Whether a dotted name lies in the source's package."""
        return name == self._tree.package or name.startswith(f"{self._tree.package}.")

    def is_installed(self, name: str) -> bool:
        """Whether a package outside the source is always there."""
        return name.partition(".")[0] in self._installed

    def exists(self, name: str) -> bool:
        """Whether the source has such a module or package."""
        return name in self._tree.modules or name in self._packages

    def names_below(self, part: str) -> list[str]:
        """The source's modules that lie in a package of this name."""
        return [name for name in self._tree.modules if f".{part}." in name]

    def load(self, name: str, as_name: str | None = None) -> Module:
        """The module, its statements run. Raises ModuleNotFoundError where the source has none."""
        module = self.loaded.get(as_name or name)
        if module is not None:
            return module
        if not self.exists(name):
            raise ModuleNotFoundError(f"No module named {name!r}")
        path = self._tree.modules.get(name, "")
        module = Module(name, path, self._parse(name), path.endswith("__init__.py") or not path)
        self.loaded[as_name or name] = module
        if as_name is not None:
            module.scope["__name__"] = as_name
        with self._machine.journal.apart():
            self._run(module)
        return module

    def _parse(self, name: str) -> ast.Module | None:
        if name not in self._tree.modules:
            return None
        try:
            return ast.parse(decode_source(self._tree.read_module(name)))
        except (SyntaxError, ValueError, UnreadableFile, UndecodableSource) as error:
            self._machine.skipped.append(f"{self._tree.modules[name]}: {error}")
            return None

    def _run(self, module: Module) -> None:
        machine = self._machine
        frame = Frame(module, module.scope, caller=machine.frame)
        before, machine.frame = machine.frame, frame
        decided, machine.decided = machine.decided, {}
        self.loading += 1
        try:
            for statement in module.tree.body if module.tree is not None else ():
                try:
                    machine.statements.one(statement, frame)
                except (Exception, SystemExit) as error:
                    place = f"{module.path}:{statement.lineno}"
                    machine.skipped.append(f"{place}: {type(error).__name__}: {error}")
                    for name in bound_by(statement):
                        module.scope.setdefault(name, Unknown(f"{module.name}.{name}"))
        finally:
            self.loading -= 1
            machine.frame, machine.decided = before, decided
        module.is_loaded = True

    # --- imports -------------------------------------------------------------------------------------------

    def absolute(self, module: Module, target: str, level: int) -> str:
        """The module that a ``from`` statement names."""
        if level == 0:
            return target
        parts = module.name.split(".")
        up = level - 1 if module.is_package else level
        base = parts[: len(parts) - up] if up else parts
        return ".".join([*base, target] if target else base)

    def check_import(self, module: str, frame: Frame) -> None:
        """Raise what Python would for a module that the source lacks."""
        if self.is_own(module) and not self.exists(module):
            raise ModuleNotFoundError(f"No module named {module!r}")

    def import_module(self, name: str, frame: Frame) -> None:
        """``import name``: one of the source's own runs now, for what it registers."""
        if self.is_own(name):
            self.check_import(name, frame)
            parts = name.split(".")
            for end in range(2, len(parts) + 1):
                self.load(".".join(parts[:end]))

    def note_import(self, frame: Frame, module: str, name: str, bound: str) -> None:
        """``from module import name``: a submodule that nobody names afterwards is imported for what it registers."""
        submodule = f"{module}.{name}"
        if self.is_own(module) and submodule in self._tree.modules and bound not in self._used_names(frame.module):
            self.load(submodule)

    def _used_names(self, module: Module) -> set[str]:
        found = self._names_used.get(module.name)
        if found is None:
            nodes = ast.walk(module.tree) if module.tree is not None else iter(())
            found = self._names_used[module.name] = {node.id for node in nodes if isinstance(node, ast.Name)}
        return found

    def star(self, frame: Frame, module: str) -> None:
        """``from module import *``."""
        if self.is_own(module):
            frame.module.stars.append(module)

    def from_stars(self, module: Module, name: str) -> tuple[Any] | None:
        """What a star import binds a name to."""
        for star in module.stars:
            other = self.load(star)
            if name in other.scope or other.stars:
                value = self._member(other, name)
                if value is not None:
                    return value
        return None

    def resolve(self, lazy: LazyImport) -> Any:
        """The value of a name that was imported."""
        if lazy.name is None:
            if self.is_own(lazy.module):
                return self.load(lazy.module)
            return self.external(lazy.module)
        if not self.is_own(lazy.module):
            return self._external_name(lazy.module, lazy.name)
        if lazy.module not in self._tree.modules and self.exists(f"{lazy.module}.{lazy.name}"):
            return self.load(f"{lazy.module}.{lazy.name}")
        module = self.load(lazy.module)
        found = self._member(module, lazy.name)
        if found is not None:
            return found[0]
        if self.exists(f"{lazy.module}.{lazy.name}"):
            return self.load(f"{lazy.module}.{lazy.name}")
        if "__getattr__" in module.scope:
            return self._machine.call(module.scope["__getattr__"], (lazy.name,), {}, self._machine.frame)
        if module.tree is None or not module.is_loaded:
            return Unknown(f"{lazy.module}.{lazy.name}")
        raise ImportError(f"cannot import name {lazy.name!r} from {lazy.module!r}")

    def _member(self, module: Module, name: str) -> tuple[Any] | None:
        if name in module.scope:
            value = module.scope[name]
            if type(value) is LazyImport:
                value = module.scope[name] = self.resolve(value)
            return (value,)
        return self.from_stars(module, name)

    def attribute(self, module: Module, name: str) -> Any:
        """``module.name`` for a module of the source."""
        if name in self._machine.assumed:
            return self._machine.assume(name)
        found = self._member(module, name)
        if found is not None:
            return found[0]
        if self.exists(f"{module.name}.{name}"):
            return self.load(f"{module.name}.{name}")
        if "__getattr__" in module.scope:
            return self._machine.call(module.scope["__getattr__"], (name,), {}, self._machine.frame)
        raise AttributeError(f"module {module.name!r} has no attribute {name!r}")

    # --- outside the source --------------------------------------------------------------------------------

    def external(self, name: str) -> Any:
        """A module outside the source."""
        if name not in self._externals:
            names = library_module(name, self._machine)
            self._externals[name] = Unknown(name) if names is None else External(name, names)
        return self._externals[name]

    def _external_name(self, module: str, name: str) -> Any:
        whole = self.external(module)
        if isinstance(whole, External):
            if name in whole.names:
                return whole.names[name]
            return self.external(f"{module}.{name}")
        return self._machine.get_attribute(whole, name)

    def external_attribute(self, module: External, name: str) -> Any:
        """``module.name`` for a module outside the source."""
        if name in module.names:
            return module.names[name]
        return self.external(f"{module.name}.{name}")

    def may_be_missing(self, node: ast.Try, frame: Frame) -> Unknown | None:
        """Whether a ``try`` hangs on an optional package: the fact that it is installed."""
        if not any(_mentions_import_error(handler.type) for handler in node.handlers):
            return None
        for statement in node.body:
            names = []
            if isinstance(statement, ast.Import):
                names = [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
                names = [statement.module]
            for name in names:
                top = name.partition(".")[0]
                if self.is_own(name) or top in self._installed or library_module(name, self._machine) is not None:
                    continue
                fact = f"{name} is installed"
                value = self._machine.assumed_value(Unknown(fact))
                if isinstance(value, Unknown):
                    return value
                if not value:
                    self._machine.decided[fact] = False
                    return Unknown(fact)
        return None


def _mentions_import_error(node: ast.expr | None) -> bool:
    if node is None:
        return True
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    wanted = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    return any(getattr(name, "id", None) in wanted for name in names)


def bound_by(statement: ast.stmt) -> list[str]:
    """The names that a statement binds."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [statement.name]
    found = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found += [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    return [name for name in found if name not in vars(builtins)]
