"""What a user may name as ``SRC``, opened as one kind of thing: a tree of modules.

``open_source`` is the door; ``SourceTree`` is what the rest of the program reads.
"""

from __future__ import annotations

import os
from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.files import CACHE_VARIABLE
from sgltrace.progress import Progress
from sgltrace.sources.text import UndecodableSource, decode_source
from sgltrace.sources.tree import SourceTree, UnreadableFile, module_name

__all__ = ["SourceTree", "UndecodableSource", "UnreadableFile", "decode_source", "module_name", "open_source"]

# The openers are imported where they are used: a run that finds nothing changed must not pay for the others.


def open_source(requested: str, *, cache_dir: Path, progress: Progress, package: str | None = None) -> SourceTree:
    """Open what the user named: a folder, a wheel, an sdist, ``CHECKOUT@REVISION``, or a requirement.

    What exists on disk is taken before what could be fetched. ``package`` names a fork: its package, and what may be
    fetched besides SGLang. Nothing of the source is run. Raises InputError, one line, for all that is not an
    SGLang package or cannot be read. Downloads go to ``cache_dir``.
    """
    if not requested.strip():
        raise InputError("no source named; name a checkout, a wheel, or a requirement such as sglang==0.5.9")
    path = _place(requested)
    try:
        return _open(requested, path, cache_dir, progress, package)
    except OSError as error:
        if str(error.filename or "").startswith(str(cache_dir)):
            why = error.strerror or error
            raise InputError(
                f"cannot use the cache folder {cache_dir} ({why}); {CACHE_VARIABLE} names another"
            ) from error
        raise InputError(f"cannot read {error.filename or requested}: {error.strerror or error}") from error


def _open(requested: str, path: Path, cache_dir: Path, progress: Progress, package: str | None) -> SourceTree:
    if path.is_dir():
        from sgltrace.sources.folder import open_folder

        return _checked(open_folder(requested, path, package), package)
    if path.is_file():
        from sgltrace.sources.archive import open_archive

        return _checked(open_archive(requested, path, cache_dir, package=package), package)
    if path.exists():
        raise InputError(f"{requested} is neither a folder nor a file")
    checkout, at, revision = requested.rpartition("@")
    if at and _place(checkout).is_dir():
        from sgltrace.sources.revision import open_revision

        return _checked(open_revision(requested, _place(checkout), revision, package), package)
    from sgltrace.sources.requirement import open_requirement, parse_requirement

    requirement = None if _looks_like_path(requested) else parse_requirement(requested)
    if requirement is None:
        raise InputError(
            f"there is no {requested}; name a folder, a wheel, an sdist, CHECKOUT@REVISION, "
            f"or a requirement such as sglang==0.5.9"
        )
    return open_requirement(requirement, requested, cache_dir, progress, package)


def _checked(tree: SourceTree, package: str | None) -> SourceTree:
    """The tree, where it is of the package that the user named."""
    if package is not None and tree.package != package:
        raise InputError(f"{tree.source.requested} has no package {package} with a folder srt; it has {tree.package}")
    return tree


def _place(named: str) -> Path:
    """The path of that name, the home folder of ``~`` in its place."""
    try:
        return Path(named).expanduser()
    except (RuntimeError, ValueError) as error:
        raise InputError(f"there is no {named}: {error}") from error


def _looks_like_path(requested: str) -> bool:
    separators = {"/", os.sep}
    return requested.startswith((".", "~")) or ("://" not in requested and any(s in requested for s in separators))
