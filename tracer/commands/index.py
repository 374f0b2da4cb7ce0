"""``sgltrace index SRC``: from a source to a workspace with a report."""

from __future__ import annotations

import gc
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sgltrace.commands.configuration import (
    Asked,
    AssumeOption,
    ConfigOption,
    GpuOption,
    ModelOption,
    configuration_data,
    configured,
)
from sgltrace.commands.output import print_json, print_table
from sgltrace.commands.report import EDITOR, EditorOption, check_editor, write_report
from sgltrace.errors import UsageError
from sgltrace.files import user_cache_dir
from sgltrace.progress import Progress, progress_for_user
from sgltrace.sources import SourceTree, open_source
from sgltrace.tool import tool_fingerprint
from sgltrace.workspace import DEFAULT, Stamp, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.configured import Configured
    from sgltrace.model import Index

# What does the work is imported where it is used: a run that finds nothing changed must start at once.

WHOLE = "*"
"""What ``--whole`` without a prefix stands for."""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(index)


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
    package: Annotated[
        str | None, typer.Option(help="The package of a fork that has another name; it may be fetched, too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one for each core.")] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write index.json only.")] = False,
    editor: EditorOption = EDITOR,
    config: ConfigOption = None,
    assume: AssumeOption = None,
    model_config: ModelOption = None,
    gpu: GpuOption = None,
) -> None:
    """Index an SGLang source and write its report. An unchanged source is not indexed again."""
    if not src and whole:  # `--whole SRC`: the name behind the option was the source
        src, whole = whole, WHOLE
    if not src:
        raise UsageError("nothing to index; name a checkout, a wheel, or a requirement such as sglang==0.5.9")
    asked = Asked(config, assume, model_config, gpu)
    asked.check()
    workspace = Workspace.to_write(out)
    with progress_for_user(quiet=as_json) as progress:
        wanted = None if no_report else editor
        stamp, unchanged = bring_up_to_date(
            workspace, src, progress, editor=wanted, whole=whole, jobs=jobs, package=package
        )
    cut = configured(workspace, workspace.load_index(), asked, as_json) if config is not None else None
    _tell(workspace, stamp, unchanged, as_json, cut)


def bring_up_to_date(
    workspace: Workspace,
    src: str,
    progress: Progress,
    *,
    editor: str | None,
    whole: str | None = None,
    jobs: int | None = None,
    package: str | None = None,
    tree: SourceTree | None = None,
) -> tuple[Stamp, bool]:
    """Index a source into a workspace and write its report (none without ``editor``); whether nothing had changed.

    ``tree`` is the source where it is open already.
    """
    tree = tree or open_source(src, cache_dir=user_cache_dir(), progress=progress, package=package)
    prefixes = _whole_prefixes(tree, whole)
    requested = _reopenable(src)
    key = _index_key(tree, requested, prefixes)
    old, stamp = workspace.stamp(), Stamp(requested=requested, package=package, index_key=key)
    if stamp.index_key == old.index_key and editor in (None, old.report_key):
        return old, True
    if editor is not None:
        check_editor(editor)
    if stamp.index_key == old.index_key:
        made, stamp.summary = workspace.load_index(), old.summary
    else:
        made = _build(tree, prefixes, jobs, progress)
        stamp.summary = _summary(made, tree)
        workspace.write_index(made)
    if editor is not None:
        progress.stage("Writing the report")
        write_report(made, tree, workspace, editor)
        stamp.report_key = editor
    workspace.write_stamp(stamp)
    return stamp, False


def keep_index(workspace: Workspace, src: str, tree: SourceTree, *, editor: str | None) -> None:
    """Say of a workspace's index that it is the one of ``tree``, and write its report again (not without ``editor``).

    For whoever knows that indexing would give the same.
    """
    stamp = workspace.stamp()
    stamp.index_key = _index_key(tree, _reopenable(src), ())
    if editor is not None:
        write_report(workspace.load_index(), tree, workspace, editor)
        stamp.report_key = editor
    workspace.write_stamp(stamp)


def _whole_prefixes(tree: SourceTree, whole: str | None) -> tuple[str, ...]:
    """``IndexOptions.whole``: the dotted prefixes of modules to read besides what is needed."""
    if whole is None:
        return ()
    if whole in (WHOLE, tree.package):
        return (tree.package,)
    prefix = whole if f"{whole}.".startswith(f"{tree.package}.") else f"{tree.package}.{whole}"
    if not any(f"{module}.".startswith(f"{prefix}.") for module in tree.modules):
        raise UsageError(f"--whole {whole}: no module of {tree.package} begins with {prefix}")
    return (prefix,)


def _index_key(tree: SourceTree, requested: str, whole: tuple[str, ...]) -> str:
    """What the index depends on: the sources, how they were named, this program, and the options."""
    parts = (tree.fingerprint(), repr(tree.source), requested, tool_fingerprint(), repr(whole))
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _build(tree: SourceTree, whole: tuple[str, ...], jobs: int | None, progress: Progress) -> Index:
    from sgltrace.index import IndexOptions
    from sgltrace.insight.assemble import make_index
    from sgltrace.interpreter import no_collection

    with no_collection():
        try:
            return make_index(tree, IndexOptions(whole=whole, jobs=jobs, cache_dir=user_cache_dir()), progress)
        finally:
            gc.freeze()  # the program is left to the end of the process: to take it apart would cost a second


def _summary(made: Index, tree: SourceTree) -> dict[str, Any]:
    from sgltrace.insight.summary import summarise

    return summarise(made, tree.took)


def _reopenable(src: str) -> str:
    """``SRC`` such that it means the same from another folder."""
    path, at, revision = src.rpartition("@")
    for place, rest in ((src, ""), (path, at + revision)):
        if place and Path(place).expanduser().exists():
            return f"{Path(place).expanduser().absolute()}{rest}"
    return src


def _tell(workspace: Workspace, stamp: Stamp, unchanged: bool, as_json: bool, cut: Configured | None) -> None:
    from sgltrace.insight.answer import answers
    from sgltrace.insight.summary import answer_lines, lines

    page = workspace.report_folder / "index.html" if stamp.report_key else None
    if as_json:
        places = {
            "workspace": str(workspace.folder),
            "index": str(workspace.index_file),
            "report": str(page) if page else None,
        }
        told = {**stamp.summary, **configuration_data(cut)}
        if cut is not None:
            told["answers"] = answers(cut.index, cut)
        print_json({**told, **places, "unchanged": unchanged})
        return
    rows = lines(stamp.summary, None if cut is None else cut.configuration.name)
    if cut is not None:
        at = next((number for number, (label, _) in enumerate(rows) if label == "functions"), len(rows))
        rows[at:at] = answer_lines(answers(cut.index, cut))
    if unchanged:
        rows.append(("unchanged", "since the last run; nothing was indexed again"))
    rows.append(("index", str(workspace.index_file)))
    rows.append(("report", str(page) if page else "not written"))
    print_table(rows)
