"""``sgltrace show``: the steps of a trace as lines for people or as JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .aggregate import Aggregate, Aggregator, aggregator
from .ended import crashed, how_it_ended
from .perfetto import flat
from .selection import Selection
from .step import OFF, Call, GpuSpan, Step
from .steps import steps
from .trace import ProcessTrace, Trace, read_trace

CRASH_STEPS = 3
EVERYTHING = Selection()
_POLL_S = 0.5


def summary(trace: Trace) -> list[tuple[str, str]]:
    """What the trace is, as labels and texts."""
    rows: list[tuple[str, str]] = []
    run = trace.run
    if run is not None:
        rows.append(("command", " ".join(run.command)))
        rows.append(("SGLang", f"{run.version or '?'}, {run.package_root or 'not found'}"))
        rows.append(
            ("ended", "not yet, or sgltrace was killed" if run.exit_code is None else f"exit code {run.exit_code}")
        )
    rows += [("configuration", f"{name} = {value}") for name, value in trace.config().items() if value is not None]
    for process in trace.recording():
        rows.append((f"rank {process.rank}", _process(process)))
    notes = [*trace.problems, *(run.problems if run is not None else ())]
    notes += [f"rank {process.rank}: {text}" for process in trace.processes for text in process.info.messages]
    return rows + [("note", text) for text in dict.fromkeys(notes)]  # a run that ended has its messages noted


def _process(process: ProcessTrace) -> str:
    head = process.head
    if head is None:
        return "its head is lost"
    text = f"pid {head.pid}, {head.last_step} steps, {head.records} records"
    if head.ns_per_record is not None:
        text += f", {head.ns_per_record / 1000:.1f} microseconds each" + (" (C)" if process.info.fast else "")
    if head.cold:
        text += f" and {head.cold_ns / head.cold / 1000:.0f} for {head.cold} with something new"
    if head.dropped_records:
        text += f", the oldest {head.dropped_records} dropped for --max-bytes"
    if head.not_taken:
        text += f", {head.not_taken} not taken"
    return text + (f", stopped: {head.reason}" if head.reason else "")


def lines(trace: Trace, detail: bool = False, selection: Selection = EVERYTHING) -> Iterator[str]:
    """One line a step and rank; with ``detail`` one for each call too. The last before a crash are marked."""
    for process in selection.ranks(trace):
        ended = crashed(trace, process) and selection.upto is None and not selection.narrows
        held: list[Step] = []
        # The last step before a crash is shown in detail, and which one that is shows at the end.
        for step in selection.steps(trace, process, detail or ended):
            if not (detail or step.ran or (ended and any(call.end_ns is None for call in step.calls))):
                continue  # calls outside of any step: before the first, after the last
            held.append(step)
            if len(held) > CRASH_STEPS:
                yield from _step_lines(trace, held.pop(0), detail, mark=False)
        if ended:
            yield f"--- rank {process.rank} ended here; its last {len(held)} steps:"
        for at, step in enumerate(held):
            yield from _step_lines(trace, step, detail or (ended and at == len(held) - 1), mark=ended)
        loss = process.loss
        if loss.any or loss.unfinished:
            yield (
                f"--- rank {process.rank}: lost {loss.bytes} bytes in {loss.gaps} places, {loss.missing_segments} "
                f"segments, the values of {loss.undefined} records; {loss.unfinished} records were being written"
            )
            yield from (f"    {why}" for why in loss.why)


def crash(trace: Trace, process: ProcessTrace) -> list[tuple[str, list[str]]]:
    """Why a process ended that should not have, and the lines of its last steps; empty where it ended well."""
    if not crashed(trace, process):
        return []
    last: list[Step] = []
    for step in steps(trace, process):
        last = [*last[1 - CRASH_STEPS :], step]
    why = how_it_ended(trace, process) or "the run has no end: sgltrace was ended too"
    texts = [line for at, step in enumerate(last) for line in _step_lines(trace, step, at == len(last) - 1, False)]
    return [(why, texts)]


def _step_lines(trace: Trace, step: Step, detail: bool, mark: bool) -> Iterator[str]:
    yield f"{'>' if mark else ' '} {step_text(step)}"
    if detail:
        for call in step.calls:
            yield from _call_lines(trace, call)


def step_text(step: Step) -> str:
    """A step in a line."""
    parts = [f"{step.rank} {step.number:>6} {step.mode or '-':<14}"]
    if step.batch_size is not None:
        parts.append(f"bs {step.batch_size}" + (f"/{step.padded}" if step.padded is not None else ""))
    parts.append(step.how)
    if step.speculation == OFF:
        parts.append("off")
    parts.append(_times(step))
    if step.gpu_ns is not None:
        parts.append(f"GPU {step.gpu_ns / 1e6:.2f} ms")
    if step.window:
        parts.append(f"window of {step.window}")
    if step.accept_lens:
        parts.append(f"accepted {step.accept_lens}")
    if step.allocated:
        parts.append(f"allocated {step.allocated} committed {step.committed}")
    return "  ".join(part for part in parts if part)


def _times(step: Step) -> str:
    """The period and the host's part of it."""
    if not step.ran:
        return "no batch ran" if step.number else ""
    if step.host_ns is None:
        return "not finished"
    host = f"host {step.host_ns / 1e6:.2f} ms"
    return host if step.period_ns is None else f"period {step.period_ns / 1e6:.2f} ms  {host}"


