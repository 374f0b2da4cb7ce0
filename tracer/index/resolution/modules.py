"""The modules of the tree: what their names are bound to, through imports and re-exports.

Imports are followed when a name is asked for, so that only modules that matter are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.store import Facts
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, ModuleInfo, Scope
from sgltrace.index.resolution.values import External, ModuleRef, Node, Solver, constant
from sgltrace.sources import SourceTree, UnreadableFile


class Modules:
    """Reads and binds modules on demand.

    ``on_load`` is told of each new one; ``ask`` calls a module's ``__getattr__`` for a name that it does not bind.
    """

    def __init__(
        self,
        tree: SourceTree,
        facts: Facts,
        solver: Solver,
        on_load: Callable[[ModuleInfo], None],
        ask: Callable[[ModuleInfo, FunctionInfo], Node],
    ) -> None:
        self._ask = ask
        self._tree = tree
        self._facts = facts
        self._solver = solver
        self._on_load = on_load
        self._top = {name.partition(".")[0] for name in tree.modules}
        self.loaded: dict[str, ModuleInfo] = {}
        self.packages = {
            ".".join(parts[:i]) for parts in (name.split(".") for name in tree.modules) for i in range(1, len(parts))
        }
        self.skipped: dict[str, str] = {}
        self.followed: tuple[str, ...] | None = None
        self.not_followed: set[str] = set()
        self._asking: set[tuple[ModuleInfo, str]] = set()
        self._constants: dict[tuple[ModuleInfo, str], s.Const | None] = {}
        self._refs: dict[str, ModuleRef] = {}
        self._externals: dict[str, Node] = {}

    def is_own(self, name: str) -> bool:
        """Whether a dotted name lies in the tree's package, whether or not there is such a module."""
        return name.partition(".")[0] in self._top

    def exists(self, name: str) -> bool:
        """Whether there is such a module or package."""
        return name in self._tree.modules or name in self.packages

    def ref(self, name: str) -> ModuleRef:
        """The value of a module or package."""
        ref = self._refs.get(name)
        if ref is None:
            ref = self._refs[name] = ModuleRef(name)
        return ref

    def external(self, path: str) -> Node:
        """The node of something outside the tree, by its dotted name."""
        node = self._externals.get(path)
        if node is None:
            node = self._externals[path] = constant(External(path))
        return node

    def load(self, name: str) -> ModuleInfo | None:
        """The module, read if need be; None where the tree has none (a package without ``__init__.py`` too)."""
        module = self.loaded.get(name)
        if module is not None or name not in self._tree.modules:
            return module
        facts = self._facts.get(name)
        module = ModuleInfo(name, self._tree.modules[name], facts)
        self.loaded[name] = module
        if facts.error is not None:
            self.skipped[module.path] = facts.error
        Binder(self, module, self._solver).block(facts.body, module.scope, "")
        for bound, bindings in module.imports.items():
            targets = [target for target, _ in bindings if target in self._tree.modules and target not in self.loaded]
            if targets:
                module.unread[bound.encode()] = targets
        self._on_load(module)
        return module

    def source(self, name: str) -> bytes:
        """The bytes of a module, to be searched for a name; empty where they cannot be read, which is then known."""
        try:
            return self._tree.read_module(name)
        except UnreadableFile as error:
            self.skipped.setdefault(self._tree.modules[name], str(error))
            return b""

    def local_class(self, function: FunctionInfo, node: s.Class, scope: Scope) -> ClassInfo:
        """A class defined inside a function, with its methods bound."""
        binder = Binder(self, function.module, self._solver)
        return binder.define(node, scope, f"{function.qualname}.")

    def submodules(self, package: str) -> list[str]:
        """The modules directly inside a package, sorted."""
        prefix = f"{package}."
        return [name for name in self._tree.modules if name.startswith(prefix) and "." not in name[len(prefix) :]]

    def plugins(self, package: str) -> list[str]:
        """The modules of a package that are found by iterating over it, as far as they are to be followed."""
        names = self.submodules(package)
        if self.followed is not None:
            wanted = re.compile(rb"^class (?:%s)\b" % "|".join(self.followed).encode(), re.MULTILINE)
            found = [name for name in names if wanted.search(self.source(name))]
            self.not_followed.update(name for name in names if name not in found)
            names = found
        self._facts.prefetch(names)
        return names

    def prefetch(self, names: list[str]) -> None:
        """Begin to read modules that will be asked for."""
        self._facts.prefetch(name for name in names if name not in self.loaded)

    def lookup(self, module: ModuleInfo, name: str) -> Node | None:
        """What a name is bound to at the top of a module, or None where nothing binds it."""
        scope = module.scope
        pending = module.imports.pop(name, None)
        node = scope.names.get(name)
        if pending is not None:
            found = dict.fromkeys(filter(None, (self.imported(*binding) for binding in pending)))
            if node is None and len(found) == 1:  # `import torch` and `import torch.nn` bind the same
                node = scope.names[name] = next(iter(found))
                return node
            if node is None:
                node = scope.names[name] = name_node()
            for bound in found:
                self._solver.link(bound, node)
        if node is not None:
            return node
        return None if name.startswith("_") else self._starred(module, name)

    def _starred(self, module: ModuleInfo, name: str) -> Node | None:
        """What ``from other import *`` binds a name to; modules may take all names of one another."""
        if (module, name) in self._asking:
            return None
        self._asking.add((module, name))
        for star in module.stars:
            other = self.load(star)
            found = self.lookup(other, name) if other is not None else None
            if found is not None:
                module.scope.names[name] = found
                break
        else:
            found = None
        self._asking.discard((module, name))
        return found

    def imported(self, target: str, attribute: str | None) -> Node | None:
        """What ``from target import attribute`` binds, or ``import target`` where there is no attribute."""
        if not self.is_own(target):
            return self.external(target if attribute is None else f"{target}.{attribute}")
        if attribute is None:
            return constant(self.ref(target)) if self.exists(target) else None
        module = self.load(target)
        found = self.lookup(module, attribute) if module is not None else None
        if found is None and self.exists(f"{target}.{attribute}"):
            return constant(self.ref(f"{target}.{attribute}"))
        if found is None and module is not None and "__getattr__" in module.functions:
            return self._ask(module, module.functions["__getattr__"])
        return found

    def constant(self, module: ModuleInfo, name: str, depth: int = 4) -> s.Const | None:
        """The constant that a module binds a name to, once and for all, or imports under that name."""
        key = (module, name)
        if key not in self._constants:
            self._constants[key] = None  # modules may import from one another
            self._constants[key] = self._constant(module, name, depth)
        return self._constants[key]

    def _constant(self, module: ModuleInfo, name: str, depth: int) -> s.Const | None:
        bound: list[s.Expr | None] = []
        for statement in module.facts.body:
            if isinstance(statement, s.Assign) and any(
                isinstance(t, s.Name) and t.id == name for t in statement.targets
            ):
                bound.append(statement.value)
            elif isinstance(statement, (s.Import, s.ImportFrom)) and depth:
                for as_name, target, attribute in import_bindings(self, module, statement)[0]:
                    if as_name == name:
                        other = self.load(target) if attribute is not None and self.is_own(target) else None
                        bound.append(self.constant(other, attribute, depth - 1) if other and attribute else None)
            elif name in bound_in(statement):
                return None
        return bound[0] if len(bound) == 1 and isinstance(bound[0], s.Const) else None

    def absolute(self, module: ModuleInfo, target: str, level: int) -> str:
        """The module that a ``from`` statement with ``level`` leading dots names."""
        if level == 0:
            return target
        parts = module.name.split(".")
        up = level - 1 if module.is_package else level
        base = parts[: len(parts) - up] if up else parts
        return ".".join([*base, target] if target else base)


