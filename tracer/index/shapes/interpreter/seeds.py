"""What the vocabulary says of roles, of configuration, and of fields when a step starts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.fields.tracked import roles
from sgltrace.index.program.vocabulary import roles as role_names
from sgltrace.index.shapes.interpreter.vocabulary import Seed, SeededTensor
from sgltrace.index.shapes.symbolic.dims import symbol
from sgltrace.index.shapes.symbolic.values import (
    NONE,
    Const,
    Int,
    Member,
    Obj,
    Run,
    Tensor,
    Unknown,
    Value,
    alternatives,
    number,
)

if TYPE_CHECKING:
    from sgltrace.index.fields.tracked import TrackedClasses
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
    from sgltrace.index.shapes.interpreter.machine import Machine
    from sgltrace.index.shapes.interpreter.vocabulary import ShapeVocabulary
    from sgltrace.index.shapes.interpreter.world import World


class Seeds:
    """The part of the machine that knows roles and seeds."""

    world: World
    tracked: TrackedClasses
    vocabulary: ShapeVocabulary
    path: str
    each_symbols: set[str]
    options_class: ClassInfo | None
    """The class of the server's arguments."""
    preferred: list[ClassInfo]
    """The classes that the path's step is made of: where a declared type leaves several, one of these is meant."""

    def __new__(cls, *_: object) -> Seeds:
        """Start with nothing preferred."""
        made = super().__new__(cls)
        made.preferred = []
        made.each_numbers = set()
        made._configs = {}
        made._opaque = {}
        return made

    each_numbers: set[int]
    _configs: dict[bool, Obj]
    _opaque: dict[ClassInfo, bool]

    # --- roles ---

    def role(self, cls: ClassInfo | None) -> str | None:
        """The key of a class's role in the vocabulary."""
        return None if cls is None else self.tracked.role(cls)

    def is_tracked(self, cls: ClassInfo | None) -> bool:
        """Whether the class's fields are followed."""
        return self.role(cls) is not None

    def lives_long(self, cls: ClassInfo) -> bool:
        """Whether objects of the class are evaluated field by field, and not by running their constructor."""
        role = self.tracked.role(cls)
        if role is not None:
            return roles()[role].carries == "process" and not self.world.is_dataclass(cls)
        return not self.world.is_dataclass(cls)

    def on_path(self, classes: list[ClassInfo]) -> ClassInfo | None:
        """Of several classes that a value may be of, the one meant on this path; None where that is open."""
        for wanted in self.preferred:
            if wanted in classes:
                return wanted
        if len(classes) == 1 and not self.world.is_abstract(classes[0]):
            return classes[0]
        for wanted in self.preferred:
            if any(self.world.is_subclass(wanted, cls) for cls in classes):
                return wanted
        if len(classes) == 1:
            return classes[0]
        bases = [cls for cls in classes if all(self.world.is_subclass(other, cls) for other in classes)]
        return bases[0] if bases else None

    # --- seeds ---

    def seed(self, obj: Obj, name: str) -> Value | None:
        """What the vocabulary says a field holds when a step starts."""
        fixed = self.fixed(name)
        if fixed is not None:
            return fixed
        role = self.role(obj.cls)
        seeded = self.vocabulary.entry.get(role or "", {}).get(name)
        if seeded is not None:
            return self._seeded(obj, name, seeded)
        if name in self.vocabulary.config:
            return self.configured(name, obj)
        if role == "server_args" and obj.cls is not None:
            return self.option(obj.cls, name)
        return None

    def option(self, cls: ClassInfo, name: str) -> Value | None:
        """The default of an option that is on or off."""
        default = self.world.class_value(cls, name)
        written = default[1].value if default is not None and isinstance(default[1], s.Const) else ""
        if isinstance(written, bool) or (written is None and name.startswith("enable_")):
            return Const(bool(written))
        return None

    def fixed(self, name: str) -> Value | None:
        """The value of an attribute that the vocabulary fixes, whatever has it."""
        if name in self.vocabulary.absent:
            return NONE
        value = self.vocabulary.paths.get(self.path, {}).get(name, self.vocabulary.fixed.get(name))
        return None if value is None else literal(value)

    def is_opaque(self, cls: ClassInfo) -> bool:
        """Whether nothing but configuration is asked of the class."""
        known = self._opaque.get(cls)
        if known is None:
            patterns = self.vocabulary.opaque
            known = self._opaque[cls] = any(re.fullmatch(pattern, cls.name) for pattern in patterns)
        return known

    def _seeded(self: Seeds, obj: Obj, name: str, seed: Seed) -> Value:
        machine: Machine = self  # type: ignore[assignment]
        if isinstance(seed, bool):
            return Const(seed)
        if isinstance(seed, SeededTensor):
            return Tensor(tuple(symbol(part) for part in seed.shape), seed.dtype)
        if seed == "model":
            return Obj(None, name, "model", owner=obj)
        if seed == "none":
            return NONE
        if seed.startswith("'"):
            return Const(seed.strip("'"))
        element = self._element_of(obj, name)
        made = Obj(None, name, "list")
        machine.store.put((made.number, "[]"), Run(((element, symbol(seed.strip("[]"))),)))
        return made

    def _element_of(self, obj: Obj, name: str) -> Value:
        """What stands for every element of a list field."""
        assert obj.cls is not None
        found = self.world.element_classes(obj.cls, name)
        cls = self.on_path(found)
        if cls is None:
            return Unknown(f"an element of {name}")
        made = Obj(cls, f"each of {name}", each=True)
        self.each_numbers.add(made.number)
        return made

    def configured(self, name: str, base: Value) -> Value:
        """A configuration value by its attribute's name, whatever holds it."""
        known = self.vocabulary.config.get(name)
        if known is None:
            fixed = self.fixed(name)
            if fixed is not None:
                return fixed
            # Options are handed around in other objects too, under the same names.
            option = self.option(self.options_class, name) if self.options_class is not None else None
            if option is not None:
                return option
            return base if isinstance(base, Unknown) else Unknown(f"{name} of a value that is not followed")
        if isinstance(base, Obj) and known in self.vocabulary.draft_config and self.is_draft_model(base):
            known = self.vocabulary.draft_config[known]
        return Int(symbol(known))

    def config(self, draft: bool) -> Obj:
        """A stand-in for a model's configuration."""
        made = self._configs.get(draft)
        if made is None:
            made = self._configs[draft] = Obj(None, "draft config" if draft else "config", "config")
        return made

    def is_draft_model(self: Seeds, obj: Obj) -> bool:
        """Whether an object belongs to the draft model, by the flag of the runner around it."""
        machine: Machine = self  # type: ignore[assignment]
        from sgltrace.index.shapes.interpreter import lazy

        if obj is self._configs.get(True):
            return True
        inner: Obj | None = obj
        while inner is not None:
            if inner.cls is not None and self.world.assignments(inner.cls, self.vocabulary.model.draft_flag):
                key = (inner.number, self.vocabulary.model.draft_flag)
                flag = machine.store.values.get(key)
                if flag is None:
                    flag = lazy.first_value(machine, inner, self.vocabulary.model.draft_flag)
                    machine.store.put(key, flag)
                return flag == Const(True)
            inner = inner.owner
        return False

    def assumed(self, value: Value) -> Value:
        """A member of an enum, as the one that the vocabulary takes it to be."""
        for part in alternatives(value):
            if isinstance(part, Member | Obj) and part.cls and part.cls.name in self.vocabulary.members:
                return Member(part.cls, self.vocabulary.members[part.cls.name])
        return value

    def answer(self, function: FunctionInfo, first: Value | None) -> Value | None:
        """What a predicate of the assumed algorithm says, where its code does not tell."""
        if not isinstance(first, Member) or first.cls.name not in self.vocabulary.members:
            return None
        known = role_names().known.get(self.path, {})
        found = [value for name, value in known.items() if name.endswith(f".{function.name}")]
        return Const(found[0]) if found else None


def literal(value: int) -> Value:
    """A boolean or whole number as a value."""
    return Const(value) if isinstance(value, bool) else number(value)
