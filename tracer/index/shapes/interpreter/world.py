"""The program as the shape interpreter asks about it: names, classes, methods, assignments, what a type says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.annotations import read_annotation
from sgltrace.index.resolution.modules import import_bindings
from sgltrace.index.resolution.values import (
    Bound,
    ClassRef,
    Container,
    External,
    FunctionRef,
    Instance,
    ModuleRef,
    Node,
)
from sgltrace.index.shapes.interpreter.reading import (
    Assignment,
    assignments,
    body_values,
    calls_in,
    imports_in,
    is_none,
    runs_base,
)
from sgltrace.index.shapes.symbolic.values import Ref

if TYPE_CHECKING:
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, ModuleInfo, Scope


class World:
    """Answers about one program; what takes a walk is kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.engine = program.engine
        self._fields: dict[ClassInfo, dict[str, list[Assignment]]] = {}
        self._locals: dict[FunctionInfo, dict[str, list[Assignment]]] = {}
        self._class_values: dict[ClassInfo, dict[str, s.Expr]] = {}
        self._imports: dict[FunctionInfo, dict[str, tuple[str, str]]] = {}
        self._inits: dict[tuple[FunctionInfo, FunctionInfo], s.Call | None] = {}
        self._abstract: dict[ClassInfo, bool] = {}

    # --- names and values ---

    def scope(self, function: FunctionInfo) -> Scope:
        """Where a function's names are looked up."""
        return function.scope if function.scope is not None else function.enclosing

    def static(self, function: FunctionInfo, node: s.Expr) -> Ref | None:
        """The function, class, module or outside name that an expression is bound to, whatever runs."""
        found = [ref for value in self.engine.evaluate(node, self.scope(function)) for ref in [_ref(value)] if ref]
        return found[0] if len({(ref.kind, ref.target) for ref in found}) == 1 else None

    def imported(self, function: FunctionInfo, name: str) -> tuple[ModuleInfo, str] | None:
        """The module and name of a variable that a function's module, or the function itself, imports."""
        for body in (function, function.module.body):
            known = self._imports.get(body)
            if known is None:
                known = self._imports[body] = {}
                for statement in imports_in(body.body):
                    bindings, _ = import_bindings(self.engine.modules, function.module, statement)
                    known.update({bound: (target, attribute) for bound, target, attribute in bindings if attribute})
            if name in known:
                target, attribute = known[name]
                module = self.engine.modules.load(target) if self.engine.modules.is_own(target) else None
                return None if module is None or module is function.module else (module, attribute)
        return None

    def instances(self, function: FunctionInfo, node: s.Expr) -> list[ClassInfo]:
        """The classes of which the call graph knows an expression's value to be, in a stable order."""
        return _classes(function.nodes.get(id(node)))

    def targets(self, function: FunctionInfo, call: s.Call) -> list[FunctionInfo]:
        """The functions that a call may reach, by the call graph."""
        node = function.nodes.get(id(call.func))
        found = {value.function for value in (node.values if node else ()) if isinstance(value, FunctionRef | Bound)}
        return sorted(found, key=lambda f: f.id)

    # --- classes ---

    def method(self, cls: ClassInfo, name: str) -> FunctionInfo | None:
        """The method that Python's lookup finds; of a property, what reads it."""
        for owner in self.engine.classes.mro(cls):
            functions = owner.functions.get(name)
            if functions:
                readers = [f for f in functions if not (f.is_property and len(f.parameters) > 1)]
                return readers[-1] if readers else None
            if name in owner.scope.names:
                return None
        return None

    def after(self, cls: ClassInfo, owner: ClassInfo, name: str) -> FunctionInfo | None:
        """The method that ``super()`` in ``owner`` finds for an object of ``cls``."""
        order = self.engine.classes.mro(cls)
        rest = order[order.index(owner) + 1 :] if owner in order else self.engine.classes.mro(owner)[1:]
        return next((base.functions[name][-1] for base in rest if base.functions.get(name)), None)

    def setter(self, cls: ClassInfo | None, name: str) -> FunctionInfo | None:
        """The function that assigns to a property."""
        for owner in self.engine.classes.mro(cls) if cls is not None else ():
            for function in owner.functions.get(name, ()):
                if function.is_property and len(function.parameters) == 2:
                    return function
        return None

    def is_enum(self, cls: ClassInfo) -> bool:
        """Whether its members are constants."""
        self.engine.classes.mro(cls)
        return cls.is_enum

    def is_abstract(self, cls: ClassInfo) -> bool:
        """Whether an object declared as this class is meant to be of one of its subclasses."""
        known = self._abstract.get(cls)
        if known is None:
            known = self._abstract[cls] = self.engine.classes.is_abstract(cls)
        return known

    def is_dataclass(self, cls: ClassInfo) -> bool:
        """Whether Python writes its constructor from the annotated fields."""
        self.engine.classes.mro(cls)
        return cls.is_dataclass

    def is_dataclass_init(self, cls: ClassInfo, init: FunctionInfo) -> bool:
        """Whether an inherited constructor gives way to the one that Python writes for a dataclass."""
        return self.is_dataclass(cls) and init.owner is not cls

    def is_subclass(self, cls: ClassInfo, base: ClassInfo) -> bool:
        """Whether ``cls`` is ``base`` or inherits from it."""
        return self.engine.classes.is_subclass(cls, base)

    def mro(self, cls: ClassInfo) -> tuple[ClassInfo, ...]:
        """The class and its bases of the program."""
        return self.engine.classes.mro(cls)

    def fields(self, cls: ClassInfo) -> list[str]:
        """The fields of a dataclass, in the order of its constructor."""
        names: dict[str, None] = {}
        for owner in reversed(self.mro(cls)):
            names.update(dict.fromkeys(owner.annotations))
        return list(names)

    def annotation(self, cls: ClassInfo, name: str) -> tuple[ClassInfo, s.Expr] | None:
        """How a field is annotated, and where."""
        for owner in self.mro(cls):
            if name in owner.annotations:
                return owner, owner.annotations[name]
        return None

    def class_value(self, cls: ClassInfo, name: str) -> tuple[ClassInfo, s.Expr] | None:
        """What a class body assigns to a name."""
        for owner in self.mro(cls):
            values = self._class_values.get(owner)
            if values is None:
                values = self._class_values[owner] = body_values(owner.node.body)
            if name in values:
                return owner, values[name]
        return None

    def declared(self, cls: ClassInfo, name: str) -> list[ClassInfo]:
        """The classes that a field's annotation names, or else those that flow into it."""
        found = self.annotation(cls, name)
        if found is not None:
            classes = read_annotation(self.engine, found[1], found[0].scope).classes
            if classes:
                return classes
        return _classes(self.engine.classes.read(cls, name))

    def element_classes(self, cls: ClassInfo, name: str) -> list[ClassInfo]:
        """The classes of the elements of a list field."""
        node = self.engine.classes.read(cls, name)
        found = {
            element.cls
            for value in node.values
            if isinstance(value, Container)
            for element in value.whole.values
            if isinstance(element, Instance)
        }
        return sorted(found, key=lambda c: c.id)

    def role_class(self, name: str) -> ClassInfo | None:
        """A loaded class by its name."""
        return next(iter(self.program.find_classes(name)), None)

    def annotated(self, expression: s.Expr, scope: Scope) -> list[ClassInfo]:
        """The classes that an annotation names."""
        return read_annotation(self.engine, expression, scope).classes

    def param_classes(self, function: FunctionInfo, param: s.Param) -> list[ClassInfo]:
        """The classes of which a parameter may be: by its annotation, or else by what callers pass."""
        if param.annotation is not None:
            classes = self.annotated(param.annotation, function.enclosing)
            if classes:
                return classes
        return _classes(function.params.get(param.name))

    # --- assignments ---

    def assignments(self, cls: ClassInfo, name: str) -> list[Assignment]:
        """The assignments to ``self.name`` in the class's methods: those of constructors, or else all."""
        found: list[Assignment] = []
        for owner in self.mro(cls):
            found += self._own_fields(owner).get(name, ())
        starting = [a for a in found if a.function.name == "__init__"]
        if not any(not is_none(a.value) for a in starting):
            return found
        last = starting[0].function
        own = [a for a in starting if a.function is last]
        return own if any(self._stands(a) for a in own) else starting

    def _stands(self, assignment: Assignment) -> bool:
        """Whether no base's constructor that its constructor runs afterwards may replace what is assigned."""
        constructor = assignment.function
        if assignment.guards or constructor.owner is None:
            return False
        for base in self.mro(constructor.owner)[1:]:
            for other in base.functions.get(constructor.name, ()):
                call = self.super_init(constructor, other)
                if call is not None and call.line > assignment.line:
                    return False
        return True

    def may_be_none(self, cls: ClassInfo, name: str) -> bool:
        """Whether a field is None by default, or where a method of the class sets it so."""
        default = self.class_value(cls, name)
        if default is not None and is_none(default[1]):
            return True
        return any(is_none(a.value) for owner in self.mro(cls) for a in self._own_fields(owner).get(name, ()))

    def is_number(self, cls: ClassInfo, name: str) -> bool:
        """Whether a method of the class sets a field to a whole number."""
        assigned = (a.value for owner in self.mro(cls) for a in self._own_fields(owner).get(name, ()))
        return any(isinstance(value, s.Const) and type(value.value) is int for value in assigned)

    def _own_fields(self, cls: ClassInfo) -> dict[str, list[Assignment]]:
        fields = self._fields.get(cls)
        if fields is None:
            fields = self._fields[cls] = {}
            for functions in cls.functions.values():
                for function in functions:
                    if not function.parameters or function.kind == "staticmethod":
                        continue
                    own = function.parameters[0].name
                    for target, assignment in assignments(self.program, function):
                        if isinstance(target, s.Attr) and isinstance(target.value, s.Name) and target.value.id == own:
                            fields.setdefault(target.attr, []).append(assignment)
        return fields

    def local_assignments(self, function: FunctionInfo, name: str) -> list[Assignment]:
        """The assignments to a variable of a function."""
        names = self._locals.get(function)
        if names is None:
            names = self._locals[function] = {}
            for target, assignment in assignments(self.program, function):
                if isinstance(target, s.Name):
                    names.setdefault(target.id, []).append(assignment)
        return names.get(name, [])

    def super_init(self, function: FunctionInfo, base: FunctionInfo) -> s.Call | None:
        """The call in a constructor that runs the constructor ``base``."""
        key = (function, base)
        if key not in self._inits:
            self._inits[key] = next((call for call in calls_in(function.body) if runs_base(call, base)), None)
        return self._inits[key]


def _ref(value: object) -> Ref | None:
    if isinstance(value, FunctionRef):
        return Ref("function", value.function.id, None, value.function)
    if isinstance(value, ClassRef):
        return Ref("class", value.cls.id, None, value.cls)
    if isinstance(value, ModuleRef):
        return Ref("module", value.name)
    if isinstance(value, External) and value.path and not value.path.startswith("."):
        return Ref("external", value.path)
    return None


def _classes(node: Node | None) -> list[ClassInfo]:
    found = {value.cls for value in (node.values if node is not None else ()) if isinstance(value, Instance)}
    return sorted(found, key=lambda cls: cls.id)
