"""Field flow: who writes and who reads each field of the classes that carry a step's state, and what moves along.

``field_flow`` walks every reached function once. An access knows its function, statement and expression, so that
guards, phases and types can be asked of the program; of a write it is known what was written, and which accesses the
written value is one with (``sources``). ``FieldFlow.origins`` follows it further, through parameters and returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as fresh
from functools import cached_property
from typing import TYPE_CHECKING, Union

from sgltrace.index import syntax as s
from sgltrace.index.fields_inplace import InPlace
from sgltrace.index.fields_tracked import TrackedClasses, roles
from sgltrace.index.guards import Chain
from sgltrace.index.text import text

if TYPE_CHECKING:
    from sgltrace.index.entities import ClassInfo, FunctionInfo
    from sgltrace.index.fields_binding import BindingTimes
    from sgltrace.index.fields_strides import StridedRead
    from sgltrace.index.program import Program

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


class FieldFlow:
    """The accesses of a program's tracked fields."""

    def __init__(self, program: Program, tracked: TrackedClasses) -> None:
        self.program = program
        self.tracked = tracked
        self.fields: dict[tuple[ClassInfo, str], FieldUses] = {}
        self.by_function: dict[FunctionInfo, list[Access]] = {}
        self.strided: list[StridedRead] = []
        self.passed: dict[Parameter, dict[Source, None]] = {}
        """What callers give to a parameter, where that is a field or comes from elsewhere."""
        self.returned: dict[FunctionInfo, dict[Source, None]] = {}
        """What a function gives back, likewise."""
        self.in_place = InPlace()
        self._at: dict[int, list[Access]] = {}

    # --- what there is ---

    def role(self, cls: ClassInfo) -> str | None:
        """The key of a class's role in the vocabulary."""
        return self.tracked.role(cls)

    def find(self, name: str) -> list[FieldUses]:
        """The fields called ``field`` or ``Class.field`` (also by role: ``draft_input.field``), sorted."""
        owner, _, field_name = name.rpartition(".")
        found = (
            uses
            for uses in self.fields.values()
            if uses.field == field_name and (not owner or owner in (uses.cls.name, uses.cls.id, uses.role))
        )
        return sorted(found, key=lambda uses: (uses.cls.id, uses.field))

    def of_role(self, role: str, field_name: str | None = None) -> list[FieldUses]:
        """The fields of the classes of a role, sorted."""
        found = (u for u in self.fields.values() if u.role == role and field_name in (None, u.field))
        return sorted(found, key=lambda uses: (uses.cls.id, uses.field))

    def at(self, node: s.Expr) -> list[Access]:
        """The accesses that an expression makes: several where the receiver may be of several classes."""
        return self._at.get(id(node), [])

    def __iter__(self) -> Iterator[FieldUses]:
        return iter(sorted(self.fields.values(), key=lambda uses: (uses.cls.id, uses.field)))

    # --- about an access ---

    def guards(self, access: Access) -> Chain:
        """The conditions around an access, outermost first."""
        at = self.program.guards(access.function)
        return at.at(access.node) or (at.at(access.statement) if access.statement is not None else ())

    def origins(self, access: Access, depth: int = 4) -> list[Access]:
        """The reads from which a written value comes: followed back through locals, parameters and returns."""
        return self.resolve((*access.same_as, *access.made_of), depth)

    def resolve(self, sources: Iterable[Source], depth: int = 4) -> list[Access]:
        """The reads behind sources, through at most ``depth`` calls, in the order of function and line."""
        found: dict[Access, None] = {}
        seen: set[Source] = set()
        pending = [(source, depth) for source in sources]
        while pending:
            source, left = pending.pop()
            if source in seen:
                continue
            seen.add(source)
            if isinstance(source, Access):
                found[source] = None
            elif left > 0:
                pending += [(further, left - 1) for further in self._behind(source)]
        return sorted(found, key=lambda a: (a.function.id, a.line, a.cls.id, a.field))

    def _behind(self, source: Parameter | Returned) -> Iterable[Source]:
        if isinstance(source, Parameter):
            return self.passed.get(source, ())
        callees = self.program.resolve_call(source.call, source.function)
        return [further for callee in callees for further in self.returned.get(callee, ())]

    @cached_property
    def binding(self) -> BindingTimes:
        """When the values of fields become fixed."""
        from sgltrace.index.fields_binding import BindingTimes

        return BindingTimes(self)

    # --- building ---

    def add(self, access: Access) -> None:
        """Take up an access."""
        key = (access.cls, access.field)
        uses = self.fields.get(key)
        if uses is None:
            uses = self.fields[key] = FieldUses(access.cls, access.field, self.tracked.role(access.cls) or "")
        (uses.writes if access.is_write else uses.reads).append(access)
        self.by_function.setdefault(access.function, []).append(access)
        self._at.setdefault(id(access.node), []).append(access)

    def _join_bases(self) -> None:
        """What is read on a class and written only on one of its bases is the base's field."""
        for uses in list(self.fields.values()):
            if uses.writes:
                continue
            bases = self.program.engine.classes.mro(uses.cls)[1:]
            owner = next((b for b in bases if (known := self.fields.get((b, uses.field))) and known.writes), None)
            if owner is not None:
                for access in uses.reads:
                    access.cls = owner
                self.fields[owner, uses.field].reads += uses.reads
                del self.fields[uses.cls, uses.field]

    def finish(self) -> None:
        """Add what changes because it is handed to what changes it, and sort."""
        for handed in self.in_place.spread():
            read = handed.source
            assert isinstance(read, Access)
            self.add(
                Access(read.cls, read.field, handed.function, handed.call.line, "in-place", handed.call,
                       handed.statement, handed.call)
            )  # fmt: skip

        self._join_bases()

        def key(access: Access) -> tuple[str, int, int]:
            return access.function.id, access.line, WRITES.index(access.kind) if access.is_write else 0

        for uses in self.fields.values():
            uses.writes.sort(key=key)
            uses.reads.sort(key=key)


def field_flow(program: Program) -> FieldFlow:
    """The field flow of a resolved program."""
    from sgltrace.index.fields_strides import resolve_strided
    from sgltrace.index.fields_walk import walk

    flow = FieldFlow(program, TrackedClasses(program))
    for function in _in_order(program):
        walk(flow, function)
    flow.finish()
    resolve_strided(flow)
    return flow


def _in_order(program: Program) -> Iterable[FunctionInfo]:
    return sorted(program.engine.reached, key=lambda function: function.id)


__all__ = ["READS", "WRITES", "Access", "FieldFlow", "FieldUses", "Parameter", "Returned", "field_flow", "roles"]
