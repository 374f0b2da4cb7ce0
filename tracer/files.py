"""The user's cache folder, and writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

CACHE_VARIABLE = "SGLTRACE_CACHE_DIR"


def user_cache_dir() -> Path:
    """The folder for what can be made again: ``SGLTRACE_CACHE_DIR``, or the platform's place for caches."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sgltrace"


def write_atomically(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` by renaming a finished file, so that two runs at once do no harm.

    The parent folder is made when it is missing. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o644)  # noqa: PTH101 (mkstemp's files are private; these are for others to read)
        os.replace(temporary, path)  # noqa: PTH105 (replaces on every platform)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
