"""A source tree in a folder: a checkout, its ``python/``, the package itself, or an installed package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.model import Source
from sgltrace.sources.layout import PACKAGE, RUNTIME, Package, find_version, package_name
from sgltrace.sources.tree import SourceTree, UnreadableFile

_PLACES = ("{package}", "python/{package}", "*", "python/*")
"""Where the package lies below the folder that a user names, when it is not that folder itself."""


MAX_DEPTH = 100
"""Folders inside one another; a path of more is longer than systems take."""

CHECKOUT = "python"
"""The folder of SGLang's repository in which its package lies."""


class FolderStore:
    """The Python files below one package folder. Links to folders are not followed, so that no loop is walked.

    What cannot be looked into is passed over, and listed in ``unread``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.unread: dict[str, str] = {}
        self._files: dict[str, os.stat_result] = {}

    def names(self) -> list[str]:
        """Every readable regular ``.py`` file outside hidden folders, sorted."""
        return sorted(self._scan())

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises UnreadableFile."""
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise UnreadableFile(f"cannot read {name}: {error.strerror}") from error

    def fingerprint(self) -> str:
        """A hash of names, sizes and times of change."""
        digest = hashlib.sha256()
        for name, stat in sorted(self._scan().items()):
            digest.update(f"{name}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def locate(self, name: str) -> Path:
        """The file itself."""
        return self.folder / name

    def _scan(self) -> dict[str, os.stat_result]:
        if not self._files:
            pending = [""]
            while pending:
                prefix = pending.pop()
                try:
                    pending += self._look_into(prefix)
                except OSError as error:  # not readable, or its path has become too long for the system
                    self.unread[prefix] = error.strerror or str(error)
            if "" in self.unread:
                raise InputError(f"cannot read the folder {self.folder}: {self.unread['']}")
        return self._files

    def _look_into(self, prefix: str) -> list[str]:
        """Take the files of one folder; the folders in it."""
        folders = []
        with os.scandir(self.folder / prefix) as entries:
            for entry in entries:
                if entry.name.startswith((".", "__pycache__")):
                    continue
                name = prefix + entry.name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(f"{name}/")
                    elif entry.is_dir():
                        self.unread[f"{name}/"] = "a link to a folder; links are not followed"
                    elif entry.name.endswith(".py") and entry.is_file():
                        self._files[name] = entry.stat()
                    elif entry.name.endswith(".py"):
                        self.unread[name] = "a link to nothing" if entry.is_symlink() else "not a regular file"
                except OSError as error:  # a link to itself
                    self.unread[name] = error.strerror or str(error)
        if prefix.count("/") >= MAX_DEPTH and folders:
            self.unread[folders[0]] = f"more than {MAX_DEPTH} folders inside one another"
            return []
        return folders


def open_folder(requested: str, folder: Path, package: str | None = None) -> SourceTree:
    """The tree of a folder that exists. Raises InputError where it is not SGLang's."""
    found = _package_folder(folder, package or PACKAGE)
    if found is None:
        raise InputError(_why_not(requested, folder))
    store = FolderStore(found.absolute())
    names = store.names()
    taken = Package("", package_name(found.resolve().name, names, lambda name: _read_or_none(found / name)))
    version, said_by = find_version(
        taken,
        lambda name: _read_or_none(found / name),
        metadata=_metadata(found, taken.name),
        project="../pyproject.toml",
    )
    root = os.path.normpath(Path(requested) / os.path.relpath(found, folder) / "..")
    source = Source(
        name=taken.name,
        version=version,
        root=root.replace(os.sep, "/"),
        kind="folder",
        requested=requested,
        below=CHECKOUT if found.resolve().parent.name == CHECKOUT else "",
    )
    told = f"version {version} from {said_by.removeprefix('../')}" if version else "version unknown"
    return SourceTree(store, taken, source, f"package {taken.name} in {found}, {told}")


def _package_folder(folder: Path, package: str) -> Path | None:
    """``folder`` itself, or the first place below it, that has Python files below ``srt``."""
    candidates = [folder.parent if folder.name == RUNTIME else folder]
    for place in _PLACES:
        candidates += sorted(folder.glob(place.format(package=package)))
    return next((found for found in candidates if _is_package(found)), None)


def _is_package(folder: Path) -> bool:
    try:
        return next(_python_files(folder / RUNTIME), None) is not None
    except OSError:  # a folder nobody may look into is not taken
        return False


def _python_files(folder: Path) -> Iterator[str]:
    for place, folders, files in os.walk(folder):  # what cannot be read is passed over
        if place.count(os.sep) - str(folder).count(os.sep) >= MAX_DEPTH:
            folders.clear()
        yield from (file for file in files if file.endswith(".py"))


def _why_not(requested: str, folder: Path) -> str:
    """One line: what is wrong with the folder, and what to name instead."""
    if not os.access(folder, os.R_OK | os.X_OK):
        return f"cannot read the folder {requested}: permission denied"
    if not any(folder.iterdir()):
        return f"{requested} is an empty folder; name an SGLang checkout, its python/sglang, or a wheel"
    for above in folder.resolve().parents:
        if above.name == PACKAGE and _is_package(above):
            return f"{requested} lies inside an SGLang package; name the package itself: {above}"
    return (
        f"{requested} is not SGLang: no folder {PACKAGE}/{RUNTIME} with Python files in it or in its python/; "
        f"name the root of a checkout or the package's folder"
    )


def _read_or_none(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:  # what cannot be read says nothing about the version
        return None


def _metadata(package_folder: Path, name: str) -> list[str]:
    """The one ``METADATA`` beside an installed package, or the ``PKG-INFO`` above an unpacked sdist's."""
    installed = sorted(package_folder.parent.glob(f"{name}-*.dist-info/METADATA"))
    unpacked = [path for path in [package_folder.parent / "PKG-INFO"] if path.is_file()]
    return [os.path.relpath(path, package_folder) for path in (installed if len(installed) == 1 else unpacked)]
