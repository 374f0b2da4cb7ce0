"""Coupling points, the contract of an off step, and the off steps that a release already has."""

from __future__ import annotations

from sgltrace.coupling.derive import Coupling, derive

__all__ = ["Coupling", "derive"]