class Binder:
    """Binds the names of a module's and its classes' bodies, without evaluating any expression."""

    def __init__(self, modules: Modules, module: ModuleInfo, solver: Solver) -> None:
        self._modules = modules
        self._module = module
        self._solver = solver

    def block(self, body: list[s.Stmt], scope: Scope, prefix: str) -> None:
        """Bind what the statements of a block bind, those inside ``if``, ``try`` and loops too."""
        for statement in body:
            kind = type(statement)
            if kind is s.Func:
                self._function(statement, scope, prefix)  # type: ignore[arg-type]
            elif kind is s.Class:
                self._class(statement, scope, prefix)  # type: ignore[arg-type]
            elif kind is s.ImportFrom or kind is s.Import:
                self._import(statement, scope)  # type: ignore[arg-type]
            elif kind is s.Assign:
                for target in statement.targets:  # type: ignore[union-attr]
                    self._target(target, scope)
            elif kind is s.AnnAssign:
                self._target(statement.target, scope)  # type: ignore[union-attr]
                if scope.owner is not None and isinstance(statement.target, s.Name):  # type: ignore[union-attr]
                    scope.owner.annotations[statement.target.id] = statement.annotation  # type: ignore[union-attr]
            else:
                for inner in s.blocks(statement):
                    self.block(inner, scope, prefix)
                if isinstance(statement, s.For):
                    self._target(statement.target, scope)
                elif isinstance(statement, s.With):
                    for item in statement.items:
                        if item.target is not None:
                            self._target(item.target, scope)

    def _node(self, scope: Scope, name: str) -> Node:
        node = scope.names.get(name)
        if node is None:
            node = scope.names[name] = name_node()
        return node

    def _target(self, target: s.Expr, scope: Scope) -> None:
        if isinstance(target, s.Name):
            self._node(scope, target.id)
        elif isinstance(target, s.Seq):
            for item in target.items:
                self._target(item, scope)
        elif isinstance(target, s.Star):
            self._target(target.value, scope)

    def _function(self, node: s.Func, scope: Scope, prefix: str) -> None:
        if is_overload(node):
            return
        function = FunctionInfo(self._module, node.name, f"{prefix}{node.name}", node, scope, scope.owner)
        self._module.functions.setdefault(function.qualname, function)
        if scope.owner is not None:
            scope.owner.functions.setdefault(node.name, []).append(function)
        describe(function)
        self._solver.add(self._node(scope, node.name), function.ref)
        scope.definitions[id(node)] = function

    def _class(self, node: s.Class, scope: Scope, prefix: str) -> None:
        cls = self.define(node, scope, prefix)
        self._solver.add(self._node(scope, node.name), cls.ref)

    def define(self, node: s.Class, scope: Scope, prefix: str) -> ClassInfo:
        """Make a class and bind its body's names."""
        cls = ClassInfo(self._module, f"{prefix}{node.name}", node, scope)
        self._module.classes.setdefault(cls.qualname, cls)
        scope.definitions[id(node)] = cls
        self.block(node.body, cls.scope, f"{cls.qualname}.")
        return cls

    def _import(self, statement: s.ImportFrom | s.Import, scope: Scope) -> None:
        bindings, stars = import_bindings(self._modules, self._module, statement)
        self._module.stars += stars
        for name, target, attribute in bindings:
            if scope.owner is None:
                self._module.imports.setdefault(name, []).append((target, attribute))
            else:
                found = self._modules.imported(target, attribute)
                if found is not None:
                    self._solver.link(found, self._node(scope, name))


