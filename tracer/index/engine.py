"""The inference: which functions are reached from the entry points, what flows where, and who calls whom.

Functions are read once, when something first calls them; reading one makes nodes for its expressions and sites for
its calls. The solver then delivers values to the sites, which reach further functions, until nothing is new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial

from sgltrace.index import syntax as s
from sgltrace.index.annotations import Annotation, narrowing, read_annotation
from sgltrace.index.classes import Classes
from sgltrace.index.containers import METHODS as CONTAINER_METHODS
from sgltrace.index.entities import ClassInfo, FunctionInfo, ModuleInfo, Scope
from sgltrace.index.facts import Facts
from sgltrace.index.modules import Modules, describe, import_bindings, imports_in
from sgltrace.index.values import (
    EXTERNAL,
    NOTHING,
    OPAQUE,
    Bound,
    ClassRef,
    Container,
    Decorated,
    External,
    FunctionRef,
    Instance,
    Method,
    ModuleRef,
    ModulesOf,
    Node,
    Partial,
    Solver,
    SuperRef,
    Text,
    Value,
    constant,
)
from sgltrace.sources import SourceTree

Args = list[tuple["str | None", Node]]


MAX_CONTRADICTING = 3
"""More instances than this at one argument come from calls that were mixed, not from a wrong annotation."""

_DISPATCHED = {
    "self_method",
    "attr_method",
    "property",
    "special_method",
    "context_manager",
    "nn_module_call",
    "callback",
}


class Use:
    """A place in a function where something is called, be it a call or what Python makes one of.

    ``dispatch`` says whether the callee is looked up on an object; ``targets`` are the functions found.
    """

    __slots__ = ("dispatch", "expressions", "function", "targets")

    def __init__(self, function: FunctionInfo, expression: s.Expr | s.Stmt, dispatch: bool = False) -> None:
        self.function = function
        self.expressions: list[s.Expr | s.Stmt] = [expression]
        self.dispatch = dispatch
        self.targets: set[FunctionInfo] = set()


class Site(Use):
    """A call: its callee's node, its arguments, and the node of what it returns."""

    __slots__ = ("args", "bound", "callee", "decorated", "result")

    def __init__(
        self, function: FunctionInfo, expression: s.Expr | s.Stmt, callee: Node, args: Args, result: Node
    ) -> None:
        super().__init__(function, expression)
        self.callee = callee
        self.args = args
        self.result = result
        self.bound: set[tuple[FunctionInfo | None, Value | None]] = set()
        self.decorated: FunctionInfo | None = None


