"""The field flow as the index lists it: each field's writes and reads, with guards, phases, paths and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace import model

if TYPE_CHECKING:
    from sgltrace.index.fields import Access, FieldFlow
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import FunctionInfo
    from sgltrace.index.shapes import Shapes

LONGEST = 240
"""Expressions are cut at so many characters."""


def index_fields(program: Program, flow: FieldFlow, shapes: Shapes) -> list[model.Field]:
    """The fields of all tracked classes, by class and field; accesses by function and line."""
    lister = _Lister(program, flow, shapes)
    return [
        model.Field(
            cls=uses.cls.id,
            field=uses.field,
            role=uses.role,
            writes=[lister.access(access) for access in uses.writes],
            reads=[lister.access(access) for access in uses.reads],
        )
        for uses in flow
    ]


class _Lister:
    def __init__(self, program: Program, flow: FieldFlow, shapes: Shapes) -> None:
        self._phases = program.phases
        self._flow = flow
        self._shapes = shapes
        self._when: dict[FunctionInfo, tuple[list[str], list[str]]] = {}

    def access(self, access: Access) -> model.Access:
        phase, paths = self._of(access.function)
        text = access.expression
        return model.Access(
            function=access.function.id,
            line=access.line,
            phase=phase,
            paths=paths,
            guards=[condition.guard for condition in self._flow.guards(access)],
            expression=text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...",
            shape=self._shape(access),
            kind=access.kind,
        )

    def _of(self, function: FunctionInfo) -> tuple[list[str], list[str]]:
        """When and on which paths a function runs; asked once for each."""
        known = self._when.get(function)
        if known is None:
            known = self._when[function] = (self._phases.phases(function), self._phases.paths(function))
        return known

    def _shape(self, access: Access) -> str | None:
        """The shape on the paths on which it was derived, told apart where they differ."""
        found = {path: self._shapes.shape_at(access, path) for path in sorted(self._shapes.machines)}
        known = {path: shape for path, shape in found.items() if shape is not None}
        if len(set(known.values())) <= 1:
            return next(iter(known.values()), None)
        return "; ".join(f"{path}: {shape}" for path, shape in known.items())
