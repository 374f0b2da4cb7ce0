"""The second door: SGLang's own plugins (entry point group ``sglang.srt.plugins``), for processes in which another
``sitecustomize`` came first or Python ran with ``-S``. Does nothing where the first door attached.
"""

from __future__ import annotations

import contextlib


def load() -> None:
    """Called by SGLang before it builds the engine or a scheduler."""
    with contextlib.suppress(Exception):
        from . import arm

        arm.start("plugin")
