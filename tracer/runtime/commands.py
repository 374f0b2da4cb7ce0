"""``sgltrace run``, ``doctor`` and ``show``: parse, call, print."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sgltrace.errors import EXIT_DONE, EXIT_FOUND, UsageError
from sgltrace.terminal import printable

if TYPE_CHECKING:
    from .session import RunOptions, Session

# What does the work is imported where it is used, so that the other commands start fast.

_SIZE = re.compile(r"(\d+)([kMG]?)B?$")
_UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LAUNCH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

_finished: list[Callable[[Session], None]] = []

Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The command that starts the server.")]


def register(app: typer.Typer, finished: Callable[[Session], None] | None = None) -> None:
    """Add the commands to the program. ``finished`` is told of a run that ended, before the program does."""
    if finished is not None:
        _finished.append(finished)
    app.command(context_settings=_LAUNCH)(run)
    app.command(context_settings=_LAUNCH)(doctor)
    app.command()(show)
    app.command()(ctl)


def run(
    command: Command,
    out: Annotated[Path | None, typer.Option("-o", "--output", help="A new folder for the trace.")] = None,
    steps: Annotated[str, typer.Option(metavar="A:B", help="Record steps A to B-1.")] = "",
    every: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Record every Nth step in full. 1: all. 0: as many as 0.5% overhead allows."
        ),
    ] = 0,
    pointers: Annotated[
        bool, typer.Option("--pointers", help="Record data pointers, to see which tensors share storage.")
    ] = False,
    timeline: Annotated[int, typer.Option(min=0, metavar="N", help="Record N steady decode steps with VizTracer.")] = 0,
    calls: Annotated[int, typer.Option(min=0, metavar="N", help="Record who calls whom in N steady decode steps.")] = 0,
    path: Annotated[str, typer.Option(help="Expected path: auto, v1 or v2.")] = "auto",
    max_bytes: Annotated[
        str, typer.Option(help="Maximum size of the trace. The oldest steps are dropped first.")
    ] = "256M",
    probe: Annotated[
        list[str] | None, typer.Option(metavar="module:Class.method", help="One more function to record.")
    ] = None,
    fields: Annotated[
        list[str] | None, typer.Option(help="What to record of the --probe before it: self.x,arg.y,return.z.")
    ] = None,
    plan: Annotated[Path | None, typer.Option(help="A TOML file of more functions to record.")] = None,
    gpu_time: Annotated[
        int, typer.Option(min=0, metavar="N", help="Measure N steady decode steps on the GPU, with CUDA events.")
    ] = 0,
    when: Annotated[
        str,
        typer.Option(metavar="'batch>=8'", help="Open windows, or record steps in full, only at these batch sizes."),
    ] = "",
    run_id: Annotated[str, typer.Option(help="A name shared by all nodes of one run, for `sgltrace merge`.")] = "",
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write the report when COMMAND ends.")] = True,
) -> None:
    """Run COMMAND unchanged and record its decode steps. Exits with COMMAND's exit code."""
    from .session import run as run_session

    options = _options(command, out, steps, every, pointers, timeline, calls, path, max_bytes, probe, fields, plan)
    options.run_id = _run_id(run_id)
    options.probe.gpu_time, options.probe.when = gpu_time, _when(when)
    session = run_session(options)
    for told in _finished if report else ():
        try:
            told(session)
        except Exception as error:  # the command's exit code is passed on, whatever goes wrong here
            if os.environ.get("SGLTRACE_DEBUG"):
                traceback.print_exc()
            typer.echo(f"sgltrace: no report of this run: {type(error).__name__}: {error}", err=True)
    raise typer.Exit(session.exit_code)


def _run_id(text: str) -> str:
    if not re.fullmatch(r"[\w.:-]{0,100}", text):
        raise UsageError(f"--run-id {text}: letters, digits, '.', ':', '_' and '-' only")
    return text


def _when(text: str) -> str:
    from .probe.control import Condition

    try:
        Condition(text)
    except ValueError as error:
        raise UsageError(f"--when: {error}") from None
    return text


