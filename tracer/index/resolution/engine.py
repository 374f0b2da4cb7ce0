"""The inference: which functions are reached from the entry points, what flows where, and who calls whom.

Functions are read once, when something first calls them; reading one makes nodes for its expressions and sites for
its calls. The solver then delivers values to the sites, which reach further functions, until nothing is new.
"""

from __future__ import annotations

from collections import deque

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.store import Facts
from sgltrace.index.resolution.annotations import Annotation, narrowing, read_annotation
from sgltrace.index.resolution.binding import getter_of, hands_back
from sgltrace.index.resolution.classes import Classes
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, ModuleInfo, Scope
from sgltrace.index.resolution.interned import Interned
from sgltrace.index.resolution.modules import Modules, import_bindings, imports_in
from sgltrace.index.resolution.uses import Site, Use
from sgltrace.index.resolution.values import (
    OPAQUE,
    ClassRef,
    Container,
    External,
    Instance,
    ModuleRef,
    Node,
    Partial,
    Solver,
    Value,
)
from sgltrace.sources import SourceTree


class Engine:
    """The state of one analysis."""

    def __init__(self, tree: SourceTree, facts: Facts) -> None:
        self.tree = tree
        self.solver = Solver()
        self.interned = Interned()
        self.modules = Modules(tree, facts, self.solver, self._loaded, self._ask_module)
        self.classes = Classes(self.solver, self.evaluate)
        self.classes.on_field(self._declare_field)
        self.annotations: dict[int, Annotation] = {}
        self.reached: dict[FunctionInfo, None] = {}
        self.edges: dict[tuple[FunctionInfo, FunctionInfo, str], list[Use]] = {}
        """Caller, callee and kind to the places."""
        self.constructed: dict[FunctionInfo, list[tuple[ClassInfo, Use]]] = {}
        """The classes that a function makes objects of, and where."""
        self.sites: list[Site] = []
        self.checked: dict[Node, list[Node]] = {}
        """What flows into an annotated node."""
        self.misses: list[tuple[Node, ClassInfo]] = []
        """Attributes that were not there when they were asked for."""
        self.getters: dict[FunctionInfo, tuple[s.Attr, Node]] = {}
        """The methods that give back a field of their object and do nothing else: the field, and what the annotation
        says, where nobody is seen to write it."""
        self.annotated: set[Node] = set()
        """What lets in only what an annotation names."""
        self.doubted: dict[Node, dict[Instance, None]] = {}
        """What an annotation refused, for as long as nothing speaks against the annotation."""
        self.declared: dict[ClassInfo, list[Node]] = {}
        """What is annotated as a class of which no object was made yet."""
        self.assumed: list[FunctionInfo] = []
        """Constructors of classes whose objects come from elsewhere (another process)."""
        self.unfolded: set[tuple[int, Partial]] = set()
        """The partials that a call was already taken apart for."""
        self.unread: list[FunctionInfo] = []
        """Functions that nest too deeply."""
        self._queue: deque[FunctionInfo] = deque()

    # --- running ---

    def entry(self, function: FunctionInfo) -> None:
        """Have a function read that nothing in the tree calls."""
        self.reach(function)
        if function.owner is not None and function.parameters and function.kind == "method":
            self.solver.add(function.params[function.parameters[0].name], function.owner.instance)

    def reach(self, function: FunctionInfo) -> None:
        """Have a function read, once."""
        if not function.queued:
            function.queued = True
            self.reached[function] = None
            self.sign(function)
            self._prefetch(function)
            self._queue.append(function)

    def run(self) -> None:
        """Read what is reached and deliver values until nothing is new."""
        from sgltrace.index.resolution.lower import lower
        from sgltrace.index.resolution.settle import settle

        while True:
            while self._queue:
                function = self._queue.popleft()
                try:
                    lower(self, function)
                except RecursionError:
                    self.unread.append(function)
                self.solver.run()
            self.solver.run()
            if not self._queue and not settle(self) and not self._queue:
                return

    def _prefetch(self, function: FunctionInfo) -> None:
        """Begin to read the modules that a function's names come from, well before the function's turn."""
        module, node = function.module, function.node
        if not isinstance(node, s.Func):
            return
        body = bytes(node.body)
        names = [name for name in module.unread if name in body]
        wanted = [target for name in names for target in module.unread.pop(name)]
        if any(tag in body for tag in s.IMPORTS):
            for statement in imports_in(function.body):
                wanted += [target for _, target, _ in import_bindings(self.modules, module, statement)[0]]
        self.modules.prefetch(wanted)

    def _loaded(self, module: ModuleInfo) -> None:
        self.reach(module.body)

    def _ask_module(self, module: ModuleInfo, function: FunctionInfo) -> Node:
        """A name that a module does not bind: its ``__getattr__`` is called for it."""
        assert function.node is not None and not isinstance(function.node, (s.Lambda, s.Comp))
        self.edge(Use(module.body, function.node), function, "special_method")
        return function.result

    # --- names ---

    def evaluate(self, expression: s.Expr, scope: Scope) -> list[Value]:
        """The values of a name or attribute where only what is bound by import, ``def`` or ``class`` counts."""
        if isinstance(expression, s.Name):
            node = self.name(expression.id, scope)
            return [External(f"builtins.{expression.id}")] if node is None else list(node.values)
        if isinstance(expression, s.Attr):
            out: list[Value] = []
            for base in self.evaluate(expression.value, scope):
                found: Node | None = None
                if isinstance(base, External):
                    found = self.modules.external(f"{base.path}.{expression.attr}")
                elif isinstance(base, ModuleRef):
                    found = self.modules.imported(base.name, expression.attr)
                elif isinstance(base, ClassRef):
                    attribute = self.classes.lookup(base.cls, expression.attr)
                    found = attribute[1] if attribute is not None else None
                out += found.values if found is not None else ()
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

    # --- annotations ---

    def annotate(self, node: Node, expression: s.Expr, scope: Scope) -> None:
        """Put into a node what an annotation says."""
        annotation = read_annotation(self, expression, scope)
        for value in annotation.values:
            self.solver.add(node, value)
            if isinstance(value, Instance) and not value.cls.instantiated:
                self.declared.setdefault(value.cls, []).append(node)
        for other in annotation.nodes:
            self.solver.link(other, node)

    def declare(self, node: Node, expression: s.Expr, scope: Scope) -> None:
        """Annotate a variable, parameter or field: what flows in besides must fit."""
        node.transform = narrowing(self, read_annotation(self, expression, scope))
        if node.transform is not None:
            self.annotated.add(node)
        self.annotate(node, expression, scope)

    def pass_on(self, source: Node, target: Node) -> None:
        """Link to what may be annotated."""
        self.solver.link(source, target)
        if target.transform is not None and not source.fixed:
            self.checked.setdefault(target, []).append(source)

    def _declare_field(self, cls: ClassInfo, name: str, node: Node) -> None:
        expression = cls.annotations.get(name)
        if expression is not None:
            self.declare(node, expression, cls.scope)
            attribute = cls.scope.names.get(name)
            if attribute is not None:
                self.solver.link(attribute, node)

    # --- functions ---

    def sign(self, function: FunctionInfo) -> None:
        """Make the nodes of a function's parameters, with what annotations say."""
        if function.signed:
            return
        function.signed = True
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
        if function.is_generator:
            function.generator = Container("generator")
            self.solver.add(function.result, function.generator)
        if function.module.is_outline and isinstance(function.node, s.Func):
            self.solver.add(function.result, OPAQUE)  # its body is not read: what it returns is not of interest
        function.hands_back = hands_back(function)
        field = getter_of(function)
        if field is not None:
            self.getters[function] = field, Node()

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
