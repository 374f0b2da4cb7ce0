"""What the analysis asks of Python's interpreter for a while: no garbage collection, and room for deep recursion."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

RECURSION_LIMIT = 6000
"""Frames. The readers refuse files that nest beyond what Python compiles; this is above what the rest can need."""


@contextmanager
def no_collection() -> Iterator[None]:
    """The analysis makes millions of small objects and drops few: searching them for cycles takes a third
    of the time.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Raise the interpreter's limit: expressions nest, and modules import one another in long chains."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
