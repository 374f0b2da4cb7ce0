"""Lays the records of a run over the VizTracer window of ``--timeline``: shapes as arguments, batch size, accept length
and KV slots as counters. Both clocks are the monotonic one, so nothing has to be aligned.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .perfetto import step_events
from .steps import steps
from .trace import ProcessTrace, Trace

RAW = ".timeline.json"
MARK = "sgltrace step"
_OWN = ("/sgltrace_probe/", "sgltrace_wrapper")
_MAX_BYTES = 512 << 20


def merge_timelines(trace: Trace) -> list[Path]:
    """Turn each process's raw timeline into ``timeline-<rank>.json``; returns those files. Raises ``OSError``.

    A raw file that cannot be read stays where it is and is noted in ``trace.problems``.
    """
    made = []
    for process in trace.processes:
        raw = trace.folder / (process.name + RAW)
        if not raw.is_file():
            continue
        try:
            if raw.stat().st_size > _MAX_BYTES:
                raise ValueError(f"larger than {_MAX_BYTES >> 20} MB")
            timeline = json.loads(raw.read_bytes())
            events = [event for event in timeline["traceEvents"] if not _is_own(event)]
            first, last = _window(events)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            trace.problems.append(f"{raw.name}: {error}")
            continue
        timeline["traceEvents"] = [*events, *_records(trace, process, first, last)]
        target = trace.folder / f"timeline-{process.rank.replace(' ', '-')}.json"
        target.write_text(json.dumps(timeline, separators=(",", ":")), encoding="utf-8")
        raw.unlink()
        made.append(target)
    return made


def _is_own(event: dict[str, Any]) -> bool:
    """Whether it is a call of the probe's own functions."""
    name = str(event.get("name", ""))
    return any(part in name for part in _OWN)


def _window(events: list[dict[str, Any]]) -> tuple[int, int]:
    marked = [int(event["args"]["step"]) for event in events if event.get("name") == MARK]
    if not marked:
        raise ValueError("no step in it")
    return min(marked), max(marked)


def _records(trace: Trace, process: ProcessTrace, first: int, last: int) -> list[dict[str, Any]]:
    pid = process.head.pid if process.head is not None else process.info.pid
    names = {0: "sgltrace: steps", 1: "sgltrace: calls and shapes"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
        for tid, name in names.items()
    ]
    for step in steps(trace, process):
        if first <= step.number <= last:
            events += step_events(trace, pid, step, base=0)
    return events
