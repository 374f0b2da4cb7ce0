"""``sgltrace ctl``: leaves a request in the trace folder of a running server, and waits until it was taken up."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from sgltrace.errors import InputError, UsageError
from sgltrace.files import write_atomically

from .probe.control import CONTROL, LEVELS
from .processes import is_running
from .trace import Trace, read_trace

WINDOW = "window"
_PATIENCE_S = 5.0
_POLL_S = 0.1


class Request(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``ctl.json`` holds."""

    number: int
    command: str
    steps: int = 0
    when: str | None = None


def steer(folder: Path, command: str, steps: int, when: str | None) -> list[str]:
    """Write the request; a line for each process that took it up. Raises ``UsageError``, ``InputError``."""
    if command not in (*LEVELS, WINDOW):
        raise UsageError(f"ctl {command}: there are {', '.join(LEVELS)} and {WINDOW} N")
    trace = read_trace(folder)
    living = [process.name for process in trace.processes if process.info.attached and is_running(process.name)]
    if not living:
        raise InputError(f"{folder}: no traced process of this run is alive on this machine")
    request = Request(number=_last(folder) + 1, command=command, when=when, steps=steps if command == WINDOW else 0)
    try:
        write_atomically(folder / CONTROL, msgspec.json.encode(request))
    except OSError as error:
        raise InputError(f"{folder / CONTROL}: {error.strerror}") from None
    until = time.monotonic() + _PATIENCE_S
    while True:
        trace = read_trace(folder)
        taken = _taken(trace, living, request.number)
        if len(taken) == len(_running(trace, living)) or time.monotonic() > until:
            break
        time.sleep(_POLL_S)
    what = f"{command} {steps}" if command == WINDOW else command
    lines = [f"rank {rank}: {what}" for rank in taken]
    return lines or [f"{what}: not taken up yet; it is when the next step begins"]


def _running(trace: Trace, living: list[str]) -> list[str]:
    """Of the processes those that run steps: only they look at the file."""
    return [p.rank for p in trace.processes if p.name in living and p.head is not None and p.head.last_step]


def _taken(trace: Trace, living: list[str], number: int) -> list[str]:
    return [p.rank for p in trace.processes if p.name in living and p.info.ctl >= number]


def _last(folder: Path) -> int:
    try:
        return msgspec.json.decode((folder / CONTROL).read_bytes(), type=Request).number
    except (OSError, msgspec.MsgspecError):
        return 0
