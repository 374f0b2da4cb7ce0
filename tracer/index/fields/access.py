"""Accesses: one write or read of a field of a class that carries a step's state."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as fresh
from typing import TYPE_CHECKING, Union

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text

if TYPE_CHECKING:
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo

WRITES = ("assign", "constructor", "default", "copy", "augment", "in-place", "kernel", "delete")
READS = ("read", "unpack", "pass")


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a function was given under a name: a source that lies in its callers."""

    function: FunctionInfo
    name: str


@dataclass(frozen=True, slots=True)
class Returned:
    """What a call gives: a source that lies in the functions called."""

    function: FunctionInfo
    call: s.Call


@dataclass(eq=False, slots=True)
class Access:
    """One write or read of a field, compared by identity.

    ``kind`` of a write: ``assign``; ``constructor`` (a keyword or position of a call that makes the object);
    ``default`` (of a dataclass field that no argument sets); ``copy`` (the value is a field of another tracked
    class); ``augment`` (``+=``); ``in-place`` (``.copy_()``, ``[...] = ``, ``append``, ``out=``); ``kernel`` (a Triton
    kernel stores through the pointer); ``delete``. Of a read: ``read``; ``unpack`` (into several targets); ``pass``
    (as an argument).
    """

    cls: ClassInfo
    field: str
    function: FunctionInfo
    line: int
    kind: str
    node: s.Expr
    """The attribute, or of a constructor the call."""
    statement: s.Stmt | None
    value: s.Expr | None = None
    """What is written; of a read, the expression it appears in."""
    same_as: tuple[Source, ...] = ()
    """What the written value is one with, as seen within the function."""
    made_of: tuple[Source, ...] = ()
    """What the written value is a view, slice, element or copy of."""

    @property
    def sources(self) -> tuple[Access, ...]:
        """The reads of tracked fields in the same function that the written value is one with."""
        return tuple(source for source in self.same_as if isinstance(source, Access))

    @property
    def derived(self) -> tuple[Access, ...]:
        """The reads of tracked fields in the same function that the written value is made of."""
        return tuple(source for source in self.made_of if isinstance(source, Access))

    @property
    def is_write(self) -> bool:
        """Whether it changes the field."""
        return self.kind in WRITES

    @property
    def expression(self) -> str:
        """The written expression, or the one in which the field is read."""
        return "" if self.value is None else text(self.value)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.cls.name}.{self.field} {self.function.qualname}:{self.line}>"


Source = Union[Access, Parameter, Returned]  # noqa: UP007 (evaluated at run time)


@dataclass(eq=False)
class FieldUses:
    """All accesses of one field, in the order of function and line."""

    cls: ClassInfo
    field: str
    role: str
    writes: list[Access] = fresh(default_factory=list)
    reads: list[Access] = fresh(default_factory=list)

    @property
    def name(self) -> str:
        """``Class.field``."""
        return f"{self.cls.name}.{self.field}"
