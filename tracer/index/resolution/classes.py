"""Classes: their method order, lookup along it, their fields, and which of them are ever made."""

from __future__ import annotations

from collections.abc import Callable

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo, Scope
from sgltrace.index.resolution.modules import dotted
from sgltrace.index.resolution.values import ClassRef, External, FunctionRef, Node, Solver, Value

_ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
_DATACLASSES = {"dataclass", "dataclass_transform", "define", "attrs"}
_RECORDS = {"NamedTuple", "Struct", "TypedDict", "BaseModel"}
_PLAIN_BASES = {"object", "ABC", "Generic", "Protocol", "ABCMeta", "NamedTuple"} | _ENUMS
"""Bases outside the tree that give an instance no attribute that anyone would call."""


class Classes:
    """Answers what Python's own lookup would. ``evaluate`` gives the values of a base expression."""

    def __init__(self, solver: Solver, evaluate: Callable[[s.Expr, Scope], list[Value]]) -> None:
        self._solver = solver
        self._evaluate = evaluate
        self._declare: Callable[[ClassInfo, str, Node], None] = lambda cls, name, node: None

    def on_field(self, declare: Callable[[ClassInfo, str, Node], None]) -> None:
        """``declare`` is told of each new field node, to put in what its annotation says."""
        self._declare = declare

    def mro(self, cls: ClassInfo) -> tuple[ClassInfo, ...]:
        """The class and its bases of the tree in method resolution order."""
        if cls.mro is None:
            cls.mro = (cls,)  # a class that inherits from itself ends here
            bases, external = self._bases(cls)
            for base in bases:
                external |= base.external_bases
            cls.external_bases = frozenset(external)
            cls.mro = (cls, *_merge([list(self.mro(base)) for base in bases] + [list(bases)]))
            for base in cls.mro[1:]:
                base.subclasses.append(cls)
                cls.is_enum |= base.is_enum
            self._describe(cls)
        return cls.mro

    def _bases(self, cls: ClassInfo) -> tuple[list[ClassInfo], set[str]]:
        bases: list[ClassInfo] = []
        external: set[str] = set()
        for expression in cls.node.bases:
            values = self._evaluate(expression, cls.enclosing)
            found = [v.cls for v in values if type(v) is ClassRef]
            for base in found:
                if base not in bases and base is not cls:
                    self.mro(base)
                    bases.append(base)
            if not found:
                paths = [v.path for v in values if type(v) is External]
                external.update(path.removeprefix("builtins.") for path in paths)
                if not paths:
                    external.add(f"?{dotted(expression) or ''}")
        return bases, external

    def _describe(self, cls: ClassInfo) -> None:
        last = {path.rpartition(".")[2] for path in cls.external_bases}
        cls.is_enum |= bool(last & _ENUMS)
        for decorator in cls.node.decorators:
            name = dotted(decorator.func if isinstance(decorator, s.Call) else decorator)
            if name is not None and name.rpartition(".")[2] in _DATACLASSES:
                cls.is_dataclass = True
        cls.is_dataclass |= bool(last & _RECORDS)
        cls.is_record = "NamedTuple" in last

    def makes_init(self, cls: ClassInfo) -> bool:
        """Whether ``__init__`` is made from the fields of the class or of a base, not written."""
        for owner in self.mro(cls):
            if "__init__" in owner.scope.names:
                return False
            if owner.is_dataclass:
                return True
        return False

    def bases(self, cls: ClassInfo) -> tuple[ClassInfo, ...]:
        """The bases of the tree, nearest first."""
        return self.mro(cls)[1:]

    def is_subclass(self, cls: ClassInfo, base: ClassInfo) -> bool:
        """Whether ``cls`` is ``base`` or inherits from it."""
        return base in self.mro(cls)

    def has_outside(self, cls: ClassInfo) -> bool:
        """Whether attributes may come from a base outside the tree."""
        self.mro(cls)
        return any(path.rpartition(".")[2] not in _PLAIN_BASES for path in cls.external_bases)

    def lookup(self, cls: ClassInfo, name: str, after: ClassInfo | None = None) -> tuple[ClassInfo, Node] | None:
        """Where a class attribute is defined, and its node. ``after``: behind that class, as ``super()`` looks."""
        order = self.mro(cls)
        if after is not None:
            order = order[order.index(after) + 1 :] if after in order else self.mro(after)[1:]
        for owner in order:
            node = owner.scope.names.get(name)
            if node is not None:
                return owner, node
        return None

    def methods(self, cls: ClassInfo, name: str) -> list[FunctionInfo]:
        """The functions of the tree that lookup on an object finds under a name."""
        found = self.lookup(cls, name)
        return [v.function for v in found[1].values if isinstance(v, FunctionRef)] if found is not None else []

    def is_placeholder(self, cls: ClassInfo, function: FunctionInfo) -> bool:
        """Whether a method is there for its signature only: each object gets a function of its name when it is made."""
        return _is_stub(function) and any(
            isinstance(made.node, s.Func) and s.OWN_FIELD + s.encode_text(function.name) in bytes(made.node.body)
            for made in self.methods(cls, "__init__")
        )

    def record_fields(self, cls: ClassInfo) -> list[str]:
        """The fields of a dataclass or the like, in the order of its constructor's parameters."""
        owners = [owner for owner in reversed(self.mro(cls)) if owner.is_dataclass or owner is cls]
        return list(dict.fromkeys(name for owner in owners for name in owner.annotations))

    def field(self, cls: ClassInfo, name: str) -> Node:
        """What is written to a field through a receiver of that very class, and what is declared for it there."""
        node = cls.fields.get(name)
        if node is None:
            node = cls.fields[name] = Node()
            self._declare(cls, name, node)
        return node

    def read(self, cls: ClassInfo, name: str) -> Node:
        """What a field of an instance may hold: written through the class or any of its bases."""
        node = cls.reads.get(name)
        if node is None:
            node = cls.reads[name] = Node()
            for owner in self.mro(cls):
                self._solver.link(self.field(owner, name), node)
        return node

    def instantiate(self, cls: ClassInfo) -> None:
        """Note that the class is made somewhere."""
        if not cls.instantiated:
            cls.instantiated = True
            for owner in self.mro(cls):
                self._solver.add(owner.instances, cls.instance)

    def is_protocol(self, cls: ClassInfo) -> bool:
        """Whether a class says what others must have, without being their base."""
        return "Protocol" in {path.rpartition(".")[2] for path in self._bases(cls)[1]}

    def implements(self, cls: ClassInfo, protocol: ClassInfo) -> bool:
        """Whether a class has the methods of a protocol."""
        return bool(protocol.functions) and all(self.lookup(cls, name) is not None for name in protocol.functions)

    def is_abstract(self, cls: ClassInfo) -> bool:
        """Whether a receiver declared as this class is meant to be of one of its subclasses."""
        self.mro(cls)
        if any(path.rpartition(".")[2] in ("ABC", "Protocol", "ABCMeta") for path in cls.external_bases):
            own = {path.rpartition(".")[2] for path in self._bases(cls)[1]}
            if own & {"ABC", "Protocol"} or any(k.name == "metaclass" for k in cls.node.keywords):
                return True
        return any(f.is_abstract or _is_stub(f) for functions in cls.functions.values() for f in functions)


_STUB_SIZE = 200
"""A method that does no more than raise NotImplementedError has a body no longer than this, encoded."""


def _is_stub(function: FunctionInfo) -> bool:
    if not isinstance(function.node, s.Func):
        return False
    body = bytes(function.node.body)
    return len(body) < _STUB_SIZE and b"NotImplementedError" in body


def _merge(sequences: list[list[ClassInfo]]) -> list[ClassInfo]:
    """C3 linearisation; where Python would refuse the order, the first candidate is taken."""
    out: list[ClassInfo] = []
    sequences = [list(sequence) for sequence in sequences if sequence]
    while sequences:
        for sequence in sequences:
            head = sequence[0]
            if not any(head in other[1:] for other in sequences):
                break
        else:
            head = sequences[0][0]
        out.append(head)
        sequences = [rest for rest in ([c for c in sequence if c is not head] for sequence in sequences) if rest]
    return out
