"""Where the sources lie that are edited, and the copies made of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .registry import Copy, Edit

TOYSGL = Path(__file__).parents[2] / "fixtures" / "toysgl"


class Sources:
    """Unpacked releases, each in a folder named after its version that holds ``sglang/``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, release: str) -> Path:
        """The folder of a release; it is downloaded where it is not there."""
        if release == "toysgl":
            return TOYSGL
        if not (self.folder / release / "sglang").is_dir():
            self._download(release)
        return self.folder / release

    def _download(self, release: str) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch]
            subprocess.run([*command, f"sglang=={release}"], check=True)
            wheel = next(Path(scratch).glob("*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.startswith("sglang")]
                archive.extractall(self.folder / release, names)


def copy(source: Path, dest: Path) -> Copy:
    """Copy what an index reads: the package, and its metadata for the version."""
    ignore = shutil.ignore_patterns("__pycache__", "*.so", "*.json")
    for folder in sorted(source.iterdir()):
        if folder.name in ("sglang", "toysgl") or folder.name.startswith("sglang-"):
            shutil.copytree(folder, dest / folder.name, ignore=ignore)
    return Copy(dest)


def make(edits: list[Edit], sources: Sources, dest: Path) -> None:
    """Make a copy with some edits of one release in it."""
    releases = {e.release for e in edits}
    if len(releases) != 1:
        sys.exit(f"one copy is of one release, not of {', '.join(sorted(releases))}")
    copied = copy(sources.get(releases.pop()), dest)
    for e in edits:
        e.apply(copied)
    copied.compile()
