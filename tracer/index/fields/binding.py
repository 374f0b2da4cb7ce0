"""Binding time: the phase in which a field's value becomes fixed.

A value that is copied is as old as what it is copied from: ``batch.topk = self.topk`` in a step is fixed when the
process starts, if ``self.topk`` is. A value that is computed is fixed where the computation runs, the earliest time
it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.model import PHASES

if TYPE_CHECKING:
    from sgltrace.index.fields.access import Access, FieldUses
    from sgltrace.index.fields.flow import FieldFlow

UNKNOWN = len(PHASES)


class BindingTimes:
    """Answers for one field flow; each answer is kept."""

    def __init__(self, flow: FieldFlow) -> None:
        self._flow = flow
        self._fields: dict[FieldUses, int] = {}
        self._accesses: dict[Access, int] = {}

    def of_write(self, access: Access) -> str | None:
        """The phase that fixes what a write puts there; None where the function is in no phase."""
        return _name(self._write(access))

    def of_field(self, uses: FieldUses) -> str | None:
        """The phase that fixes the field at the latest: that of its latest write, defaults left aside."""
        return _name(self._field(uses))

    def _field(self, uses: FieldUses) -> int:
        known = self._fields.get(uses)
        if known is None:
            self._fields[uses] = 0  # a field that is written from itself is as old as its other writes
            written = [self._write(a) for a in uses.writes if a.kind not in ("default", "delete")]
            known = self._fields[uses] = max((w for w in written if w != UNKNOWN), default=UNKNOWN)
        return known

    def _write(self, access: Access) -> int:
        known = self._accesses.get(access)
        if known is None:
            self._accesses[access] = UNKNOWN
            known = self._accesses[access] = self._earliest(access)
        return known

    def _earliest(self, access: Access) -> int:
        here = self._runs(access)
        if access.kind in ("in-place", "kernel", "augment", "delete") or access.value is None:
            return here
        if isinstance(access.value, s.Const):
            return here
        sources = self._flow.origins(access) if access.same_as and not access.made_of else []
        fields = {(source.cls, source.field) for source in sources}
        if not fields:
            return here
        ages = [self._field(self._flow.fields[key]) for key in sorted(fields, key=lambda k: (k[0].id, k[1]))]
        known = [age for age in ages if age != UNKNOWN]
        return min(here, max(known)) if known else here

    def _runs(self, access: Access) -> int:
        phases = self._flow.program.phases.phases(access.function)
        return min((PHASES.index(phase) for phase in phases), default=UNKNOWN)


def _name(phase: int) -> str | None:
    return PHASES[phase] if phase != UNKNOWN else None
