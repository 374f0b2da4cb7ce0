"""Field flow: who writes and who reads each field of the classes that carry a step's state, and what moves along.

``field_flow`` walks every reached function once. An access knows its function, statement and expression, so that
guards, phases and types can be asked of the program; of a write it is known what was written, and which accesses the
written value is one with (``sources``). ``FieldFlow.origins`` follows it further, through parameters and returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import Chain
from sgltrace.index.fields.access import WRITES, Access, FieldUses, Parameter, Returned, Source
from sgltrace.index.fields.inplace import InPlace
from sgltrace.index.fields.tracked import TrackedClasses

if TYPE_CHECKING:
    from sgltrace.index.fields.binding import BindingTimes
    from sgltrace.index.fields.strides import StridedRead
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo


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
        from sgltrace.index.fields.binding import BindingTimes

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
    from sgltrace.index.fields.strides import resolve_strided
    from sgltrace.index.fields.walk import walk

    flow = FieldFlow(program, TrackedClasses(program))
    for function in _in_order(program):
        walk(flow, function)
    flow.finish()
    resolve_strided(flow)
    return flow


def _in_order(program: Program) -> Iterable[FunctionInfo]:
    return sorted(program.engine.reached, key=lambda function: function.id)
