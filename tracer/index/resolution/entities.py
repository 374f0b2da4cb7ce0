"""Modules, classes and functions of the tree, as the analysis knows them."""

from __future__ import annotations

from typing import Any

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.values import Bound, ClassRef, Container, FunctionRef, Instance, ModuleRef, Node, Value


class Scope:
    """Names that are bound in one module, class or function body.

    Where ``weak``, a name is one node for all its assignments, as nested functions and other modules see it; else
    the node in ``names`` is what the name holds at the place that is being read.
    """

    __slots__ = (
        "declared",
        "definitions",
        "function",
        "globals",
        "is_class",
        "module",
        "names",
        "owner",
        "parent",
        "weak",
    )

    def __init__(
        self,
        module: ModuleInfo,
        parent: Scope | None,
        function: FunctionInfo | None = None,
        owner: ClassInfo | None = None,
        weak: bool = True,
    ) -> None:
        self.module = module
        self.parent = parent
        self.function = function
        self.owner = owner
        self.is_class = False
        self.weak = weak
        self.names: dict[str, Node] = {}
        self.globals: set[str] = set()
        self.declared: set[str] = set()
        self.definitions: dict[int, FunctionInfo | ClassInfo] = {}


class ModuleInfo:
    """A module whose facts are read. ``imports`` are those bindings that nobody has asked for yet."""

    def __init__(self, name: str, path: str, facts: s.ModuleFacts) -> None:
        self.name = name
        self.path = path
        self.facts = facts
        self.is_package = path.endswith("/__init__.py")
        self.scope = Scope(self, None)
        self.imports: dict[str, list[tuple[str, str | None]]] = {}
        self.unread: dict[bytes, list[str]] = {}
        """The modules that a name comes from, as far as nobody has begun to read them."""
        self.stars: list[str] = []
        self.functions: dict[str, FunctionInfo] = {}
        self.classes: dict[str, ClassInfo] = {}
        self.ref = ModuleRef(name)
        self.is_outline = facts.is_outline
        self.body = FunctionInfo(self, "<module>", "<module>", None, self.scope)


class ClassInfo:
    """A class: its own names, its bases, and the fields that are written on its instances."""

    def __init__(self, module: ModuleInfo, qualname: str, node: s.Class, scope: Scope) -> None:
        self.module = module
        self.qualname = qualname
        self.id = f"{module.name}:{qualname}"
        self.name = node.name
        self.node = node
        self.enclosing = scope
        self.scope = Scope(module, scope, scope.function, self)
        self.scope.is_class = True
        self.functions: dict[str, list[FunctionInfo]] = {}
        self.annotations: dict[str, s.Expr] = {}
        self.mro: tuple[ClassInfo, ...] | None = None
        self.external_bases: frozenset[str] = frozenset()
        self.instance = Instance(self)
        self.ref = ClassRef(self)
        self.instances = Node()
        self.fields: dict[str, Node] = {}
        self.reads: dict[str, Node] = {}
        self.subclasses: list[ClassInfo] = []
        self.instantiated = False
        self.assumed = False
        self.is_dataclass = False
        self.is_record = False
        """Whether its objects are tuples of its fields (NamedTuple)."""
        self.is_enum = False
        self.made_constructor: FunctionInfo | None = None

    def __repr__(self) -> str:
        return f"ClassInfo({self.id})"


class FunctionInfo:
    """A function, method, lambda, generator expression, or the body of a module.

    ``nodes`` keeps the node of each expression by the expression's identity; ``body`` the statements, decoded once.
    """

    def __init__(
        self,
        module: ModuleInfo,
        name: str,
        qualname: str,
        node: s.Func | s.Lambda | s.Comp | None,
        scope: Scope,
        owner: ClassInfo | None = None,
        parent: FunctionInfo | None = None,
    ) -> None:
        self.module = module
        self.name = name
        self.qualname = qualname
        self.id = f"{module.name}:{qualname}"
        self.node = node
        self.enclosing = scope
        self.owner = owner
        self.parent = parent
        self.ref = FunctionRef(self)
        self.params: dict[str, Node] = {}
        self.signed = False
        self.queued = False
        self.lowered = False
        self.result = Node()
        self.hands_back: tuple[str, ...] = ()
        """The parameters that it may return as they came; an empty name where it may return any function."""
        self.generator: Container | None = None
        self.nodes: dict[int, Node] = {}
        self.nested: dict[int, FunctionInfo] = {}
        self.kept: list[s.Expr] = []
        self.kind = "method" if owner is not None else "function"
        self.is_property = False
        self.is_abstract = False
        self.is_kernel = False
        """Whether it is launched as ``kernel[grid](...)``."""
        self.is_wrapper = False
        """A nested function or ``__call__`` that takes anything: it hands on what it is given to what it wraps."""
        self.fell_back = False
        self._body: list[s.Stmt] | None = None
        self.scope: Scope | None = None
        self.bound: dict[Any, Bound] = {}
        self.synthetic_lines: tuple[int, int] | None = None

    @property
    def parameters(self) -> list[s.Param]:
        """The parameters, ``self`` included."""
        node = self.node
        return node.params if isinstance(node, (s.Func, s.Lambda)) else []

    @property
    def body(self) -> list[s.Stmt]:
        """The statements. Always the same objects, so that they can be told apart by identity."""
        if self._body is None:
            node = self.node
            if isinstance(node, s.Func):
                self._body = node.statements()
            elif isinstance(node, s.Lambda):
                self._body = [s.Return(node.body, node.line)]
            elif node is None:
                self._body = self.module.facts.body
            else:
                self._body = [s.ExprStmt(node, self.line)]
        return self._body

    @property
    def line(self) -> int:
        """The line of ``def`` or ``lambda``; 1 for a module's body."""
        if self.synthetic_lines is not None:
            return self.synthetic_lines[0]
        node = self.node
        return node.line if isinstance(node, (s.Func, s.Lambda)) else 1

    @property
    def end_line(self) -> int:
        """The last line."""
        if self.synthetic_lines is not None:
            return self.synthetic_lines[1]
        return self.node.end_line if isinstance(self.node, s.Func) else self.line

    @property
    def is_generator(self) -> bool:
        """Whether a call makes a generator."""
        return isinstance(self.node, s.Func) and self.node.is_generator

    def bind(self, receiver: Value, through_super: bool = False) -> Bound:
        """The function bound to a receiver: always the same value for the same two."""
        key = (receiver, through_super)
        bound = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = Bound(self, receiver, through_super)
        return bound

    def __repr__(self) -> str:
        return f"FunctionInfo({self.id})"
