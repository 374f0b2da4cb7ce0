"""What is done once the traced command has ended: name who did not attach, trim, lay timelines over, and sum up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sgltrace.errors import InputError

from .ended import how_it_ended
from .processes import Watcher, redacted
from .status import Progress, size_text
from .timeline import merge_timelines
from .trace import Trace, read_trace
from .trim import trim

MAX_NAMED = 20


def not_attached(watcher: Watcher) -> tuple[list[dict[str, Any]], list[str]]:
    """The Python processes that were seen, for ``run.json``, and a line for each that the probe is not in."""
    processes = []
    lines = []
    for process in watcher.python():
        why = watcher.why_not_attached(process)
        command = redacted(process.command)
        processes.append(
            {
                "pid": process.pid,
                "start": process.start,
                "parent": process.parent,
                "command": command,
                "not_attached": why,
                "exit_code": process.exit_code,
            }
        )
        if why is not None:
            lines.append(f"process {process.pid} ({' '.join(command)[:100]}) did not attach: {why}")
    if len(lines) > MAX_NAMED:
        lines[MAX_NAMED:] = [f"{len(lines) - MAX_NAMED} more processes did not attach; run.json names them all"]
    return processes, lines


def conclude(folder: Path) -> tuple[Trace | None, list[str]]:
    """Trim the trace and merge its timelines; returns it with what the user must know. Nothing is an error here."""
    trim(folder)
    try:
        trace = read_trace(folder)
        merge_timelines(trace)
    except (InputError, OSError) as error:
        return None, [f"the trace cannot be read back: {error}"]
    notes = list(trace.problems)
    for process in trace.processes:
        info = process.info
        notes += [f"rank {process.rank}: {message}" for message in info.messages]
        for missing in info.missing:
            site = trace.site(int(missing.get("site", 0)))
            name = site.function if site is not None else "a site"
            notes.append(f"rank {process.rank}: {name} is not recorded: {missing.get('why')}")
        notes += _other_source(trace, info.sources)
    return trace, list(dict.fromkeys(notes))


def _other_source(trace: Trace, sources: dict[str, str | None]) -> list[str]:
    """Whether the process imported another SGLang than the one that the plan was made from."""
    root = trace.plan.root
    if root is None:
        return []
    prefix = trace.plan.package + "."
    planned = Path(root).resolve()
    for module, file in sorted(sources.items()):
        if module.startswith(prefix) and file is not None and not Path(file).resolve().is_relative_to(planned):
            return [f"the plan was made from {root}, but {module} was imported from {file}"]
    return []


def summary(folder: Path, seen: Progress, trace: Trace | None) -> list[str]:
    """The lines that end a run."""
    if not seen.records:
        return [f"nothing was recorded ({seen.attached} processes attached); see {folder}"]
    lines = [
        f"{seen.steps} steps, {seen.records} records ({size_text(seen.size)}) of {seen.recording} "
        f"process{'es' if seen.recording != 1 else ''} in {folder}"
    ]
    if trace is not None:
        lines += [text for process in trace.recording() if (text := how_it_ended(trace, process))]
        if trace.run is not None and trace.run.signals and trace.run.exit_code is not None:
            lines.append(f"ended by {trace.run.signals[0]}; the command's exit code is {trace.run.exit_code}")
    if seen.dropped_records:
        lines.append(f"the oldest {seen.dropped_records} records were dropped to keep to --max-bytes")
    if trace is not None:
        lines += _pace(trace)
        lines += [f"timeline: {path}" for path in sorted(folder.glob("timeline-*.json"))]
    lines.append(f"look at it: sgltrace show {folder}")
    return lines


def _pace(trace: Trace) -> list[str]:
    """How much was recorded, and what that took by the recorder's own account."""
    heads = [p.head for p in trace.recording() if p.head is not None]
    shares = [head.share for head in heads if head.share is not None]
    if not shares:
        return []
    every = max(head.every for head in heads)
    light = max(head.light_every for head in heads)
    text = f"recording took {max(shares):.1%} of the time by its own account"
    if every > 1:
        text += f"; at the end 1 step in {every} was recorded in full"
        text += f" and 1 in {light} lightly, all in the histogram" if light > 1 else ", the others lightly"
        text += " (--every 1: all in full)"
    return [text]
