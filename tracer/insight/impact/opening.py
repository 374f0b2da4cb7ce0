"""From a diff and a source as a user names them to two sides."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.files import user_cache_dir
from sgltrace.insight.changes.sides import Side
from sgltrace.insight.impact.edits import check_syntax
from sgltrace.insight.kept import kept_index
from sgltrace.progress import Progress
from sgltrace.sources import SourceTree, open_source
from sgltrace.sources.patch import apply_patch, read_patch
from sgltrace.sources.revision import merge_base
from sgltrace.workspace import Workspace

STDIN = "-"
_RANGE = re.compile(r"(?P<first>[^.\s][^\s]*?)(?P<dots>\.\.\.?)(?P<last>[^.\s][^\s]*)?")


@dataclass
class Opened:
    """A diff with what it makes of a source."""

    before: SourceTree
    after: SourceTree
    files: list[str]
    notes: list[str] = field(default_factory=list)


def open_diff(diff: str, source: str, progress: Progress, package: str | None = None) -> Opened:
    """Read a diff (a file, ``-`` for standard input, or ``A..B`` of the checkout ``source``) and apply it in memory.

    Raises InputError for a diff that is damaged, of other files, or does not fit (`DoesNotApply`).
    """
    data = _bytes_of(diff)
    if data is None:
        return _revisions(diff, source, progress, package)
    tree = _source(source, progress, package)
    named = "the diff on standard input" if diff == STDIN else diff
    made = apply_patch(tree, read_patch(data, named), named)
    check_syntax(tree, made.tree, made.files)
    notes = list(made.notes)
    if made.elsewhere:
        notes.append(f"{made.elsewhere} files that it changes are none of {tree.package}'s Python files.")
    return Opened(tree, made.tree if made.files else tree, made.files, notes)


def sides(opened: Opened, progress: Progress) -> tuple[Side, Side]:
    """Both sides, indexed."""
    out = []
    for tree, what in ((opened.before, "the source"), (opened.after, "the source after the diff")):
        progress.stage(f"Indexing {what}")
        out.append(Side(kept_index(tree, progress), tree))
    return out[0], out[1]


def _bytes_of(diff: str) -> bytes | None:
    """A diff's bytes; None for what is a range of revisions."""
    if diff == STDIN:
        return sys.stdin.buffer.read()
    path = Path(diff).expanduser()
    try:
        if path.is_file() or not _RANGE.fullmatch(diff):
            return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {diff}: {error.strerror}; name a diff, - for standard input, or A..B of a checkout"
        ) from error
    return None


def _source(named: str, progress: Progress, package: str | None) -> SourceTree:
    folder = Path(named).expanduser()
    if Workspace(folder).index_file.is_file():  # a workspace stands for the source that it is of
        stamp = Workspace.open(folder).stamp()
        if stamp.requested:
            named, package = stamp.requested, stamp.package
    return open_source(named, cache_dir=user_cache_dir(), progress=progress, package=package)


def _revisions(diff: str, source: str, progress: Progress, package: str | None) -> Opened:
    match = _RANGE.fullmatch(diff)
    assert match is not None
    checkout = Path(source).expanduser()
    if not checkout.is_dir():
        raise InputError(f"{diff} is a range of revisions, and {source} is no checkout; name one with --source")
    first, last = match["first"], match["last"] or "HEAD"
    if match["dots"] == "...":
        first = merge_base(checkout, first, last)
    before, after = (
        open_source(f"{checkout}@{name}", cache_dir=user_cache_dir(), progress=progress, package=package)
        for name in (first, last)
    )
    paths = sorted({*before.modules.values(), *after.modules.values()})
    files = [path for path in paths if _data(before, path) != _data(after, path)]
    return Opened(before, after, files)


def _data(tree: SourceTree, path: str) -> bytes | None:
    try:
        return tree.read(path)
    except InputError:
        return None
