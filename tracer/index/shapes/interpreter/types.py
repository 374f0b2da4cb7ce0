"""What a value is by its type alone: a field or parameter that nothing on the way has given a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.modules import dotted
from sgltrace.index.shapes.symbolic.dims import symbol
from sgltrace.index.shapes.symbolic.values import (
    NONE,
    Either,
    Int,
    Member,
    Obj,
    Ref,
    Tensor,
    Unknown,
    Value,
    alternatives,
)

if TYPE_CHECKING:
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
    from sgltrace.index.shapes.interpreter.frames import Frame
from sgltrace.index.shapes.interpreter.seeds import Seeds


class Types(Seeds):
    """The part of the machine that knows annotations."""

    def declared(self, obj: Obj, name: str) -> Value:
        """A field by its annotation, or by what flows into it."""
        assert obj.cls is not None
        found = self.world.annotation(obj.cls, name)
        classes = self.world.declared(obj.cls, name)
        value = self._typed(classes, found[1] if found else None, name, obj)
        if isinstance(value, Unknown) and found is None and self.world.is_number(obj.cls, name):
            return self._number(name, obj)
        if isinstance(value, Obj) and not obj.lazy and self.world.may_be_none(obj.cls, name):
            return Either((NONE, value))
        return value

    def by_type(self, function: FunctionInfo, param: s.Param) -> Value:
        """A parameter by its annotation, or by what callers pass."""
        return self._typed(self.world.param_classes(function, param), param.annotation, param.name, None)

    def _typed(self, classes: list[ClassInfo], annotation: s.Expr | None, name: str, owner: Obj | None) -> Value:
        cls = self.on_path(classes)
        if cls is not None:
            member = self.vocabulary.members.get(cls.name)
            if member is not None:
                return Member(cls, member)
            if self.world.is_enum(cls):
                return Unknown(f"a {cls.name}")
            if self.is_opaque(cls):
                return Obj(None, name, "config", owner=owner)
            label = f"{owner.name}.{name}" if owner is not None and owner.name else name
            each = owner is not None and owner.each
            made = Obj(cls, label, each=each, lazy=self.lives_long(cls), owner=owner)
            if each:
                self.each_numbers.add(made.number)
            return made
        words = set() if annotation is None else {dotted(part) for part in s.descend(annotation)}
        if "torch.Tensor" in words or "Tensor" in words:
            if words & {"List", "list", "Dict", "dict", "Optional", "typing.Optional"}:  # which may be None
                return Unknown(f"{name} is not written before it is read here")
            return Tensor(None, why=f"{name} is not written before it is read here")
        if words and words <= {"int", "Optional", "typing.Optional", None, "Optional.int"} and "int" in words:
            return self._number(name, owner)
        return Unknown(f"{name} is not written before it is read here")

    def _number(self, name: str, owner: Obj | None) -> Value:
        if name in self.vocabulary.config:
            return self.configured(name, owner if owner is not None else Unknown(name))
        if owner is not None and owner.each:
            self.each_symbols.add(name)
        return Int(symbol(name))

    def narrowed_to(self, value: Value, classes: list[ClassInfo]) -> Value:
        """A value that an annotation says is of one of these classes: an object's own class may become narrower."""
        cls = self.on_path(classes)
        if cls is None:
            return value
        for part in alternatives(value):
            if isinstance(part, Obj) and part.cls not in (None, cls) and self._narrows(cls, part):
                part.cls = cls
                part.lazy = self.lives_long(cls)
        if isinstance(value, Either):
            fitting = [p for p in value.values if isinstance(p, Obj) and p.cls and self.world.is_subclass(p.cls, cls)]
            if len(fitting) == 1:
                return fitting[0]
        return value

    def _narrows(self, cls: ClassInfo, obj: Obj) -> bool:
        return obj.cls is not None and self.world.is_subclass(cls, obj.cls)

    def as_annotated(self, frame: Frame, value: Value, annotation: s.Expr) -> Value:
        """A value assigned to an annotated variable."""
        classes = self.world.annotated(annotation, self.world.scope(frame.function))
        if isinstance(value, Unknown) or (isinstance(value, Tensor) and value.shape is None and classes):
            typed = self._typed(classes, annotation, "value", None)
            return value if isinstance(typed, Unknown) else typed
        return self.narrowed_to(value, classes)

    def by_return(self, function: FunctionInfo) -> Value:
        """What a function gives by its annotation."""
        node = function.node
        if not isinstance(node, s.Func) or node.returns is None:
            return Unknown(f"what {function.name} gives")
        classes = self.world.annotated(node.returns, function.enclosing)
        value = self._typed(classes, node.returns, function.name, None)
        # A property is named after what it is; any other function after what it does, which is no formula.
        return value if function.is_property or not isinstance(value, Int) else Unknown(f"what {function.name} returns")

    def receiver_for(self, function: FunctionInfo) -> Value | None:
        """An object on which a method may be called, where the real one is unknown."""
        if function.owner is None or function.kind == "staticmethod":
            return None
        if function.kind == "classmethod":
            return Ref("class", function.owner.id, None, function.owner)
        return Obj(function.owner, function.owner.name, lazy=self.lives_long(function.owner))