def _call_lines(trace: Trace, call: Call) -> Iterator[str]:
    site = trace.site(call.site)
    name = site.function if site is not None else f"site {call.site}"
    end = "did not return" if call.end_ns is None else f"{(call.end_ns - call.start_ns) / 1000:.0f} us"
    raised = f" raised {call.raised}" if call.raised else ""
    yield f"      {'  ' * call.depth}{name} [{call.how}] {end}{raised}"
    for side, record in (("before", call.before), ("after", call.after)):
        if record is not None:
            for path, text in flat(record.values()):
                yield f"      {'  ' * call.depth}    {side} {path} = {text}"


def as_json(trace: Trace, selection: Selection = EVERYTHING) -> Iterator[dict[str, Any]]:
    """One object with the ``aggregates``, whose ``step`` is null; then one for each step and rank, with its calls and
    what was recorded of them.
    """
    yield {"step": None, "aggregates": figures(trace, selection)}
    for process in selection.ranks(trace):
        for step in selection.steps(trace, process, detail=True):
            yield {
                "rank": step.rank,
                "step": step.number,
                "mode": step.mode,
                "speculation": step.speculation,
                "batch_size": step.batch_size,
                "padded": step.padded,
                "graph": step.graph,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "period_ns": step.period_ns,
                "host_ns": step.host_ns,
                "accept_lens": step.accept_lens,
                "allocated": step.allocated,
                "committed": step.committed,
                "slots": step.slots,
                "wait_ns": step.wait_ns,
                "compiled": step.compiled,
                "window": step.window,
                "gpu": [_span_json(trace, span) for span in step.gpu],
                "complete": step.complete,
                "calls": [_call_json(trace, call) for call in step.calls],
            }


def figures(trace: Trace, selection: Selection = EVERYTHING) -> list[Aggregate]:
    """The aggregates of what is selected; ``last`` chooses among lines alone."""
    rows = []
    for process in selection.ranks(trace):
        whole = selection.first is None and selection.upto is None
        taken = aggregator(process) if whole else Aggregator(process.rank)
        for step in selection.in_span(steps(trace, process, detail=False)):
            taken.add(step)
        rows += [row for row in taken.aggregates() if selection.shows(row.mode, row.batch)]
    return rows


def overview(trace: Trace, selection: Selection = EVERYTHING) -> dict[str, Any]:
    """What `show --summary --json` prints: what was run, and the figures."""
    run = trace.run
    return {
        "command": list(run.command) if run is not None else [],
        "release": run.version if run is not None else None,
        "exit_code": run.exit_code if run is not None else None,
        "configuration": trace.config(),
        "ranks": [
            {
                "rank": process.rank,
                "pid": process.head.pid if process.head is not None else process.info.pid,
                "steps": process.head.last_step if process.head is not None else None,
                "records": process.head.records if process.head is not None else None,
            }
            for process in selection.ranks(trace)
        ],
        "aggregates": figures(trace, selection),
        "notes": [text for label, text in summary(trace) if label == "note"],
    }


def _span_json(trace: Trace, span: GpuSpan) -> dict[str, Any]:
    site = trace.site(span.site)
    return {
        "function": site.function if site is not None else None,
        "offset_ns": span.offset_ns,
        "elapsed_ns": span.elapsed_ns,
        "padded": span.padded,
    }


def _call_json(trace: Trace, call: Call) -> dict[str, Any]:
    site = trace.site(call.site)
    return {
        "function": site.function if site is not None else None,
        "stage": site.stage if site is not None else None,
        "phase": call.how,
        "thread": call.thread,
        "depth": call.depth,
        "start_ns": call.start_ns,
        "end_ns": call.end_ns,
        "raised": call.raised,
        "padded": call.padded,
        "before": dict(flat(call.before.values())) if call.before is not None else None,
        "after": dict(flat(call.after.values())) if call.after is not None else None,
    }


def follow(folder: Path, emit: Callable[[str], None]) -> None:
    """Print steps as they come, until the run has ended; then the summary."""
    shown: dict[str, int] = {}
    while True:
        trace = read_trace(folder)
        ended = trace.run is None or trace.run.exit_code is not None
        for process in trace.recording():
            if process.name in shown:
                process.segments = process.segments[-2:]  # what is new is at the end
            fresh = steps(trace, process, detail=False)
            done = [step for step in fresh if step.ran and step.number > shown.get(process.name, 0)]
            if not ended:
                done = done[:-2]  # the newest may still change
            for step in done:
                for text in _step_lines(trace, step, detail=False, mark=False):
                    emit(text)
                shown[process.name] = step.number
        if ended:
            return
        time.sleep(_POLL_S)
