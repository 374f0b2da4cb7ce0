"""Recorded runs in a workspace: joined to its index for the report, and added once `sgltrace run` has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from sgltrace.errors import InputError, SgltraceError
from sgltrace.progress import progress_for_user
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.observed import Run
    from sgltrace.model import Index
    from sgltrace.runtime import Session
    from sgltrace.whatif.model import Experiment


def joined_runs(workspace: Workspace, index: Index | None = None) -> list[Run]:
    """The workspace's runs, each joined to its index. One that cannot be read is told and left out."""
    folders = workspace.runs()
    if not folders:
        return []
    from sgltrace.insight.join import join
    from sgltrace.runtime import read_trace

    made = index or workspace.load_index()
    runs = []
    for folder in folders:
        try:
            runs.append(join(read_trace(folder), made, folder.name))
        except InputError as error:
            typer.echo(f"sgltrace: a run is left out: {error}", err=True)
    return runs


def kept_experiments(workspace: Workspace, index: Index) -> list[Experiment]:
    """The workspace's experiments of its release. One of another release, or that cannot be read, is told."""
    files = workspace.experiments()
    if not files:
        return []
    from sgltrace.whatif.model import read

    out = []
    for file in files:
        try:
            found = read(file)
        except InputError as error:
            typer.echo(f"sgltrace: an experiment is left out: {error}", err=True)
            continue
        if found.release == index.source.version:
            out.append(found)
        else:
            why = f"it was run on {found.release}, and this index is of {index.source.version}"
            typer.echo(f"sgltrace: {file} is left out: {why}", err=True)
    return out


def check_experiment(file: Path) -> None:
    """Raise InputError for what is no kept experiment."""
    from sgltrace.whatif.model import read

    read(file)


def check_trace(folder: Path) -> None:
    """Raise InputError for what is no trace."""
    from sgltrace.runtime import read_trace

    read_trace(folder)


def report_of_run(session: Session) -> None:
    """Index the SGLang that a run used, unless that is done, and write the report with the run in it.

    The run is over, and its exit code is the command's: whatever goes wrong here is told and no more.
    """
    from sgltrace.commands.index import bring_up_to_date
    from sgltrace.commands.report import EDITOR, write_again
    from sgltrace.runtime import read_trace

    if session.folder is None:
        return
    try:
        trace = read_trace(session.folder)
        if not trace.recording() or trace.plan.root is None:
            return
        workspace = _workspace(session.folder, Path(trace.plan.root))
        with progress_for_user() as progress:
            before = workspace.stamp().report_key
            bring_up_to_date(workspace, trace.plan.root, progress, editor=None)
        workspace.add_run(session.folder)
        write_again(workspace, before or EDITOR)
        typer.echo(f"sgltrace: report: {(workspace.report_folder / 'index.html').resolve()}", err=True)
    except (SgltraceError, OSError) as error:
        typer.echo(f"sgltrace: no report of this run: {error}", err=True)
    except KeyboardInterrupt:
        typer.echo("sgltrace: no report of this run: interrupted; `sgltrace report --run` makes it", err=True)


def _workspace(trace: Path, root: Path) -> Workspace:
    """The workspace in this folder where it is of the same source, or there is none; else one beside the trace."""
    here = Workspace(Path(DEFAULT))
    if not here.folder.exists():
        return here
    requested = here.stamp().requested
    if requested and Path(requested).exists() and _same(Path(requested), root):
        return here
    return Workspace(trace / "workspace")


def _same(requested: Path, root: Path) -> bool:
    """Whether a source that was named is, or holds, the package's folder."""
    places = [requested, requested / root.name, requested / "python" / root.name]
    return any(place.exists() and place.samefile(root) for place in places)
