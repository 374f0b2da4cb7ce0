"""The resolved program: its parts (scheduler, workers), when each function runs, and what an index tells of it."""

from __future__ import annotations

from sgltrace.index.program.program import Program

__all__ = ["Program"]
