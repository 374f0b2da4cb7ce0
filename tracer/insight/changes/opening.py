"""From what a user names to a side of a comparison."""

from __future__ import annotations

from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.files import user_cache_dir
from sgltrace.insight.changes.sides import Side
from sgltrace.insight.kept import kept_index
from sgltrace.progress import Progress, SilentProgress
from sgltrace.sources import SourceTree, open_source
from sgltrace.workspace import Workspace


def open_side(named: str, progress: Progress, *, package: str | None = None) -> Side:
    """A source as `sgltrace index` takes it, indexed; or a workspace, with its source where it is still there.

    Raises InputError for what is neither.
    """
    folder = Path(named).expanduser()
    if Workspace(folder).index_file.is_file():
        return _of_workspace(Workspace.open(folder), progress)
    tree = open_source(named, cache_dir=user_cache_dir(), progress=progress, package=package)
    progress.stage(f"Indexing {tree.source.name} {tree.source.version or named}")
    return Side(kept_index(tree, progress), tree)


def _of_workspace(workspace: Workspace, progress: Progress) -> Side:
    index = workspace.load_index()
    return Side(index, _source_of(workspace, index.source.requested))


def _source_of(workspace: Workspace, requested: str) -> SourceTree | None:
    stamp = workspace.stamp()
    try:
        return open_source(
            stamp.requested or requested,
            cache_dir=user_cache_dir(),
            progress=SilentProgress(),
            package=stamp.package,
        )
    except InputError:
        return None
