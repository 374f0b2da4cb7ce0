"""Whether LibCST's parser comes back from a source that ``ast`` could not vouch for.

The parser is native code: where a source nests too deeply it overflows the stack, and the process is gone; and nothing
can interrupt it. So a source that is not known to be harmless is first parsed by a process that may be lost.
"""

from __future__ import annotations

import multiprocessing
import signal
from typing import Any

from sgltrace.interpreter import forking

LONGEST_S = 10
"""Of processor time, for a file; the largest of SGLang takes less than one second."""
_WAIT_S = 10 * LONGEST_S
"""Where the system knows no limit of processor time, or the machine is very busy."""
_ENDED_BY_LIMIT = {-getattr(signal, name) for name in ("SIGXCPU", "SIGKILL") if hasattr(signal, name)}
"""Exit codes."""


def why_not_parsed(source: str) -> str | None:
    """Why LibCST must not be given this source here: it killed the process that tried, or took too long."""
    process = _context().Process(target=_try, args=(source,), daemon=False)
    with forking():
        process.start()
    process.join(_WAIT_S)
    late = process.is_alive()
    if late:
        process.kill()
        process.join()
    if late or process.exitcode in _ENDED_BY_LIMIT:
        return f"LibCST's parser does not come to an end with it in {LONGEST_S} seconds"
    if process.exitcode != 0:
        return "LibCST's parser crashes on it; it is nested too deeply"
    return None


def _context() -> Any:
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("fork" if "fork" in methods else None)


def _try(source: str) -> None:
    import contextlib
    import faulthandler
    import os

    import libcst as cst

    faulthandler.disable()  # a crash is an answer here
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST_S, LONGEST_S + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(Exception):  # an error is one, too, and told by who parses it then
        cst.parse_module(source)
    os._exit(0)