class Engine:
    """The state of one analysis."""

    def __init__(self, tree: SourceTree, facts: Facts) -> None:
        self.tree = tree
        self.solver = Solver()
        self.modules = Modules(tree, facts, self.solver, self._loaded)
        self.classes = Classes(self.solver, self.evaluate)
        self.classes.on_field(self._declare_field)
        self.annotations: dict[int, Annotation] = {}
        self.edges: dict[tuple[FunctionInfo, FunctionInfo, str], list[Use]] = {}
        self.constructed: dict[FunctionInfo, list[tuple[ClassInfo, Use]]] = {}
        self.sites: list[Site] = []
        self._checked: dict[Node, list[Node]] = {}
        self._misses: list[tuple[Node, ClassInfo]] = []
        self._declared: dict[ClassInfo, list[Node]] = {}
        self.reached: dict[FunctionInfo, None] = {}
        self._queue: deque[FunctionInfo] = deque()
        self._methods: dict[tuple[Container, str], Method] = {}
        self.views: dict[tuple[Container, str], Container] = {}
        self._texts: dict[str, Node] = {}
        self._supers: dict[tuple[ClassInfo, Value], SuperRef] = {}
        self._modules_of: dict[tuple[str, bool], ModulesOf] = {}
        self._at: dict[tuple[int, str], Value] = {}
        self._evaluating: set[int] = set()

    # --- running ---

    def reach(self, function: FunctionInfo) -> None:
        """Have a function read, once."""
        if not function.queued:
            function.queued = True
            self.reached[function] = None
            self.sign(function)
            self._prefetch(function)
            self._queue.append(function)

    def _prefetch(self, function: FunctionInfo) -> None:
        """Begin to read the modules that a function's names come from, well before the function's turn."""
        module, node = function.module, function.node
        wanted: list[str] = []
        if isinstance(node, s.Func) and module.imports:
            body = bytes(node.body)
            for name, bindings in module.imports.items():
                if name.encode() in body:
                    wanted += [target for target, _ in bindings]
        for statement in imports_in(function.body) if isinstance(node, s.Func) else ():
            bindings, _ = import_bindings(self.modules, module, statement)
            wanted += [target for _, target, _ in bindings]
        self.modules.prefetch(wanted)

    def run(self) -> None:
        """Read what is reached and deliver values until nothing is new."""
        from sgltrace.index.lower import lower

        while True:
            while self._queue:
                lower(self, self._queue.popleft())
                self.solver.run()
            self.solver.run()
            if not self._queue and not self._settle():
                return

    def _settle(self) -> bool:
        """When nothing moves any more: fall back on what is less certain. Whether that gave anything new."""
        for step in (self._contradicted, self._returned, self._unmade, self._interfaces):
            if step():
                return True
        return False

    def _contradicted(self) -> bool:
        """Where nothing that is passed fits the annotation, the annotation is wrong, not the caller."""
        moved = False
        refused, self.solver.refused = self.solver.refused, {}
        for target, source in [(node, source) for node in refused for source in self._checked.get(node, ())]:
            instances = [v for v in source.values if type(v) is Instance]
            transform = target.transform
            if not instances or transform is None or len(instances) > MAX_CONTRADICTING:
                continue
            if all(v not in target.values and transform(v) is None for v in instances):
                for value in instances:
                    self.solver.force(target, value)
                moved = True
        return moved

    def _returned(self) -> bool:
        """Where a body does not tell what it returns, the annotation does."""
        moved = False
        for function in self.reached:
            node = function.node
            if function.fell_back or not isinstance(node, s.Func) or node.returns is None or not function.lowered:
                continue
            if any(type(v) not in (External, Text) for v in function.result.values):
                continue
            function.fell_back = True
            if function.generator is None:
                before = len(function.result.values)
                self.annotate(function.result, node.returns, function.enclosing)
                moved |= len(function.result.values) > before
        return moved

    def _unmade(self) -> bool:
        """An object of a class that nobody makes: its fields are what its ``__init__`` would write."""
        moved = False
        for result, cls in self._misses:
            if result.values or cls.instantiated or cls.assumed:
                continue
            cls.assumed = moved = True
            for name in ("__init__", "__post_init__"):
                found = self.classes.lookup(cls, name)
                for value in list(found[1].values) if found is not None else ():
                    if type(value) is FunctionRef:
                        self.reach(value.function)
                        bind_arguments(self, value.function, cls.instance, [], Node())
        for cls in list(self._declared):
            if not cls.instantiated and cls.subclasses and self._declared[cls]:
                for node in self._declared.pop(cls):
                    self.solver.link(cls.instances, node)
                moved = True
        return moved

    def _interfaces(self) -> bool:
        """A call that finds several overrides is a call of the method that they override, too."""
        moved = False
        for (_, callee, kind), uses in list(self.edges.items()):
            if callee.owner is None or kind not in _DISPATCHED:
                continue
            roots = self._overridden(callee)
            for use in uses:
                if use.dispatch and len(use.targets) > 1:
                    for root in roots:
                        if root not in use.targets:
                            self.edge(use, root, kind)
                            moved = True
        return moved

    def _overridden(self, function: FunctionInfo) -> list[FunctionInfo]:
        owner = function.owner
        assert owner is not None
        return [f for base in self.classes.mro(owner)[1:] for f in base.functions.get(function.name, ())[:1]]

    def _loaded(self, module: ModuleInfo) -> None:
        self.reach(module.body)

    # --- static values ---

    def evaluate(self, expression: s.Expr, scope: Scope) -> list[Value]:
        """The values of a name or attribute where only what is bound by import, ``def`` or ``class`` counts."""
        if isinstance(expression, s.Name):
            node = self.name(expression.id, scope)
            if node is None:
                return [External(f"builtins.{expression.id}")]
            return _ordered(node)
        if isinstance(expression, s.Attr):
            out: list[Value] = []
            for base in self.evaluate(expression.value, scope):
                if type(base) is External:
                    out += self.modules.external(f"{base.path}.{expression.attr}").values
                elif type(base) is ModuleRef:
                    found = self.member(base, expression.attr)
                    out += _ordered(found) if found is not None else []
                elif type(base) is ClassRef:
                    attribute = self.classes.lookup(base.cls, expression.attr)
                    out += _ordered(attribute[1]) if attribute is not None else []
            return out
        if isinstance(expression, s.Sub):
            return self.evaluate(expression.value, scope)
        if isinstance(expression, s.Cond):
            return [*self.evaluate(expression.body, scope), *self.evaluate(expression.orelse, scope)]
        return []

    def name(self, name: str, scope: Scope | None) -> Node | None:
        """What a name is bound to in a scope or one around it; None for a builtin."""
        innermost = scope
        while scope is not None:
            if not scope.is_class or scope is innermost:
                if scope.parent is None:
                    return self.modules.lookup(scope.module, name)
                node = scope.names.get(name)
                if node is not None:
                    return node
            scope = scope.parent
        return None

    def member(self, ref: ModuleRef, name: str) -> Node | None:
        """What ``module.name`` is."""
        return self.modules.imported(ref.name, name)

    # --- annotations ---

    def annotate(self, node: Node, expression: s.Expr, scope: Scope) -> None:
        """Put into a node what an annotation says."""
        annotation = read_annotation(self, expression, scope)
        for value in annotation.values:
            self.solver.add(node, value)
            if type(value) is Instance and not value.cls.instantiated:
                self._declared.setdefault(value.cls, []).append(node)
        for other in annotation.nodes:
            self.solver.link(other, node)

    def declare(self, node: Node, expression: s.Expr, scope: Scope) -> None:
        """Annotate a variable, parameter or field: what flows in besides must fit."""
        annotation = read_annotation(self, expression, scope)
        node.transform = narrowing(self, annotation)
        self.annotate(node, expression, scope)

    def _declare_field(self, cls: ClassInfo, name: str, node: Node) -> None:
        expression = cls.annotations.get(name)
        if expression is not None:
            self.declare(node, expression, cls.scope)
        attribute = cls.scope.names.get(name)
        if attribute is not None and expression is not None:
            self.solver.link(attribute, node)

    # --- functions ---

    def sign(self, function: FunctionInfo) -> None:
        """Make the nodes of a function's parameters, with what annotations and defaults say."""
        if function.signed:
            return
        function.signed = True
        node = function.node
        for param in function.parameters:
            target = function.params[param.name] = Node()
            if param.kind == "*":
                container = Container("tuple")
                self.solver.add(target, container)
                if param.annotation is not None:
                    self.annotate(container.element, param.annotation, function.enclosing)
            elif param.kind == "**":
                self.solver.add(target, Container("dict"))
            elif param.annotation is not None:
                self.declare(target, param.annotation, function.enclosing)
        if isinstance(node, s.Func) and function.is_generator:
            function.generator = Container("generator")
            self.solver.add(function.result, function.generator)
        function.hands_back = _hands_back(function)

    def edge(self, use: Use, callee: FunctionInfo, kind: str) -> None:
        """Record a call and have the callee read."""
        use.targets.add(callee)
        key = (use.function, callee, kind)
        uses = self.edges.get(key)
        if uses is None:
            self.edges[key] = [use]
        elif uses[-1] is not use and use not in uses:
            uses.append(use)
        self.reach(callee)

    def pass_on(self, source: Node, target: Node) -> None:
        """Link to what may be annotated."""
        self.solver.link(source, target)
        if target.transform is not None and not source.fixed:
            self._checked.setdefault(target, []).append(source)

    def invoke(
        self, use: Use, function: FunctionInfo, receiver: Value | None, args: Args, result: Node, kind: str
    ) -> None:
        """A call edge, with its arguments bound to the parameters and the returned value to ``result``."""
        self.edge(use, function, kind)
        bind_arguments(self, function, receiver, args, result)
        if function.hands_back:
            self.solver.watch(function.result, partial(self._return, function, receiver, args, result, set()))
        else:
            self.solver.link(function.result, result)

    def _return(
        self, function: FunctionInfo, receiver: Value | None, args: Args, result: Node, seen: set[str], value: Value
    ) -> None:
        """What came in through a parameter goes back to those only who passed it."""
        for name in function.hands_back:
            node = function.params.get(name)
            if node is None or value not in node.values or node.transform is not None:
                continue
            if name not in seen:
                seen.add(name)
                own = argument_of(function, receiver, args, name)
                if own is not None:
                    self.solver.link(own, result)
            return
        if type(value) in _FUNCTIONS and any(value in node.values for node in function.params.values()):
            if "" not in seen:
                seen.add("")
                own = Node(transform=_functions_only)
                for _, node in args:
                    self.solver.link(node, own)
                self.solver.link(own, result)
            return
        if type(value) is FunctionRef and value.function.parent is function and makes_wrappers(value.function):
            if any(_is_function(node) for _, node in args):
                return  # given a function, `def register(f=None)` does not return its decorator
        self.solver.add(result, value)

    # --- calls ---

    def call(self, site: Site) -> None:
        """Let a call react to whatever its callee turns out to be."""
        self.sites.append(site)
        self.solver.watch(site.callee, partial(self.apply, site))

    def apply(self, site: Site, value: Value) -> None:
        """One value of a call's callee."""
        kind = type(value)
        if kind is Bound:
            self._apply_function(site, value.function, value.receiver, _bound_kind(site, value))  # type: ignore[union-attr, arg-type]
        elif kind is FunctionRef:
            self._apply_function(site, value.function, None, _function_kind(site, value.function))  # type: ignore[union-attr]
        elif kind is ClassRef:
            self._construct(site, value.cls)  # type: ignore[union-attr]
        elif kind is Instance:
            self._call_instance(site, value)  # type: ignore[arg-type]
        elif kind is Decorated:
            self._apply_decorated(site, value)  # type: ignore[arg-type]
        elif kind is Partial:
            args = [*value.args, *site.args]  # type: ignore[union-attr]
            inner = Site(site.function, site.expressions[0], value.function, args, site.result)  # type: ignore[union-attr]
            self.call(inner)
        elif kind is External:
            from sgltrace.index.externals import call_external

            call_external(self, site, value.path)  # type: ignore[union-attr]
        elif kind is Method:
            from sgltrace.index.containers import call_method

            call_method(self, site, value)  # type: ignore[arg-type]

    def _apply_function(self, site: Site, function: FunctionInfo, receiver: Value | None, kind: str) -> None:
        key = (function, receiver)
        if key in site.bound:
            return
        site.bound.add(key)
        if site.function.is_wrapper and _hands_on(site):
            self.edge(site, function, "decorated")
            if receiver is not None:
                bind_arguments(self, function, receiver, [], site.result)
        else:
            self.invoke(site, function, receiver, site.args, site.result, kind)

    def _apply_decorated(self, site: Site, value: Decorated) -> None:
        if value.is_called_by_wrapper(site.function):
            self.edge(site, value.function, "decorated")
        else:
            self._apply_function(site, value.function, None, _function_kind(site, value.function))

    def _construct(self, site: Site, cls: ClassInfo) -> None:
        self.solver.add(site.result, cls.instance)
        if (None, cls.ref) in site.bound:
            return
        site.bound.add((None, cls.ref))
        self.classes.instantiate(cls)
        self.constructed.setdefault(site.function, []).append((cls, site))
        if cls.is_enum:
            return
        for name in ("__new__", "__init__"):
            found = self.classes.lookup(cls, name)
            if found is None or (name == "__init__" and self.classes.makes_init(cls)):
                continue
            receiver: Value = cls.ref if name == "__new__" else cls.instance
            for value in _ordered(found[1]):
                if type(value) is FunctionRef:
                    self.edge(site, value.function, "constructor")
                    bind_arguments(self, value.function, receiver, site.args, Node())
        if self.classes.makes_init(cls) or self.classes.lookup(cls, "__init__") is None:
            self._construct_dataclass(site, cls)

    def _construct_dataclass(self, site: Site, cls: ClassInfo) -> None:
        self.edge(site, self.constructor(cls), "constructor")
        names = [
            name
            for owner in reversed(self.classes.mro(cls))
            for name in owner.annotations
            if owner.is_dataclass or owner is cls
        ]
        names = list(dict.fromkeys(names))
        for i, (name, node) in enumerate(site.args):
            if name is None and i < len(names):
                name = names[i]
            if name is not None and name in names:
                self.solver.link(node, self.classes.field(cls, name))
            elif name == "**":
                self.solver.watch(node, partial(self._spread_fields, cls, names))
        found = self.classes.lookup(cls, "__post_init__")
        if found is not None:
            for value in _ordered(found[1]):
                if type(value) is FunctionRef:
                    self.edge(site, value.function, "constructor")
                    bind_arguments(self, value.function, cls.instance, [], Node())

    def _spread_fields(self, cls: ClassInfo, names: list[str], value: Value) -> None:
        if type(value) is Container:
            for name in names:
                if name in value.items:
                    self.solver.link(value.items[name], self.classes.field(cls, name))

    def constructor(self, cls: ClassInfo) -> FunctionInfo:
        """The constructor that Python makes for a class without ``__init__``; its id is the class's."""
        made = cls.made_constructor
        if made is None:
            made = FunctionInfo(cls.module, cls.name, cls.qualname, None, cls.scope, cls)
            made.synthetic_lines = (cls.node.line, cls.node.end_line)
            made.queued = made.signed = made.lowered = True
            cls.made_constructor = made
            self.reached[made] = None
        return made

    def _call_instance(self, site: Site, value: Instance) -> None:
        cls = value.cls
        found = self.classes.lookup(cls, "__call__")
        kind = "call_method"
        if found is None and self.classes.has_outside(cls):
            found = self.classes.lookup(cls, "forward")
            kind = "nn_module_call"
            field = self.classes.read(cls, "forward")
            if field.values:
                pass
        if found is None:
            if self.classes.has_outside(cls):
                self.solver.add(site.result, OPAQUE)
            return
        site.dispatch = True
        for attribute in _ordered(found[1]):
            if type(attribute) is FunctionRef:
                self._apply_function(site, attribute.function, value, kind)

    # --- attributes ---

    def load(self, base: Node, name: str, use: Use, result: Node) -> None:
        """``base.name`` goes into ``result``."""
        self.solver.watch(base, partial(self.load_from, name, use, result))

    def load_from(self, name: str, use: Use, result: Node, value: Value) -> None:
        """``value.name`` goes into ``result``."""
        kind = type(value)
        if kind is Instance:
            self._load_instance(value, value.cls, name, use, result)  # type: ignore[union-attr]
        elif kind is ModuleRef:
            if name == "__path__":
                self.solver.add(result, self.modules_of(value.name, True))  # type: ignore[union-attr]
                return
            found = self.member(value, name)  # type: ignore[arg-type]
            if found is not None:
                self.solver.link(found, result)
        elif kind is External:
            path = value.path  # type: ignore[union-attr]
            for external in self.modules.external(f"{path}.{name}").values if path else (OPAQUE,):
                self.solver.add(result, external)
        elif kind is ClassRef:
            self._load_class(value, value.cls, name, use, result)  # type: ignore[union-attr, arg-type]
        elif kind is SuperRef:
            self._load_super(value, name, use, result)  # type: ignore[arg-type]
        elif kind is Container:
            known = name in CONTAINER_METHODS
            self.solver.add(result, self.method(value, name) if known else OPAQUE)  # type: ignore[arg-type]
        elif kind is ModulesOf:
            for module in self.modules.plugins(value.package):  # type: ignore[union-attr]
                loaded = self.modules.load(module)
                found = self.modules.lookup(loaded, name) if loaded is not None else None
                if found is not None:
                    self.solver.link(found, result)
        elif kind in (FunctionRef, Bound, Partial, Text, Decorated):
            self.solver.add(result, OPAQUE)

    def method(self, container: Container, name: str) -> Method:
        """A method of a container, always the same value."""
        key = (container, name)
        found = self._methods.get(key)
        if found is None:
            found = self._methods[key] = Method(container, name)
        return found

    def _load_instance(self, receiver: Value, cls: ClassInfo, name: str, use: Use, result: Node) -> None:
        found = self.classes.lookup(cls, name)
        if found is not None:
            owner, node = found
            self.solver.watch(node, partial(self._bind_loaded, receiver, cls, use, result, False))
            functions = owner.functions.get(name)
            if functions and functions[0].is_property:
                return
            if owner.is_enum:
                self.solver.add(result, OPAQUE)
        elif name == "__class__":
            self.solver.add(result, cls.ref)
            return
        self.solver.link(self.classes.read(cls, name), result)
        if not result.values:
            self._misses.append((result, cls))
        if found is None and self.classes.has_outside(cls):
            self.solver.add(result, OPAQUE)

    def _bind_loaded(
        self, receiver: Value, cls: ClassInfo, use: Use, result: Node, through_super: bool, value: Value
    ) -> None:
        if type(value) is not FunctionRef:
            self.solver.add(result, value)
            return
        function = value.function
        if function.is_property:
            use.dispatch = True
            self.invoke(use, function, receiver, [], result, "property")
        elif function.kind == "staticmethod":
            self.solver.add(result, value)
        elif function.kind == "classmethod":
            self.solver.add(result, function.bind(cls.ref, through_super))
        else:
            self.solver.add(result, function.bind(receiver, through_super))

    def _load_class(self, value: ClassRef, cls: ClassInfo, name: str, use: Use, result: Node) -> None:
        found = self.classes.lookup(cls, name)
        if found is not None:
            owner, node = found
            self.solver.watch(node, partial(self._bind_class, cls, result))
            if owner.is_enum and name not in owner.functions:
                self.classes.instantiate(cls)
                self.solver.add(result, cls.instance)
        elif self.classes.has_outside(cls) or name.startswith("__"):
            self.solver.add(result, OPAQUE)
        self.solver.link(self.classes.read(cls, name), result)

    def _bind_class(self, cls: ClassInfo, result: Node, value: Value) -> None:
        if type(value) is FunctionRef and value.function.kind == "classmethod":
            self.solver.add(result, value.function.bind(cls.ref, False))
        else:
            self.solver.add(result, value)

    def _load_super(self, value: SuperRef, name: str, use: Use, result: Node) -> None:
        receiver = value.receiver
        cls = receiver.cls if isinstance(receiver, (Instance, ClassRef)) else value.owner
        found = self.classes.lookup(cls, name, value.owner)
        if found is not None:
            self.solver.watch(found[1], partial(self._bind_loaded, receiver, cls, use, result, True))
        else:
            self.solver.add(result, OPAQUE)

    def store(self, base: Node, name: str, value: Node, use: Use) -> None:
        """``base.name = value``."""
        self.solver.watch(base, partial(self._store_into, name, value, use))

    def _store_into(self, name: str, node: Node, use: Use, value: Value) -> None:
        kind = type(value)
        if kind is Instance or kind is ClassRef:
            cls = value.cls  # type: ignore[union-attr]
            found = self.classes.lookup(cls, name)
            setters = [f for f in found[0].functions.get(name, ()) if f.is_property] if found is not None else []
            if setters and kind is Instance:
                for setter in setters:
                    if len(setter.parameters) == 2:
                        self.invoke(use, setter, value, [(None, node)], Node(), "property")
                return
            self.solver.link(node, self.classes.field(cls, name))
        elif kind is ModuleRef:
            found_node = self.member(value, name)  # type: ignore[arg-type]
            if found_node is not None:
                self.solver.link(node, found_node)

    # --- iteration and subscripts ---

    def iterate(self, node: Node, target: Node, use: Use) -> None:
        """The elements of what is in ``node`` go into ``target``."""
        self.solver.watch(node, partial(self._iterate, target, use))

    def _iterate(self, target: Node, use: Use, value: Value) -> None:
        if type(value) is Container:
            self.solver.link(value.keys if value.kind == "dict" else value.whole, target)
        elif type(value) is Instance:
            self.dunder(value, "__iter__", use, [], target, through=True)
        elif type(value) is ClassRef and value.cls.is_enum:
            self.solver.add(target, value.cls.instance)
        elif type(value) in (External, Text):
            self.solver.add(target, OPAQUE)

    def dunder(self, value: Instance, name: str, use: Use, args: Args, result: Node, through: bool = False) -> bool:
        """Call a special method on an instance's class; ``through``: what it returns is iterated again."""
        found = self.classes.lookup(value.cls, name)
        if found is None:
            if self.classes.has_outside(value.cls):
                self.solver.add(result, OPAQUE)
            return False
        use.dispatch = True
        returned = Node() if through else result
        for attribute in _ordered(found[1]):
            if type(attribute) is FunctionRef:
                self.invoke(use, attribute.function, value, args, returned, "special_method")
        if through:
            self.iterate(returned, result, use)
        return True

    def subscript(self, base: Node, key: object, index: Node, use: Use, result: Node, whole: bool = False) -> None:
        """``base[key]`` goes into ``result``; ``key`` is None where it is not known."""
        self.solver.watch(base, partial(self._subscript, key, index, use, result, whole))

    def _subscript(self, key: object, index: Node, use: Use, result: Node, whole: bool, value: Value) -> None:
        kind = type(value)
        if kind is Container:
            if whole:
                self.solver.add(result, value)
            elif key is not None and key in value.items:  # type: ignore[union-attr]
                self.solver.link(value.items[key], result)  # type: ignore[union-attr]
                self.solver.link(value.element, result)  # type: ignore[union-attr]
            else:
                self.solver.link(value.whole, result)  # type: ignore[union-attr]
        elif kind is Instance:
            self.dunder(value, "__getitem__", use, [(None, index)], result)  # type: ignore[arg-type]
        elif kind in (FunctionRef, Bound, ClassRef):
            self.solver.add(result, value)
        elif kind in (External, Text):
            self.solver.add(result, OPAQUE)

    def unpack(self, node: Node, targets: list[tuple[object, Node]], use: Use) -> None:
        """Take apart a tuple: ``targets`` are pairs of an index (None for a starred one) and a node."""
        self.solver.watch(node, partial(self._unpack, targets, use))

    def _unpack(self, targets: list[tuple[object, Node]], use: Use, value: Value) -> None:
        for key, target in targets:
            if type(value) is Container and value.kind == "tuple" and value.items:
                self.solver.link(value.item(key) if key is not None else value.whole, target)
                self.solver.link(value.element, target)
            else:
                self._iterate(target, use, value)

    # --- values that are always the same object ---

    def text(self, text: str) -> Node:
        """The node of a string constant."""
        node = self._texts.get(text)
        if node is None:
            node = self._texts[text] = constant(Text(text))
        return node

    def super_of(self, owner: ClassInfo, receiver: Value) -> SuperRef:
        """``super()`` in a method of ``owner`` that runs for ``receiver``."""
        found = self._supers.get((owner, receiver))
        if found is None:
            found = self._supers[owner, receiver] = SuperRef(owner, receiver)
        return found

    def modules_of(self, package: str, names: bool) -> ModulesOf:
        """Any module of a package, or any of their names."""
        found = self._modules_of.get((package, names))
        if found is None:
            found = self._modules_of[package, names] = ModulesOf(package, names)
        return found

    def container_at(self, site: Site, kind: str) -> Container:
        """The container that a call makes."""
        found = self._at.get((id(site.expressions[0]), kind))
        if found is None:
            found = self._at[id(site.expressions[0]), kind] = Container(kind)
        return found  # type: ignore[return-value]

    def partial_at(self, site: Site, value: Partial) -> Value:
        """The partial that a call makes."""
        return self._at.setdefault((id(site.expressions[0]), "partial"), value)

    # --- the outside ---

    def external_call(self, function: FunctionInfo, expression: s.Expr | s.Stmt, path: str, args: Args) -> Node:
        """A call of something outside the tree: the node of what it returns."""
        from sgltrace.index.externals import _callbacks, model_of

        model = model_of(path)
        if model is _callbacks:
            for name, node in args:
                if name not in ("*", "**") and not node.fixed or _is_function(node):
                    self.escape(Use(function, expression), node)
            if args and args[0][0] is None and _is_function(args[0][1]):
                result = Node(transform=_functions_only)  # most likely wrapped: torch.compiler.disable(f)
                self.solver.link(args[0][1], result)
                return result
            return EXTERNAL
        site = Site(function, expression, EXTERNAL, args, Node())
        model(self, site)
        return site.result

    def escape(self, use: Use, node: Node) -> None:
        """A function in ``node`` may be called from outside the tree."""
        self.solver.watch(node, partial(self._escape, use))

    def _escape(self, use: Use, value: Value) -> None:
        if type(value) is FunctionRef or type(value) is Decorated:
            self.invoke(use, value.function, None, [], Node(), "callback")
        elif type(value) is Bound:
            self.invoke(use, value.function, value.receiver, [], Node(), "callback")
        elif type(value) is Partial:
            site = Site(use.function, use.expressions[0], value.function, value.args, Node())
            self.call(site)

    def callback(self, use: Use, node: Node, args: Args, result: Node | None = None) -> None:
        """Something outside the tree calls what is in ``node`` with known arguments."""
        self.call(Site(use.function, use.expressions[0], node, args, result if result is not None else Node()))

    def merge_dict(self, container: Container, value: Value) -> None:
        """``{**value}`` into a container."""
        from sgltrace.index.containers import merge

        merge(self, container, value)

    def describe(self, function: FunctionInfo) -> None:
        """Read off a function's decorators what Python makes of it."""
        describe(function)

    def entry(self, function: FunctionInfo) -> None:
        """Have a function read that nothing in the tree calls."""
        self.reach(function)
        if function.owner is not None and function.parameters:
            self.solver.add(function.params[function.parameters[0].name], function.owner.instance)


