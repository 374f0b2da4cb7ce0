"""A source tree in a wheel or an sdist, read in place: nothing of an archive is ever written under its own names."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.model import Source
from sgltrace.sources.limits import Limits, refuse_name
from sgltrace.sources.tarball import is_tarball, tarball_as_zip
from sgltrace.sources.tree import SourceTree, UnreadableFile, tree_in

_ENCRYPTED = 0x1
_LINK, _KIND_OF_FILE, _REGULAR, _FOLDER = 0o120000, 0o170000, 0o100000, 0o040000


class ZipStore:
    """The files of a zip archive, checked for everything hostile before the first is read."""

    def __init__(self, path: Path, shown: str) -> None:
        self.path = path
        self.unread: dict[str, str] = {}
        self._shown = shown
        self._archive: zipfile.ZipFile | None = None
        self._process = -1
        self._names = sorted(info.filename for info in self._open().infolist() if not info.is_dir())
        _check_members(self._open().infolist(), shown, path.stat().st_size)

    def names(self) -> list[str]:
        """Every file, sorted."""
        return self._names

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises UnreadableFile where the archive is damaged at that place."""
        try:
            return self._open().read(name)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError) as error:
            raise UnreadableFile(f"cannot read {name} in {self._shown}: {error}") from error

    def fingerprint(self) -> str:
        """The hash of the archive."""
        return file_hash(self.path)

    def locate(self, name: str) -> None:
        """Nothing: the file is not on disk."""

    def _open(self) -> zipfile.ZipFile:
        # A handle's position is shared by a fork, so each process opens its own.
        if self._archive is None or self._process != os.getpid():
            try:
                self._archive = zipfile.ZipFile(self.path)
            except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
                raise InputError(f"{self._shown} is not a usable zip archive ({error}); fetch it again") from error
            self._process = os.getpid()
        return self._archive


def open_archive(
    requested: str, path: Path, cache_dir: Path, *, kind: str | None = None, package: str | None = None
) -> SourceTree:
    """The tree of a wheel or sdist. Raises InputError for what is broken, hostile, or not SGLang's.

    An sdist is rewritten once into a zip in ``cache_dir``, since a compressed tar has no way in but its beginning.
    """
    tar = is_tarball(path)
    if not tar and not zipfile.is_zipfile(path):
        raise InputError(f"{requested} is neither a wheel (.whl), an sdist (.tar.gz, .zip) nor a folder, or is damaged")
    readable = tarball_as_zip(path, cache_dir / "sdists" / f"{file_hash(path)}.zip") if tar else path
    store = ZipStore(readable, path.name)
    kind = kind or ("sdist" if tar or not path.name.endswith(".whl") else "wheel")
    source = Source(name="", version=None, root=path.name, kind=kind, requested=requested)
    return tree_in(store, source, where=f"in {path.name}", package=package)


def file_hash(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check_members(members: Iterable[zipfile.ZipInfo], shown: str, packed: int) -> None:
    """Raise InputError for names that climb out, links, devices, secrets, duplicates and bombs."""
    limits = Limits(shown, packed)
    count: Counter[str] = Counter()
    for info in members:
        refuse_name(info.orig_filename, shown)
        mode = (info.external_attr >> 16) & _KIND_OF_FILE
        if mode not in (0, _REGULAR, _FOLDER):
            what = "a link" if mode == _LINK else "a device or another special file"
            raise InputError(f"{shown} is refused: its member {info.filename!r} is {what}")
        if info.flag_bits & _ENCRYPTED:
            raise InputError(f"{shown} is refused: its member {info.filename!r} is encrypted")
        limits.add(info.filename, info.file_size)
        count[info.filename] += 1
        if count[info.filename] > 1:
            raise InputError(f"{shown} is refused: it has two members named {info.filename!r}")
