"""A diff, and the tree that it makes of another: read and applied in memory, nothing of the user's is written.

A hunk is looked for where it says, and then nearby, as git does; its lines must be there as they are in the diff.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk, PatchedFile, PatchSet

from sgltrace.errors import InputError
from sgltrace.sources.tree import SourceTree

MOST_BYTES = 200_000_000
"""A diff that is larger is not one that somebody reads."""
_SHOWN = 3


class DoesNotApply(InputError):
    """A diff that is sound and does not fit the source; ``fits`` of ``hunks`` would."""

    def __init__(self, message: str, fits: int, hunks: int) -> None:
        super().__init__(message)
        self.fits = fits
        self.hunks = hunks


@dataclass
class Patched:
    """What a diff makes of a tree."""

    tree: SourceTree
    files: list[str]
    """Paths of the package's Python files that it changes, adds or deletes."""
    elsewhere: int = 0
    """How many files it changes besides: tests, documents, other packages."""
    notes: list[str] = field(default_factory=list)


def read_patch(data: bytes, named: str) -> PatchSet:
    """A diff, taken apart. ``named`` is what the user calls it. Raises InputError for what is none, or is cut off."""
    if len(data) > MOST_BYTES:
        raise InputError(f"{named} has {len(data) // 1_000_000} MB; that is no diff that sgltrace reads")
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = PatchSet(text.splitlines(keepends=True), metadata_only=False)
    except UnidiffParseError as error:
        raise InputError(
            f"{named} is damaged ({error}); make it again with `git diff` or `git format-patch`"
        ) from error
    if "\n@@ " in f"\n{text}" and not any(len(file) for file in found):
        raise InputError(f"{named} is damaged: its hunks belong to no file; make it again with `git diff`")
    if not found:
        raise InputError(f"{named} holds no change in unified format; make it with `git diff` or `git format-patch`")
    return found


def apply_patch(tree: SourceTree, patch: PatchSet, named: str) -> Patched:
    """The tree as it is after the diff. Raises DoesNotApply where not all hunks for its package fit."""
    changes: dict[str, bytes | None] = {}
    failed: list[str] = []
    again = fits = hunks = elsewhere = 0
    notes: list[str] = []
    for file in patch:
        path = _path_in(tree, file)
        if path is None:
            elsewhere += 1
            continue
        if file.is_binary_file:
            raise InputError(f"{named} changes {path} as a binary file; make it again with `git diff --text`")
        hunks += len(file)
        source = _path_of(tree, file.source_file) if file.is_rename else path
        if file.is_removed_file:
            changes[path] = None
        old = b"" if file.is_added_file else _read(tree, changes, source)
        if old is None or (file.is_added_file and path in tree.modules.values()):
            failed.append(f"{path} {'is not there' if old is None else 'is there already'}")
            continue
        made, bad, moved = _apply(old, file)
        fits += len(file) - len(bad)
        if bad:
            again += _apply(old, file, backwards=True)[1] == []
            failed += [f"{path}:{line}" for line in bad]
            continue
        if moved:
            notes.append(f"{path}: {moved} hunks fit some lines away from where the diff has them.")
        if file.is_rename and source:
            changes[source] = None
        if not file.is_removed_file:
            changes[path] = made
    if failed:
        raise DoesNotApply(_why_not(named, tree, failed, fits, hunks, again), fits, hunks)
    return Patched(tree.with_files(changes, f"{named} on"), sorted(changes), elsewhere, notes)


def _why_not(named: str, tree: SourceTree, failed: list[str], fits: int, hunks: int, again: int) -> str:
    where = ", ".join(failed[:_SHOWN]) + (f" and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else "")
    source = tree.source.requested
    if again and not fits:
        return f"{named} is in {source} already: it differs at {where}; name the source before it"
    partly = f"only {fits} of {hunks} hunks fit" if fits else "no hunk fits"
    return f"{named} does not apply to {source}: {partly}, not {where}; name the revision that it was made of"


# --- files ---


def _path_in(tree: SourceTree, file: PatchedFile) -> str | None:
    """The path below the source root of a changed Python file of the package; None for other files."""
    found = _path_of(tree, file.target_file if not file.is_removed_file else file.source_file)
    if found is None and file.is_rename:
        found = _path_of(tree, file.source_file)
    return found


def _path_of(tree: SourceTree, name: str) -> str | None:
    """``b/python/sglang/srt/x.py`` as ``sglang/srt/x.py``: from the package's folder on.

    The package's folder stands where a diff's paths have it, with its ``srt`` or as the whole of what precedes it.
    """
    parts = PurePosixPath(name).parts
    if not name.endswith(".py") or ".." in parts:
        return None
    known = set(tree.modules.values())
    for at in range(len(parts)):
        path = "/".join(parts[at:])
        if path in known:
            return path
    for at, part in enumerate(parts):
        if part == tree.package and at + 1 < len(parts):
            return "/".join(parts[at:])
    # The package's folder may be what a diff's paths begin in: `a/srt/x.py` of a repository that is the package.
    path = "/".join((tree.package, *parts[parts[0] in ("a", "b") :]))
    return path if path in known else None


def _read(tree: SourceTree, changes: Mapping[str, bytes | None], path: str | None) -> bytes | None:
    if path is None:
        return None
    if path in changes and changes[path] is not None:  # a diff that names a file twice
        return changes[path]
    return tree.read(path) if path in set(tree.modules.values()) else None


# --- hunks ---


def _apply(old: bytes, file: PatchedFile, backwards: bool = False) -> tuple[bytes, list[int], int]:
    """A file after its hunks; the lines at which some do not fit; how many fit elsewhere than they say."""
    lines = old.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    crlf = bool(lines) and lines[0].endswith("\r\n")
    out: list[str] = []
    taken = moved = 0
    bad: list[int] = []
    for hunk in file:
        before, after = (_side(hunk, added, crlf) for added in (backwards, not backwards))
        said = max((hunk.target_start if backwards else hunk.source_start) - (1 if before else 0), 0)
        at = _find(lines, before, said, taken)
        if at is None:
            bad.append(hunk.source_start)
            continue
        moved += at != said
        out += lines[taken:at]
        out += after
        taken = at + len(before)
    out += lines[taken:]
    return "".join(out).encode("utf-8", "surrogateescape"), bad, moved


def _side(hunk: Hunk, added: bool, crlf: bool) -> list[str]:
    """The lines of a hunk before (``added`` false) or after."""
    out: list[str] = []
    for line in hunk:
        if line.is_context or (line.is_added if added else line.is_removed):
            value = line.value
            out.append(value[:-1] + "\r\n" if crlf and value.endswith("\n") and not value.endswith("\r\n") else value)
    return _without_last_newline(hunk, out, added)


def _without_last_newline(hunk: Hunk, lines: list[str], added: bool) -> list[str]:
    """A line that says that there is no newline speaks of the one before it."""
    last = None
    for line in hunk:
        if line.line_type == "\\":
            if last is not None and lines and (last.is_context or (last.is_added if added else last.is_removed)):
                lines[-1] = lines[-1].rstrip("\r\n")
        else:
            last = line
    return lines


def _find(lines: list[str], wanted: list[str], said: int, taken: int) -> int | None:
    """Where a hunk's lines are: where it says, or nearest to that."""
    last = len(lines) - len(wanted)
    for distance in range(max(said, last) + 1 if wanted else 1):
        for at in (said + distance, said - distance):
            if taken <= at <= last and lines[at : at + len(wanted)] == wanted:
                return at
    return None
