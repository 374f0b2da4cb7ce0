"""Which sgltrace this is: a workspace made by another one is out of date."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from sgltrace import __version__


def tool_fingerprint() -> str:
    """A text that changes with the version, and with any of the program's own files (names, sizes, times).

    What Python keeps beside them does not count: it comes and goes while modules are imported for the first time.
    """
    digest = hashlib.sha256(__version__.encode())
    for folder in _folders():
        for path in sorted(folder.rglob("*")):
            if "__pycache__" not in path.parts and path.suffix != ".pyc" and path.is_file():
                stat = path.stat()
                digest.update(f"{path.relative_to(folder)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _folders() -> list[Path]:
    """The program's folders: one when installed, three in an editable install."""
    folders: list[Path] = []
    for package in ("sgltrace", "sgltrace.reports", "sgltrace.templates"):
        spec = importlib.util.find_spec(package)
        folders += [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    return sorted(set(folders))
