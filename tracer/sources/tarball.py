"""An sdist's compressed tar, read once from front to end into a zip of the files that matter."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from sgltrace.errors import InputError
from sgltrace.files import naming
from sgltrace.sources.limits import MAX_FILE, Limits, refuse_name

_OPENERS: dict[bytes, Callable[[Path], io.BufferedIOBase]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZ": bz2.BZ2File,
    b"\xfd7": lzma.LZMAFile,
}
_WANTED = (".py", "/PKG-INFO", "/pyproject.toml")
_STEP = 1 << 20


def is_tarball(path: Path) -> bool:
    """Whether the file is compressed as a tar would be (by its first bytes) or is a plain tar."""
    with path.open("rb") as stream:
        head = stream.read(512)
    return head[:2] in _OPENERS or head[257:262] == b"ustar"


def tarball_as_zip(path: Path, target: Path) -> Path:
    """``target``, written from the tar at ``path`` if missing. Raises InputError for a hostile or broken one."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(suffix=".zip", dir=target.parent)
    try:
        with naming(target), os.fdopen(handle, "wb") as stream, zipfile.ZipFile(stream, "w") as archive:
            _copy(path, archive)
        os.replace(temporary, target)  # noqa: PTH105 (replaces on every platform)
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile) as error:
        raise InputError(f"{path.name} is not a usable tar archive ({error}); fetch it again") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target


def _copy(path: Path, archive: zipfile.ZipFile) -> None:
    limits = Limits(path.name, path.stat().st_size)
    seen: set[str] = set()
    with _open(path) as plain, tarfile.open(fileobj=_Bounded(plain, path), mode="r:") as tar:
        for member in tar:
            refuse_name(member.name, path.name)
            if member.islnk() or member.issym():
                raise InputError(f"{path.name} is refused: its member {member.name!r} is a link")
            if not (member.isreg() or member.isdir()):
                raise InputError(f"{path.name} is refused: its member {member.name!r} is a device or special file")
            limits.add(member.name, member.size)
            if member.isdir():
                continue
            if member.name in seen:
                raise InputError(f"{path.name} is refused: it has two members named {member.name!r}")
            seen.add(member.name)
            if member.name.endswith(_WANTED) and (stream := tar.extractfile(member)) is not None:
                archive.writestr(zipfile.ZipInfo(member.name), stream.read())


def _open(path: Path) -> io.BufferedIOBase:
    with path.open("rb") as stream:
        head = stream.read(2)
    return _OPENERS[head](path) if head in _OPENERS else path.open("rb")


class _Bounded(io.RawIOBase):
    """A reader that moves forward only, and stops at the first sign of a bomb.

    A tar says in its headers how long the next header is, and tarfile believes it; and a gzip of zeros has a
    thousandth of their length. So both a single read and the sum of all are held below the limits.
    """

    def __init__(self, stream: io.BufferedIOBase, path: Path) -> None:
        self._stream = stream
        self._limits = Limits(path.name, path.stat().st_size)
        self._shown = path.name
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > MAX_FILE:
            raise InputError(f"{self._shown} is refused as a likely decompression bomb: a header of {size} bytes")
        data = self._stream.read(size)
        self._at += len(data)
        self._limits.check_total(self._at)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._at:
            raise tarfile.ReadError("the archive is read from front to end")
        while self._at < offset and self.read(min(_STEP, offset - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True