def bind_arguments(engine: Engine, function: FunctionInfo, receiver: Value | None, args: Args, result: Node) -> None:
    """Join arguments with parameters as Python would."""
    engine.sign(function)
    solver, parameters, nodes = engine.solver, function.parameters, function.params
    positional = [p.name for p in parameters if p.kind in ("", "/")]
    names = {p.name for p in parameters if p.kind in ("", "=")}
    rest = keywords = None
    if not function.is_wrapper:  # a wrapper's rest would be of all the functions that it wraps
        rest = next((p.name for p in parameters if p.kind == "*"), None)
        keywords = next((p.name for p in parameters if p.kind == "**"), None)
    at = 0
    if receiver is not None:
        if positional:
            solver.add(nodes[positional[0]], receiver)
        elif rest is not None:
            solver.add(_container(nodes[rest]).item(0), receiver)
        at = 1
    for name, node in args:
        if name is None:
            if at < len(positional):
                engine.pass_on(node, nodes[positional[at]])
            elif rest is not None:
                solver.link(node, _container(nodes[rest]).item(at - len(positional)))
            at += 1
        elif name == "*":
            solver.watch(node, partial(_spread, engine, positional[at:], rest, nodes))
        elif name == "**":
            solver.watch(node, partial(_spread_names, engine, names, keywords, nodes))
        elif name in names:
            engine.pass_on(node, nodes[name])
        elif keywords is not None:
            solver.link(node, _container(nodes[keywords]).item(name))


