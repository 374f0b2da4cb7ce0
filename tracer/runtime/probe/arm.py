"""Starts the probe in a process. Kept light: most Python processes never import SGLang."""

# pathlib is not loaded in every process.
# ruff: noqa: PTH118, PTH123
from __future__ import annotations

import os
import sys
import types

from .finder import ImportHook
from .recorder import Recorder, process_name

FOLDER = "SGLTRACE_DIR"
_started: Recorder | None = None


def start(door: str) -> None:
    """Put the import hook in place, and leave a head in the trace folder as the mark that this process attached.

    What must be known before anything heavy is imported is in ``modules.txt``: the first line bounds the trace, the
    others name the modules that hold sites.
    """
    global _started
    if _started is not None:
        return
    folder = os.environ[FOLDER]
    with open(os.path.join(folder, "modules.txt"), encoding="utf-8") as file:
        limits, *modules = file.read().split("\n")
    max_bytes, segment_bytes = (int(n) for n in limits.split())
    _started = recorder = Recorder(folder, process_name(folder), max_bytes, segment_bytes)
    os.register_at_fork(after_in_child=recorder.abandon)
    _install(folder, recorder, frozenset(modules), door)


def _install(folder: str, recorder: Recorder, modules: frozenset[str], door: str) -> None:
    attachment: list[object] = []

    def imported(module: types.ModuleType) -> None:
        try:
            from .attach import Attachment

            if not attachment:
                attachment.append(Attachment(folder, recorder, door))
            held = attachment[0]
            assert isinstance(held, Attachment)
            held.imported(module)
        except Exception as error:
            recorder.stop(f"{type(error).__name__}: {error}")

    sys.meta_path.insert(0, ImportHook(modules, imported))
    for name in sorted(modules):
        module = sys.modules.get(name)
        if module is not None:
            imported(module)
