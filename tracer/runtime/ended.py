"""How the processes of a run ended: of themselves, by the user, or by a crash."""

from __future__ import annotations

from .processes import is_running
from .trace import ProcessTrace, Trace


def crashed(trace: Trace, process: ProcessTrace) -> bool:
    """Whether the process was ended from outside in a run that did not end well, and not by the user's wish.

    SGLang ends its own schedulers with SIGKILL when all is well.
    """
    head, run = process.head, trace.run
    if head is None or head.state == "ended" or is_running(process.name) or _replaced(trace, process):
        return False
    return run is None or (run.exit_code != 0 and not run.signals)


def how_it_ended(trace: Trace, process: ProcessTrace) -> str:
    """``rank tp0 ended in step 917, exit code 137``; empty where there is nothing to say."""
    head, run = process.head, trace.run
    if head is None or run is None or run.exit_code is None:
        return ""
    where = f"in step {head.last_step}" if head.inside else f"after step {head.last_step}"
    if head.inside and head.mode:
        where += f" ({head.mode}" + (f", batch {head.size})" if head.size >= 0 else ")")
    if crashed(trace, process):
        code = exit_code(trace, process)
        how = f"exit code {code}" if code is not None else f"the command's exit code is {run.exit_code}"
        return f"rank {process.rank} ended {where}, {how}"
    if run.signals and head.inside:
        return f"rank {process.rank} was ended {where} by {run.signals[0]}"
    return ""


def exit_code(trace: Trace, process: ProcessTrace) -> int | None:
    """The process's own exit code, as shells report it; None where nobody saw it."""
    for seen in trace.run.processes if trace.run is not None else ():
        if f"{seen.get('pid')}-{seen.get('start')}" == process.name:
            code = seen.get("exit_code")
            return code if isinstance(code, int) else None
    return None


def _replaced(trace: Trace, process: ProcessTrace) -> bool:
    """Whether another program took the process over by ``exec``."""
    pid, start, *count = process.name.split("-")
    following = f"{pid}-{start}-{int(count[0]) + 1 if count else 1}"
    return any(other.name == following for other in trace.processes)