_FUNCTIONS = (FunctionRef, Bound, Decorated, Partial)


def _functions_only(value: Value) -> Value | None:
    return value if type(value) in _FUNCTIONS else None


def _hands_back(function: FunctionInfo) -> tuple[str, ...]:
    """The parameters that a function may return as they came; an empty name where it makes functions."""
    node = function.node
    if isinstance(node, s.Lambda):
        return tuple(p.name for p in node.params if isinstance(node.body, s.Name) and node.body.id == p.name)
    if not isinstance(node, s.Func):
        return ()
    body = bytes(node.body)
    names = [p.name for p in node.params if b"\xa6return\x92\xa1N" + s.encode_text(p.name) in body]
    if b"\xa3def" in body:
        names.append("")
    return tuple(names)


def makes_wrappers(function: FunctionInfo) -> bool:
    """Whether a function takes a function and returns one, as a decorator does."""
    return not function.is_wrapper and bool(_hands_back(function))


def argument_of(function: FunctionInfo, receiver: Value | None, args: Args, name: str) -> Node | None:
    """The argument that a parameter gets, where it is passed by position or by name."""
    positional = [p.name for p in function.parameters if p.kind in ("", "/")]
    at = 1 if receiver is not None else 0
    for keyword, node in args:
        if keyword is None:
            if at < len(positional) and positional[at] == name:
                return node
            at += 1
        elif keyword == name:
            return node
        elif keyword in ("*", "**"):
            return function.params[name]
    return constant(receiver) if receiver is not None and positional[:1] == [name] else None


