"""Room for deep recursion: expressions nest, and modules import one another in long chains."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT = 6000
"""Frames. The readers refuse files that nest beyond what Python compiles; this is above what the rest can need."""


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise the interpreter's limit for a while."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
