"""Facts, resolution and call graph. ``build`` makes the index, ``analyse`` the resolved program behind it."""

from __future__ import annotations

from sgltrace.index.program import Program
from sgltrace.index.program.build import IndexOptions, analyse, build, to_index

__all__ = ["IndexOptions", "Program", "analyse", "build", "to_index"]
