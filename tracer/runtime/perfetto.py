"""A timeline of a whole run from its own records, as Chrome trace JSON that Perfetto and ``vizviewer`` open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from sgltrace.errors import InputError

from .decode import Record
from .observations import Enumerated, ListValue, ObjectValue, TensorValue, Value
from .probe import wire
from .step import Call, GpuSpan, Step
from .steps import steps
from .trace import Trace

MAX_ARGUMENTS = 60
GPU = 70_000
"""The track of what ran on the device; threads are numbered below it."""


def export_perfetto(trace: Trace, path: Path) -> int:
    """Write the timeline of ``trace`` to ``path`` and return the number of events. Raises ``InputError``.

    Each rank is a process, its steps and calls are slices with the shapes as arguments; batch size, accept length and
    KV slots are counters. Times are microseconds since the run was started.
    """
    count = 0
    try:
        with path.open("w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit":"ms","traceEvents":[')
            for event in _events(trace):
                file.write(",\n" if count else "\n")
                file.write(json.dumps(event, separators=(",", ":")))
                count += 1
            file.write("\n]}\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name a file that can be written") from None
    return count


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    base = trace.run.monotonic_ns if trace.run is not None else None
    for number, process in enumerate(trace.recording(), 1):
        yield {"ph": "M", "pid": number, "tid": 0, "name": "process_name", "args": {"name": f"rank {process.rank}"}}
        yield {"ph": "M", "pid": number, "tid": 0, "name": "process_sort_index", "args": {"sort_index": number}}
        yield {"ph": "M", "pid": number, "tid": 0, "name": "thread_name", "args": {"name": "steps"}}
        named: set[int] = set()
        clock = _DeviceClock(step for step in steps(trace, process, detail=False) if step.gpu)
        if clock.windows:
            yield {"ph": "M", "pid": number, "tid": GPU, "name": "thread_name", "args": {"name": "GPU"}}
        for step in steps(trace, process):
            if base is None and step.calls:
                base = step.calls[0].start_ns
            for call in step.calls:
                if call.thread not in named:
                    named.add(call.thread)
                    yield {
                        "ph": "M",
                        "pid": number,
                        "tid": call.thread + 1,
                        "name": "thread_name",
                        "args": {"name": f"calls, thread {call.thread}"},
                    }
            yield from step_events(trace, number, step, base or 0)
            yield from (_gpu_event(trace, number, step, span, clock, base or 0) for span in step.gpu)


class _DeviceClock:
    """Where the device's clock lies on the host's, for each window of ``--gpu-time``.

    Nothing runs on the device before the host has queued it: the window's first event was no earlier than any span's
    queueing less its offset, and the latest of these is when it was.
    """

    def __init__(self, found: Iterable[Step]) -> None:
        self.windows: list[list[int]] = []
        """For each window its first step and when its first event was, on the host's clock (ns)."""
        last = 0
        for step in found:
            for span in step.gpu:
                if not self.windows or span.offset_ns < last - _BACK_NS:
                    self.windows.append([step.number, span.queued_ns - span.offset_ns])
                self.windows[-1][1] = max(self.windows[-1][1], span.queued_ns - span.offset_ns)
                last = span.offset_ns

    def starts(self, step: Step, span: GpuSpan) -> int:
        """When a span began, on the host's clock (ns)."""
        known = [start for first, start in self.windows if first <= step.number]
        return (known[-1] if known else span.queued_ns) + span.offset_ns


_BACK_NS = 1_000_000_000  # offsets that go back by more belong to another window


def _gpu_event(trace: Trace, pid: int, step: Step, span: GpuSpan, clock: _DeviceClock, base: int) -> dict[str, Any]:
    site = trace.site(span.site)
    name = f"{step.mode or 'step'} {step.number}" if span.padded is None else f"replay of {span.padded}"
    return {
        "ph": "X",
        "pid": pid,
        "tid": GPU,
        "name": name,
        "cat": "gpu",
        "ts": (clock.starts(step, span) - base) / 1000,
        "dur": span.elapsed_ns / 1000,
        "args": {"step": step.number, "function": site.qualname if site is not None else None},
    }


def step_events(trace: Trace, pid: int, step: Step, base: int) -> Iterator[dict[str, Any]]:
    """The events of a step, in microseconds after ``base`` (monotonic ns): slices on thread 0 and ``1 + thread``."""
    if step.number and step.start_ns is not None:
        start = (step.start_ns - base) / 1000
        end = step.end_ns if step.end_ns is not None else max(c.end_ns or c.start_ns for c in step.calls)
        name = f"{step.mode or 'step'} {step.number}" + ("" if step.complete else " (unfinished)")
        yield {
            "ph": "X",
            "pid": pid,
            "tid": 0,
            "name": name,
            "cat": "step",
            "ts": start,
            "dur": (end - step.start_ns) / 1000,
            "args": {"batch size": step.batch_size, "padded": step.padded, "accept lengths": step.accept_lens},
        }
        if step.batch_size is not None:
            yield _counter(
                pid, "batch size", start, {"live": step.batch_size, "padded": step.padded or step.batch_size}
            )
        if step.accept_lens:
            yield _counter(pid, "accept length", start, {"mean": sum(step.accept_lens) / len(step.accept_lens)})
        if step.allocated and step.committed:
            yield _counter(pid, "KV slots", start, {"allocated": sum(step.allocated), "committed": sum(step.committed)})
    for call in step.calls:
        yield _call_event(trace, pid, call, base)


def _call_event(trace: Trace, pid: int, call: Call, base: int) -> dict[str, Any]:
    site = trace.site(call.site)
    name = site.qualname if site is not None else f"site {call.site}"
    end = call.end_ns if call.end_ns is not None else call.start_ns
    arguments: dict[str, Any] = {"step": call.step, "phase": wire.PHASE_NAMES[call.phase]}
    if site is not None:
        arguments["module"], arguments["stage"] = site.module, site.stage
    if call.raised is not None:
        arguments["raised"] = call.raised
    for side, record in (("before", call.before), ("after", call.after)):
        arguments.update(_arguments(side, record))
    return {
        "ph": "X",
        "pid": pid,
        "tid": call.thread + 1,
        "name": name,
        "cat": wire.PHASE_NAMES[call.phase],
        "ts": (call.start_ns - base) / 1000,
        "dur": (end - call.start_ns) / 1000,
        "args": arguments,
    }


def _counter(pid: int, name: str, at: float, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": pid, "name": name, "ts": at, "args": values}


def _arguments(side: str, record: Record | None) -> dict[str, Any]:
    if record is None:
        return {}
    shown: dict[str, Any] = {}
    for path, text in flat(record.values()):
        if len(shown) >= MAX_ARGUMENTS:
            break
        shown[f"{side} {path}"] = text
    return shown


def flat(values: dict[str, Value], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every recorded value with its path, as text; what is None or opaque is left out."""
    for name, value in values.items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, TensorValue):
            yield path, value.text()
        elif isinstance(value, ObjectValue):
            yield from flat(value.fields, path)
        elif isinstance(value, ListValue):
            yield path, str(list(value.values)) if value.values is not None else f"{value.length} elements"
            if value.elements is not None:
                yield from flat(value.elements.fields, path)
        elif isinstance(value, Enumerated):
            yield path, value.name
        elif isinstance(value, (bool, int)):
            yield path, str(value)