def ctl(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The trace folder of a running server.")],
    command: Annotated[str, typer.Argument(metavar="full|light|off|auto|window", help="What to record from now on.")],
    steps: Annotated[int, typer.Argument(min=1, metavar="[N]", help="With window: number of steps.")] = 50,
    when: Annotated[str | None, typer.Option(metavar="'batch>=8'", help="Batch sizes at which windows open.")] = None,
) -> None:
    """Control what a running server records: full, light, off, auto (as started), or a window of N steps in full."""
    from .control import steer

    for line in steer(folder, command, steps, None if when is None else _when(when)):
        print(line)


def _options(
    command: list[str],
    out: Path | None,
    steps: str,
    every: int,
    pointers: bool,
    timeline: int,
    calls: int,
    path: str,
    max_bytes: str,
    probe: list[str] | None,
    fields: list[str] | None,
    plan: Path | None,
) -> RunOptions:
    from .plan import Options, own_site, sites_from_file
    from .selection import span
    from .session import RunOptions

    own = [] if plan is None else sites_from_file(plan)
    given = list(fields or [])
    for function in probe or []:
        own.append(own_site(function, given.pop(0) if given else "args,return"))
    if given:
        raise UsageError(f"--fields {given[0]} has no --probe; give one --probe for each --fields")
    if path not in ("auto", "v1", "v2"):
        raise UsageError(f"--path {path}: choose auto, v1 or v2")
    return RunOptions(
        command=command,
        out=out,
        own_sites=own,
        path=path,
        probe=Options(
            steps=span(steps) if steps else None,
            every=every,
            pointers=pointers,
            timeline=timeline,
            calls=calls,
            max_bytes=_size(max_bytes),
        ),
    )


def _size(text: str) -> int:
    found = _SIZE.match(text)
    size = int(found.group(1)) * _UNITS[found.group(2)] if found else 0
    if size < 1 << 20:
        raise UsageError(f"--max-bytes {text}: give a size of at least 1M, such as 64M or 2G")
    return size


def doctor(command: Command, json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check what `run` would record of COMMAND: which Python, SGLang and functions, and what is in the way."""
    from .doctor import diagnose, report

    diagnosis = diagnose(command)
    if json:
        _print_json(diagnosis)
    else:
        _print_rows(report(diagnosis))
    raise typer.Exit(EXIT_FOUND if diagnosis.problems else EXIT_DONE)


def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A trace folder, finished or still growing.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing as the trace grows.")] = False,
    calls: Annotated[bool, typer.Option("--calls", help="Show the calls of each step and what was recorded.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures, then one JSON object per step.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Show only the figures, not the steps.")] = False,
    steps: Annotated[str, typer.Option(metavar="A:B", help="Show steps A to B-1.")] = "",
    last: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show the last N steps of each rank.")] = None,
    batch: Annotated[str, typer.Option(metavar="N", help="Show steps of batch size N, or N-M.")] = "",
    rank: Annotated[str, typer.Option(help="Show steps of one rank, such as 1 or tp1.")] = "",
    mode: Annotated[str, typer.Option(help="Show steps of one forward mode, such as decode or extend.")] = "",
) -> None:
    """Show a trace: what ran, step times by batch size, and the steps. Steps before a crash stand out."""
    from . import show as shows
    from .selection import select
    from .tables import aggregate_lines
    from .trace import read_trace

    chosen = select(steps, last, batch, rank, mode)
    if follow and chosen != shows.EVERYTHING:
        raise UsageError("--follow shows all steps as they come; leave it out, or --steps and the like")
    trace = read_trace(folder)
    if json:
        if summary:
            _print_json(shows.overview(trace, chosen))
            return
        for row in shows.as_json(trace, chosen):
            print(msgspec.json.encode(row).decode())
        return
    chosen.ranks(trace)
    _print_rows(shows.summary(trace))
    if follow:
        shows.follow(folder, lambda line: print(printable(line)))
        return
    table = list(aggregate_lines(shows.figures(trace, chosen)))
    print(*([""] if table else []), *table, sep="\n")
    if summary:
        return
    print()
    for line in shows.lines(trace, calls, chosen):
        print(printable(line))


def _print_json(data: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def _print_rows(rows: list[tuple[str, str]]) -> None:
    """Labels and texts in two columns; a label that repeats is shown once."""
    width = max((len(label) for label, _ in rows), default=0)
    last = None
    for label, text in rows:
        print(printable(f"{'' if label == last else label:<{width}}  {text}"))
        last = label
