"""``sgltrace report``: the HTML report of a workspace, written again, elsewhere, or opened."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sgltrace.errors import InputError
from sgltrace.files import user_cache_dir
from sgltrace.progress import Progress, progress_for_user
from sgltrace.sources import SourceTree, UnreadableFile, open_source
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.model import Index

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
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    editor: EditorOption = EDITOR,
) -> None:
    """Write the report of a workspace again, and open it."""
    found = Workspace.open(workspace)
    check_editor(editor)
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} exists and is not an empty folder; give --output a folder of its own")
    with progress_for_user() as progress:
        made = found.load_index()
        stamp = found.stamp()
        tree = _source_again(stamp.requested or made.source.requested, progress)
        progress.stage("writing the report")
        if output is None:
            write_report(made, tree, found, editor)
            stamp.report_key = editor
            found.write_stamp(stamp)
        else:
            _render(made, tree, output, editor)
    page = ((output or found.report_folder) / "index.html").resolve()
    print(page)
    if open_it and not _opened(page):
        raise InputError(f"no browser could be started; open {page} yourself")


def _opened(page: Path) -> bool:
    import webbrowser

    return webbrowser.open(page.as_uri())


def check_editor(editor: str) -> None:
    """Raise UsageError for an editor that the report does not know, before the work begins."""
    from sgltrace.reports.links import EditorLinks

    if editor != NO_EDITOR:
        EditorLinks(editor, None)


def write_report(made: Index, tree: SourceTree | None, workspace: Workspace, editor: str) -> None:
    """Write the report beside the one that is there, and replace that when all is done."""
    folder = Path(tempfile.mkdtemp(prefix=".report-", dir=workspace.folder))
    try:
        _render(made, tree, folder / "report", editor)
        workspace.replace_report(folder / "report")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _render(made: Index, tree: SourceTree | None, folder: Path, editor: str) -> None:
    from sgltrace.reports import ReportOptions, render

    folder.mkdir(parents=True, exist_ok=True)
    place = tree.root_on_disk if tree else None
    linked = editor != NO_EDITOR and (place is not None or "{file}" in editor)
    render(made, _Texts(tree), folder, ReportOptions(editor=editor if linked else None, source_path=place))


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


def _source_again(requested: str, progress: Progress) -> SourceTree | None:
    """The source that the workspace was made from, None where it is gone: the report then has no source text."""
    try:
        return open_source(requested, cache_dir=user_cache_dir(), progress=progress)
    except InputError as error:
        typer.echo(f"sgltrace: the report will show no source text: {error}", err=True)
        return None
