"""``sgltrace report``: the HTML report of a workspace, written again, elsewhere, or opened."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sgltrace.commands.runs import check_experiment, check_trace, joined_runs, kept_experiments
from sgltrace.errors import InputError, UsageError
from sgltrace.files import naming, user_cache_dir
from sgltrace.progress import Progress, progress_for_user
from sgltrace.sources import SourceTree, UnreadableFile, open_source
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.observed import Run
    from sgltrace.model import Index
    from sgltrace.whatif.model import Experiment

EDITOR = "vscode"
NO_EDITOR = "none"

EditorOption = Annotated[
    str,
    typer.Option(
        help="What the report's file:line links open: vscode, cursor, pycharm, none, or a URL with {path} and {line}."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(report)


def report(
    workspace: Annotated[Path, typer.Option("-w", "--workspace", help="The workspace to read.")] = Path(DEFAULT),
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write it to this folder instead.")] = None,
    run: Annotated[
        list[Path] | None, typer.Option("--run", metavar="DIR", help="Also show this trace of `sgltrace run`.")
    ] = None,
    experiment: Annotated[
        list[Path] | None,
        typer.Option("--experiment", metavar="FILE", help="Also show this experiment of `sgltrace whatif`."),
    ] = None,
    single_file: Annotated[bool, typer.Option("--single-file", help="Write the report as one HTML file.")] = False,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve it on 127.0.0.1, and write it again when the workspace changes.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --serve; 0 takes a free one.")] = 0,
    editor: EditorOption = EDITOR,
) -> None:
    """Write a workspace's report again, elsewhere or with more runs, and open it."""
    found = Workspace.open(workspace)
    check_editor(editor)
    if serve and (output is not None or single_file):
        raise UsageError("--serve serves the workspace's own report; leave out --output and --single-file")
    if single_file and output is None:
        raise UsageError("--single-file needs --output, the folder to write to")
    for trace in run or []:
        check_trace(trace)
        found.add_run(trace)
    for kept in experiment or []:
        check_experiment(kept)
        found.add_experiment(kept)
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} exists and is not an empty folder; give --output a folder of its own")
    _write(found, output, editor, single_file)
    page = ((output or found.report_folder) / "index.html").resolve()
    if serve:
        _serve(found, editor, port, open_it)
        return
    print(page)
    if open_it and not _opened(page.as_uri()):
        raise InputError(f"no browser could be started; open {page} yourself")


def write_again(found: Workspace, editor: str) -> None:
    """Write a workspace's own report anew."""
    _write(found, None, editor)


def _write(found: Workspace, output: Path | None, editor: str, single_file: bool = False) -> None:
    with progress_for_user() as progress:
        made = found.load_index()
        stamp = found.stamp()
        tree = _source_again(stamp.requested or made.source.requested, stamp.package, progress)
        progress.stage("writing the report")
        if output is None:
            write_report(made, tree, found, editor)
            stamp.report_key = editor
            found.write_stamp(stamp)
        else:
            evidence = joined_runs(found, made), kept_experiments(found, made)
            _render(made, tree, output, editor, evidence, single_file)


def _serve(found: Workspace, editor: str, port: int, open_it: bool) -> None:
    from sgltrace.reports.serve import Server

    def state() -> object:
        return found.state(), [path.stat().st_mtime_ns for path in found.runs() if path.exists()]

    server = Server(found.report_folder, state, lambda: _write(found, None, editor), port)
    print(f"{server.address} (Ctrl-C ends it)", flush=True)
    if open_it:
        _opened(server.address)
    server.run(lambda text: typer.echo(f"sgltrace: {text}", err=True))


def _opened(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def check_editor(editor: str) -> None:
    """Raise UsageError for an editor that the report does not know, before the work begins."""
    from sgltrace.reports.links import EditorLinks

    if editor != NO_EDITOR:
        EditorLinks(editor, None)


def write_report(made: Index, tree: SourceTree | None, workspace: Workspace, editor: str) -> None:
    """Write the report beside the one that is there, and replace that when all is done."""
    folder = Path(tempfile.mkdtemp(prefix=".report-", dir=workspace.folder))
    try:
        evidence = joined_runs(workspace, made), kept_experiments(workspace, made)
        _render(made, tree, folder / "report", editor, evidence)
        workspace.replace_report(folder / "report")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _render(
    made: Index,
    tree: SourceTree | None,
    folder: Path,
    editor: str,
    evidence: tuple[list[Run], list[Experiment]],
    single_file: bool = False,
) -> None:
    from sgltrace.reports import ReportOptions, render

    place = tree.root_on_disk if tree else None
    linked = editor != NO_EDITOR and (place is not None or "{file}" in editor)
    runs, experiments = evidence
    options = ReportOptions(
        editor=editor if linked else None,
        source_path=place,
        single_file=single_file,
        runs=runs,
        experiments=experiments,
    )
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
        render(made, _Texts(tree), folder, options)


class _Texts:
    """The source as the report wants it: a file that is not there is no error."""

    def __init__(self, tree: SourceTree | None) -> None:
        self._tree = tree

    def read(self, relative_path: str) -> bytes | None:
        """The bytes of a file, None where it cannot be read."""
        try:
            return self._tree.read(relative_path) if self._tree else None
        except UnreadableFile:
            return None


def _source_again(requested: str, package: str | None, progress: Progress) -> SourceTree | None:
    """The source that the workspace was made from, None where it is gone: the report then has no source text."""
    try:
        return open_source(requested, cache_dir=user_cache_dir(), progress=progress, package=package)
    except InputError as error:
        typer.echo(f"sgltrace: the report will show no source text: {error}", err=True)
        return None