def name_node() -> Node:
    """The node of a name of a module or class."""
    node = Node()
    node.is_name = True
    return node


def import_bindings(
    modules: Modules, module: ModuleInfo, statement: s.ImportFrom | s.Import
) -> tuple[list[tuple[str, str, str | None]], list[str]]:
    """The ``(name, module, attribute)`` that an import binds, and the modules of which it takes all names."""
    if isinstance(statement, s.Import):
        if statement.asname is not None:
            return [(statement.asname, statement.module, None)], []
        top = statement.module.split(".")[0]
        return [(top, top, None)], []
    target = modules.absolute(module, statement.module, statement.level)
    if statement.names == [("*", None)]:
        return [], [target]
    return [(asname or name, target, name) for name, asname in statement.names], []


def imports_at_a_glance(source: bytes) -> list[str]:
    """The modules that a source's ``from`` statements at its left margin name, without parsing it."""
    return [name.decode() for name in re.findall(rb"^from ([\w.]+) import", source, re.MULTILINE)]


def imports_in(body: list[s.Stmt]) -> Iterator[s.Import | s.ImportFrom]:
    """The imports of a function's own statements."""
    for statement in body:
        if isinstance(statement, (s.Import, s.ImportFrom)):
            yield statement
        else:
            for inner in s.blocks(statement):
                yield from imports_in(inner)


_PROPERTIES = {"property", "cached_property", "functools.cached_property", "abstractproperty", "abc.abstractproperty"}
_ABSTRACT = {"abstractmethod", "abc.abstractmethod", "abstractproperty", "abc.abstractproperty"}


def describe(function: FunctionInfo) -> None:
    """Read off a function's decorators what Python makes of it."""
    node = function.node
    if not isinstance(node, s.Func):
        return
    for decorator in node.decorators:
        name = dotted(decorator.func if isinstance(decorator, s.Call) else decorator)
        if name is None:
            continue
        function.is_kernel |= name.startswith("triton.") or name.rpartition(".")[2] == "jit"
        if name in _PROPERTIES or name.endswith((".setter", ".deleter", ".getter")):
            function.is_property = True
        elif name == "staticmethod" or name == "classmethod":
            function.kind = name
        if name in _ABSTRACT:
            function.is_abstract = True
    nested = function.parent is not None or node.name == "__call__"
    function.is_wrapper = nested and {"*", "**"} <= {p.kind for p in node.params}
    if function.owner is not None and node.name in ("__new__", "__init_subclass__", "__class_getitem__"):
        function.kind = "staticmethod" if node.name == "__new__" else "classmethod"


def bound_in(statement: s.Stmt) -> set[str]:
    """The names that a compound statement, a definition or an annotated or augmented assignment binds."""
    names = {statement.name} if isinstance(statement, (s.Func, s.Class)) else set[str]()
    targets = statement.targets if isinstance(statement, s.Assign) else []
    if isinstance(statement, (s.AnnAssign, s.AugAssign, s.For)):
        targets = [statement.target]
    names |= {part.id for target in targets for part in s.descend(target) if isinstance(part, s.Name)}
    if not isinstance(statement, (s.Func, s.Class)):
        names |= {name for block in s.blocks(statement) for inner in block for name in bound_in(inner)}
    return names


def is_overload(node: s.Func) -> bool:
    """Whether a definition is a signature for type checkers, of which the one behind it takes the place."""
    return any((dotted(decorator) or "").rpartition(".")[2] == "overload" for decorator in node.decorators)


def dotted(expression: s.Expr) -> str | None:
    """``a.b.c`` as text; None for anything but names and attributes."""
    parts: list[str] = []
    while isinstance(expression, s.Attr):
        parts.append(expression.attr)
        expression = expression.value
    if not isinstance(expression, s.Name):
        return None
    parts.append(expression.id)
    return ".".join(reversed(parts))
