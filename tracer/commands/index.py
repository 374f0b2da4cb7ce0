"""``sgltrace index SRC`` and ``sgltrace report``: from a source to a workspace with a report."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sgltrace.commands.output import print_json, print_table
from sgltrace.errors import InputError, UsageError
from sgltrace.files import user_cache_dir
from sgltrace.progress import Progress, progress_for_user
from sgltrace.sources import SourceTree, open_source
from sgltrace.tool import tool_fingerprint
from sgltrace.workspace import DEFAULT, Stamp, Workspace

if TYPE_CHECKING:
    from sgltrace.model import Index

# What does the work is imported where it is used: a run that finds nothing changed must start at once.

EDITOR = "vscode"
NO_EDITOR = "none"
WHOLE = "*"
"""What ``--whole`` without a prefix stands for."""

WorkspaceOption = Annotated[Path, typer.Option("-w", "--workspace", help="The workspace to read.")]
EditorOption = Annotated[
    str,
    typer.Option(
        help="What the report's file:line links open: vscode, cursor, pycharm, none, or a URL with {path} and {line}."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command()(index)
    app.command()(report)


def index(
    src: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="A checkout, its python/ or python/sglang, an installed package's folder, a wheel, an sdist, "
            "CHECKOUT@REVISION, or a requirement such as sglang==0.5.9.",
        ),
    ] = "",
    out: Annotated[Path, typer.Option("-o", "--output", help="The workspace to write.")] = Path(DEFAULT),
    whole: Annotated[
        str | None,
        typer.Option(
            metavar="[PREFIX]",
            help="Index every module, or every module below PREFIX (srt), not only those that a step may reach.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that parse; the number of cores if left out.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write index.json only.")] = False,
    editor: EditorOption = EDITOR,
) -> None:
    """Index an SGLang source tree and write a report of its call graph. An unchanged source is not indexed again."""
    if not src and whole:  # `--whole SRC`: the name behind the option was the source
        src, whole = whole, WHOLE
    if not src:
        raise UsageError("nothing to index; name a checkout, a wheel, or a requirement such as sglang==0.5.9")
    workspace = Workspace.to_write(out)
    with progress_for_user(quiet=as_json) as progress:
        tree = open_source(src, cache_dir=user_cache_dir(), progress=progress)
        prefix = _whole_prefix(tree, whole)
        old = workspace.stamp()
        stamp = Stamp(requested=_reopenable(src), index_key=_index_key(tree, prefix), summary=old.summary)
        made: Index | None = None
        if stamp.index_key != old.index_key:
            made = _build(tree, prefix, jobs, progress)
            stamp.summary = _summary(made, tree)
            workspace.write_index(made)
        report_key = "" if no_report else editor
        unchanged = made is None and (not report_key or report_key == old.report_key)
        stamp.report_key = old.report_key if unchanged else ""
        if not unchanged and report_key:
            progress.stage("writing the report")
            _write_report(made or workspace.load_index(), tree, workspace, editor)
            stamp.report_key = report_key
        if stamp != old:
            workspace.write_stamp(stamp)
    _tell(workspace, stamp, unchanged, as_json)


def report(
    workspace: WorkspaceOption = Path(DEFAULT),
    output: Annotated[Path | None, typer.Option("--output", help="Write the report to this folder instead.")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    editor: EditorOption = EDITOR,
) -> None:
    """Write the report of a workspace again, and open it."""
    found = Workspace.open(workspace)
    if output is not None and output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} exists and is not an empty folder; give --output a folder of its own")
    with progress_for_user() as progress:
        stamp = found.stamp()
        tree = _source_again(stamp, progress)
        progress.stage("writing the report")
        made = found.load_index()
        if output is None:
            _write_report(made, tree, found, editor)
            stamp.report_key = editor
            found.write_stamp(stamp)
        else:
            _render(made, tree, output, editor)
    page = ((output or found.report_folder) / "index.html").resolve()
    print(page)
    if open_it and not webbrowser.open(page.as_uri()):
        raise InputError(f"no browser could be started; open {page} yourself")


def _whole_prefix(tree: SourceTree, whole: str | None) -> str | bool:
    """``IndexOptions.whole``: False, True for everything, or a dotted prefix that has modules."""
    if whole is None:
        return False
    if whole in (WHOLE, tree.package):
        return True
    prefix = whole if f"{whole}.".startswith(f"{tree.package}.") else f"{tree.package}.{whole}"
    if not any(f"{module}.".startswith(f"{prefix}.") for module in tree.modules):
        raise UsageError(f"--whole {whole}: no module of {tree.package} begins with {prefix}")
    return prefix


def _index_key(tree: SourceTree, whole: str | bool) -> str:
    """What the index depends on: the sources, how they were named, this program, and the options."""
    parts = (tree.fingerprint(), repr(tree.source), tool_fingerprint(), repr(whole))
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _build(tree: SourceTree, whole: str | bool, jobs: int | None, progress: Progress) -> Index:
    from sgltrace.index import IndexOptions, build

    return build(tree, IndexOptions(whole=whole, jobs=jobs, cache_dir=user_cache_dir()), progress)


def _summary(made: Index, tree: SourceTree) -> dict[str, Any]:
    from sgltrace.insight.summary import summarise

    return summarise(made, tree.took)


def _write_report(made: Index, tree: SourceTree | None, workspace: Workspace, editor: str) -> None:
    """Render beside the report that is there, and replace it when all is done."""
    folder = Path(tempfile.mkdtemp(prefix=".report-", dir=workspace.folder))
    try:
        _render(made, tree, folder / "report", editor)
        workspace.replace_report(folder / "report")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _render(made: Index, tree: SourceTree | None, folder: Path, editor: str) -> None:
    from sgltrace.reports import ReportOptions, render

    folder.mkdir(parents=True, exist_ok=True)
    options = ReportOptions(editor=None if editor == NO_EDITOR else editor, source_path=tree and tree.root_on_disk)
    render(made, tree, folder, options)


def _source_again(stamp: Stamp, progress: Progress) -> SourceTree | None:
    """The source that the workspace was made from, None where it is gone: the report then has no source text."""
    try:
        return open_source(stamp.requested, cache_dir=user_cache_dir(), progress=progress)
    except InputError as error:
        typer.echo(f"sgltrace: the report will show no source text: {error}", err=True)
        return None


def _reopenable(src: str) -> str:
    """``SRC`` such that it means the same from another folder."""
    path, at, revision = src.rpartition("@")
    for place, rest in ((src, ""), (path, at + revision)):
        if place and Path(place).expanduser().exists():
            return f"{Path(place).expanduser().absolute()}{rest}"
    return src


def _tell(workspace: Workspace, stamp: Stamp, unchanged: bool, as_json: bool) -> None:
    page = workspace.report_folder / "index.html" if stamp.report_key else None
    if as_json:
        places = {
            "workspace": str(workspace.folder),
            "index": str(workspace.index_file),
            "report": str(page) if page else None,
        }
        print_json({**stamp.summary, **places, "unchanged": unchanged})
        return
    from sgltrace.insight.summary import lines

    rows = lines(stamp.summary)
    if unchanged:
        rows.append(("unchanged", "since the last run; nothing was indexed again"))
    rows.append(("index", str(workspace.index_file)))
    rows.append(("report", str(page) if page else "not written"))
    print_table(rows)
