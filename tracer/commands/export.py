"""``sgltrace export``: what a workspace or a trace holds, in other formats."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sgltrace.commands.query import WorkspaceOption
from sgltrace.commands.runs import joined_runs, kept_experiments
from sgltrace.errors import InputError, UsageError
from sgltrace.workspace import DEFAULT, Workspace

PERFETTO = "perfetto"
PARQUET = "parquet"
HELP = (
    "sarif, jsonl: coupling points; graphml, dot: the call graph; csv, parquet: observed shapes; markdown: a summary; "
    "perfetto: a timeline of a run. parquet with --run: all steps of the runs, partitioned."
)


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(export)


def export(
    form: Annotated[str, typer.Argument(metavar="FORMAT", help=HELP)] = "",
    perfetto: Annotated[bool, typer.Option("--perfetto", help="The same as the format perfetto.")] = False,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            "--run", metavar="DIR", help="A trace: for a timeline (the last one if left out), or for parquet, several."
        ),
    ] = None,
    workspace: WorkspaceOption = Path(DEFAULT),
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write (a folder for parquet of runs); else standard output."),
    ] = None,
) -> None:
    """Export coupling points, the call graph, observed shapes or a timeline."""
    if form == PARQUET and run and not perfetto:
        _dataset(run, output)
        return
    if form not in ("", PERFETTO) and (perfetto or run):
        raise UsageError(f"--perfetto and --run are of timelines; leave out {form}, or them")
    if perfetto or form == PERFETTO:
        if run and len(run) > 1:
            raise UsageError("a timeline is of one run; leave out the other --run")
        _timeline(run[0] if run else None, workspace, output)
        return
    if not form:
        raise UsageError("name a FORMAT, such as sarif; `sgltrace export --help` lists them")
    from sgltrace.reports.exports import export as exported

    found = Workspace.open(workspace)
    index = found.load_index()
    data = exported(form, index, joined_runs(found, index), kept_experiments(found, index))
    if output is None:
        sys.stdout.buffer.write(data)
        return
    try:
        output.write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}; name another file") from error


def _dataset(runs: list[Path], output: Path | None) -> None:
    from sgltrace.insight.dataset import write_dataset
    from sgltrace.insight.figures import names

    if output is None:
        raise UsageError("parquet with --run writes a folder of files; name it with -o")
    counts = write_dataset(runs, names(runs), output)
    print(f"{output}: {', '.join(f'{count} rows of {table}' for table, count in counts.items())}")


def _timeline(run: Path | None, workspace: Path, output: Path | None) -> None:
    from sgltrace.runtime import export_perfetto, read_trace

    if run is None:
        runs = Workspace.open(workspace).runs()
        if not runs:
            raise UsageError(f"{workspace} has no run; name one with --run DIR")
        run = runs[-1]
    target = output or Path(f"{run.name}.perfetto.json")
    if output is None and target.exists():
        raise InputError(f"{target} exists; name the file to write with -o")
    events = export_perfetto(read_trace(run), target)
    print(f"{target}: {events} events; open it at ui.perfetto.dev or with vizviewer")
