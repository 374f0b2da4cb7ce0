"""Finds the package and its version in a list of files, however they are laid out."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.parser import BytesHeaderParser

PACKAGE = "sglang"
RUNTIME = "srt"
"""The part of the package that serves; what makes a package SGLang's, also under another name."""

Reader = Callable[[str], "bytes | None"]
"""The bytes of a file of a store by its name, None where there is none."""

_RUNTIME_FILE = re.compile(rf"(?P<folder>(?:[^/]+/)*?[^/]+)/{RUNTIME}/.+\.py")
_OWN_IMPORT = re.compile(rf"^\s*(?:from|import)\s+(\w+)\.{RUNTIME}\b", re.MULTILINE)
_FILES_ASKED_FOR_NAME = 200


@dataclass(frozen=True)
class Package:
    """``folder`` is where a store keeps the package (empty: it is the store's root), ``name`` what imports call it."""

    folder: str
    name: str

    def path_of(self, name: str) -> str | None:
        """A store's name to a path below the source root, None for a file outside the package."""
        if not self.folder:
            return f"{self.name}/{name}"
        inside = name.removeprefix(f"{self.folder}/")
        return f"{self.name}/{inside}" if inside != name else None

    def name_of(self, path: str) -> str:
        """A path below the source root to the store's name for it."""
        inside = path.removeprefix(f"{self.name}/")
        return f"{self.folder}/{inside}" if self.folder else inside

    @property
    def parent(self) -> str:
        """The folder above the package in the store, empty for the store's root."""
        return self.folder.rpartition("/")[0]


def find_package_folder(names: Iterable[str], within: str = "", package: str | None = None) -> str | None:
    """The folder of a file list that holds SGLang's package: has a folder ``srt`` of Python files.

    ``within`` limits the search to that folder, itself included. One named ``package`` (``sglang`` unless the user
    named a fork) is taken before others, then the one with most files, then the shortest name.
    """
    counts: Counter[str] = Counter()
    for name in names:
        if match := _RUNTIME_FILE.fullmatch(name):
            counts[match["folder"]] += 1
    below = f"{within}/" if within else ""
    folders = [folder for folder in counts if f"{folder}/".startswith(below)]
    wanted = package or PACKAGE
    rank = {folder: (folder.rpartition("/")[2] != wanted, -counts[folder], len(folder), folder) for folder in folders}
    return min(folders, key=rank.__getitem__, default=None)


def package_name(folder_name: str, names: Iterable[str], read: Reader) -> str:
    """What the package calls itself in its own imports: a copy of ``sglang/`` under another folder name keeps it.

    ``names`` are the package's files. Falls back on the folder's name.
    """
    if folder_name == PACKAGE:
        return PACKAGE
    counts: Counter[str] = Counter()
    for name in [name for name in names if name.endswith(".py")][:_FILES_ASKED_FOR_NAME]:
        text = (read(name) or b"").decode("utf-8", errors="replace")
        counts.update(_OWN_IMPORT.findall(text))
    return min(counts, key=lambda name: (-counts[name], name), default=folder_name)


def find_version(package: Package, read: Reader, metadata: Iterable[str], project: str) -> tuple[str | None, str]:
    """The release's version and the file that says so: ``("0.5.9", "version.py")``, or ``(None, "")``.

    ``metadata`` names the files of the store that are a distribution's METADATA or PKG-INFO, ``project`` its
    pyproject.toml.
    """
    for name in metadata:
        headers = BytesHeaderParser().parsebytes(read(name) or b"")
        if headers["Name"] and headers["Version"]:
            return str(headers["Version"]).strip(), name
    for file in ("_version.py", "version.py", "__init__.py"):
        name = package.name_of(f"{package.name}/{file}")
        if version := _assigned_version(read(name) or b""):
            return version, name
    if version := _project_version(read(project) or b""):
        return version, project
    return None, ""


def _assigned_version(data: bytes) -> str | None:
    """``__version__ = "..."`` at the top level. One under ``try`` is a fallback, not the version."""
    try:
        body = ast.parse(data).body
    except (SyntaxError, ValueError):  # version files of a broken tree: the version is then unknown
        return None
    for statement in body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
            if "__version__" in names and isinstance(statement.value.value, str):
                return statement.value.value
    return None


def _project_version(data: bytes) -> str | None:
    """The static version of a pyproject.toml; SGLang's own is dynamic in later releases."""
    if not data:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        version = tomllib.loads(data.decode("utf-8")).get("project", {}).get("version")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return None
    return version if isinstance(version, str) else None
