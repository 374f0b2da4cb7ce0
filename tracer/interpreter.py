"""What the analysis asks of Python's interpreter for a while: no garbage collection, room for deep recursion, and no
interrupt while it forks.
"""

from __future__ import annotations

import gc
import signal
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


@contextmanager
def forking() -> Iterator[None]:
    """An interrupt reaches a whole group of processes. One that was just forked, and has not yet said that it leaves
    interrupts to its parent, would print a traceback of its own; so they are held back, and the fork never sees them.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
