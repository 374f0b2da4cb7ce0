"""Field flow: who writes and who reads each field of the classes that carry a step's state."""

from __future__ import annotations

from sgltrace.index.fields.access import READS, WRITES, Access, FieldUses, Parameter, Returned, Source
from sgltrace.index.fields.flow import FieldFlow, field_flow

__all__ = ["READS", "WRITES", "Access", "FieldFlow", "FieldUses", "Parameter", "Returned", "Source", "field_flow"]
