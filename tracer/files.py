"""The user's cache folder, and writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CACHE_VARIABLE = "SGLTRACE_CACHE_DIR"
PRIVATE = 0o700


def user_cache_dir() -> Path:
    """The folder for what can be made again: ``SGLTRACE_CACHE_DIR``, or the platform's place for caches.

    It is made for its owner alone: it keeps what was read of sources that may not be everybody's. Where it cannot be
    made, whoever uses it finds out.
    """
    folder = _cache_place()
    with contextlib.suppress(OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=PRIVATE, exist_ok=True)
        if CACHE_VARIABLE not in os.environ:  # one made by an earlier version was everybody's to read
            folder.chmod(PRIVATE)
    return folder


def _cache_place() -> Path:
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sgltrace"


@contextlib.contextmanager
def naming(place: Path) -> Iterator[None]:
    """An error of the disk that names no file names this place: "no space left" alone helps nobody."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(place)
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` by renaming a finished file, so that two runs at once do no harm.

    The parent folder is made when it is missing. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with naming(path), os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o644)  # noqa: PTH101 (mkstemp's files are private; these are for others to read)
        os.replace(temporary, path)  # noqa: PTH105 (replaces on every platform)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` alone, after whoever has it. The system frees it, whatever becomes of the holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