def _hands_on(site: Site) -> bool:
    """Whether a call passes all that the function around it was given."""
    rest = [site.function.params[p.name] for p in site.function.parameters if p.kind in ("*", "**")]
    return any(name in ("*", "**") and node in rest for name, node in site.args)


def _is_function(node: Node) -> bool:
    return any(type(value) in (FunctionRef, Bound, Partial) for value in node.values)


def _container(node: Node) -> Container:
    return next(value for value in node.values if type(value) is Container)


def _spread(engine: Engine, positional: list[str], rest: str | None, nodes: dict[str, Node], value: Value) -> None:
    if type(value) is not Container:
        return
    targets = [nodes[name] for name in positional]
    for i, target in enumerate(targets):
        if i in value.items:
            engine.solver.link(value.items[i], target)
        engine.solver.link(value.element, target)
    if rest is not None:
        container = _container(nodes[rest])
        for key, node in list(value.items.items()):
            if isinstance(key, int) and key >= len(positional):
                engine.solver.link(node, container.item(key - len(positional)))
        engine.solver.link(value.element, container.element)


def _spread_names(engine: Engine, names: set[str], keywords: str | None, nodes: dict[str, Node], value: Value) -> None:
    if type(value) is not Container:
        return
    for key, node in list(value.items.items()):
        if key in names:
            engine.solver.link(node, nodes[key])
        elif keywords is not None:
            engine.solver.link(node, _container(nodes[keywords]).item(key))
    if keywords is not None:
        engine.solver.link(value.element, _container(nodes[keywords]).element)


