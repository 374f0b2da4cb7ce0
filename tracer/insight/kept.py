"""Indexes of whole sources, kept in the user's cache: a release is compared many times and changes never."""

from __future__ import annotations

import contextlib
import gc
import hashlib
from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.files import user_cache_dir, write_atomically
from sgltrace.index import IndexOptions
from sgltrace.insight.assemble import make_index
from sgltrace.interpreter import no_collection
from sgltrace.model import Index
from sgltrace.progress import Progress
from sgltrace.sources import SourceTree
from sgltrace.tool import tool_fingerprint
from sgltrace.workspace import encode_index, load_index

MOST = 12
"""So many indexes are kept, of 5 to 20 MB each; the one that was used longest ago goes first."""


def kept_index(tree: SourceTree, progress: Progress, *, jobs: int | None = None) -> Index:
    """The index of a tree, from the cache where it was made before. Raises InputError where it is no SGLang."""
    file = _folder() / f"{_key(tree)}.json"
    with contextlib.suppress(InputError):  # not there, or damaged
        found = load_index(file)
        with contextlib.suppress(OSError):
            file.touch()
        return found
    index = fresh_index(tree, progress, jobs=jobs)
    with contextlib.suppress(OSError):  # without a cache the next run is slower, this one no worse
        write_atomically(file, encode_index(index))
        _forget(file.parent)
    return index


def fresh_index(tree: SourceTree, progress: Progress, *, jobs: int | None = None) -> Index:
    """The index of a tree, made now."""
    with no_collection():
        try:
            return make_index(tree, IndexOptions(cache_dir=user_cache_dir(), jobs=jobs), progress)
        finally:
            gc.collect()


def _folder() -> Path:
    return user_cache_dir() / "indexes"


def _key(tree: SourceTree) -> str:
    parts = (tree.fingerprint(), repr(tree.source), tool_fingerprint())
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _forget(folder: Path) -> None:
    by_age = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in by_age[:-MOST]:
        file.unlink(missing_ok=True)