def _ordered(node: Node) -> list[Value]:
    return list(node.values)


def _bound_kind(site: Site, value: Bound) -> str:
    site.dispatch = True
    if value.through_super:
        return "super"
    if type(value.receiver) is ClassRef:
        return "class_method"
    expression = site.expressions[0]
    if isinstance(expression, s.Call) and isinstance(expression.func, s.Attr):
        base = expression.func.value
        return "self_method" if isinstance(base, s.Name) and base.id == "self" else "attr_method"
    return "callback"


def _function_kind(site: Site, function: FunctionInfo) -> str:
    expression = site.expressions[0]
    if not isinstance(expression, s.Call):
        return "direct"
    func = expression.func
    if isinstance(func, s.Sub):
        return "triton_launch" if "jit" in " ".join(function.decorators) else "dict_dispatch"
    if function.owner is not None:
        return "static_method" if function.kind == "staticmethod" else "unbound_method"
    if isinstance(func, s.Name) and func.id != function.name and function.parent is not None:
        return "closure"
    if isinstance(func, (s.Name, s.Attr)):
        return "nested_function" if function.parent is not None else "direct"
    return "direct"


def all_functions(modules: Iterable[ModuleInfo]) -> list[FunctionInfo]:
    """The functions bound in modules and classes, nested ones left out."""
    return [function for module in modules for function in module.functions.values()]


__all__ = ["EXTERNAL", "NOTHING", "Engine", "Site", "Use"]
