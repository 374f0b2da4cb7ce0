"""A source tree: the modules of one SGLang package, wherever they are kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec

from sgltrace.errors import InputError
from sgltrace.model import Source
from sgltrace.sources.layout import PACKAGE, RUNTIME, Package, find_package_folder, find_version, package_name


class UnreadableFile(InputError):
    """A file of the tree that cannot be read; the rest of the tree can."""


class Store(Protocol):
    """Where the files of a tree lie. Names are relative to the store's root, with ``/``.

    ``unread`` says, after ``names`` was called, what had to be passed over, and why.
    """

    unread: dict[str, str]

    def names(self) -> list[str]:
        """Every regular file that the tree may use, sorted."""

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises UnreadableFile."""

    def fingerprint(self) -> str:
        """A text that changes when any of the files changes; cheap to make."""

    def locate(self, name: str) -> Path | None:
        """The file on disk, or None where it lies in an archive or in a git object."""


class SourceTree:
    """The modules of one package, read from a folder, an archive or a git revision.

    ``source`` says what it is, ``took`` tells the user in one line what was found, ``package`` is the top-level
    package (``sglang``). Paths are relative to the source root, the folder above the package, with ``/``.
    Reading works in the process that opened the tree and in forks of it.
    """

    def __init__(self, store: Store, package: Package, source: Source, took: str) -> None:
        self._store = store
        self._package = package
        self.package = package.name
        self.source = source
        self.took = took
        self.asked: set[str] = set()
        """The paths of the files that were read, or asked for, so far."""

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """Module name to path, sorted by name. Files that no ``import`` can name are left out."""
        found: dict[str, str] = {}
        for name in self._store.names():
            path = self._package.path_of(name)
            module = path and module_name(path)
            # Where `x.py` and `x/__init__.py` both exist, Python takes the folder.
            if path and module and (module not in found or path.endswith("/__init__.py")):
                found[module] = path
        return dict(sorted(found.items()))

    @property
    def unread(self) -> dict[str, str]:
        """Paths of what could not be looked into, with the reason; a folder's ends in ``/``."""
        list(self.modules)
        found = ((self._package.path_of(name), why) for name, why in self._store.unread.items())
        return {path: why for path, why in sorted(found, key=str) if path}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self._store.names())

    def read(self, path: str) -> bytes:
        """The bytes of the file at ``path``. Raises UnreadableFile, also where the tree has no such file."""
        self.asked.add(path)
        name = self._package.name_of(path)
        if name not in self._names:  # a path of a damaged index may lead anywhere
            raise UnreadableFile(f"there is no file {path} in {self.source.root}")
        return self._store.read(name)

    def read_module(self, module: str) -> bytes:
        """The bytes of a module. Raises KeyError for an unknown one, UnreadableFile for one not readable."""
        return self.read(self.modules[module])

    def locate(self, path: str) -> Path | None:
        """The file at ``path`` on the user's disk, for editors; None for archives and revisions."""
        return self._store.locate(self._package.name_of(path))

    @property
    def root_on_disk(self) -> Path | None:
        """The source root as a folder, to which paths may be joined; None for archives, revisions, renamed copies."""
        inside = self.locate(f"{self.package}/__init__.py")
        return inside.parent.parent if inside and inside.parent.name == self.package else None

    def fingerprint(self) -> str:
        """A text that changes when the tree does: names, sizes and times of a folder, the hash of an archive."""
        return f"{self.package}:{self._store.fingerprint()}"

    def with_files(self, files: Mapping[str, bytes | None], said: str) -> SourceTree:
        """The same tree with other files: the bytes of those at some paths, None where there is none any more.

        Nothing is written. ``said`` comes before the name under which the user knows the tree.
        """
        named = {self._package.name_of(path): data for path, data in files.items()}
        source = msgspec.structs.replace(self.source, requested=f"{said} {self.source.requested}")
        return SourceTree(_Changed(self._store, named), self._package, source, self.took)


class _Changed:
    """The files of a store with some of them replaced."""

    def __init__(self, store: Store, files: Mapping[str, bytes | None]) -> None:
        self.unread = store.unread
        self._store = store
        self._files = files

    def names(self) -> list[str]:
        kept = {name for name in self._store.names() if name not in self._files}
        return sorted(kept | {name for name, data in self._files.items() if data is not None})

    def read(self, name: str) -> bytes:
        if name not in self._files:
            return self._store.read(name)
        data = self._files[name]
        if data is None:
            raise UnreadableFile(f"there is no file {name}")
        return data

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self._store.fingerprint().encode("utf-8", "surrogateescape"))
        for name, data in sorted(self._files.items()):
            digest.update(f"\0{name}\0{'-' if data is None else len(data)}\0".encode("utf-8", "surrogateescape"))
            digest.update(data or b"")
        return digest.hexdigest()

    def locate(self, name: str) -> Path | None:
        return None if name in self._files else self._store.locate(name)


def module_name(path: str) -> str | None:
    """The dotted name by which Python imports the file at ``path``, or None where none can.

    >>> module_name("sglang/srt/server_args.py"), module_name("sglang/srt/__init__.py")
    ('sglang.srt.server_args', 'sglang.srt')
    """
    if not path.endswith(".py"):
        return None
    parts = path.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None


_METADATA = re.compile(r"[^/]+\.dist-info/METADATA|(?:[^/]+/)?PKG-INFO")


def tree_in(store: Store, source: Source, *, where: str, within: str = "", package: str | None = None) -> SourceTree:
    """The tree of the package that a store of many folders holds, ``within`` one of them.

    ``source`` lacks the name; its version is what is taken where no file says one. ``where`` tells the user what
    was looked into, ``package`` is the fork that the user named. Raises InputError where the store has no SGLang.
    """
    names = store.names()
    folder = find_package_folder(names, within, package)
    if folder is None:
        raise InputError(f"{source.requested} is not SGLang: no folder {PACKAGE}/{RUNTIME} with Python files {where}")
    present = set(names)

    def read(name: str) -> bytes | None:
        try:
            return store.read(name) if name in present else None
        except UnreadableFile:  # it says nothing about name and version; the rest of the tree does
            return None

    own = [name for name in names if name.startswith(f"{folder}/")]
    found = Package(folder, package_name(folder.rpartition("/")[2], own, read))
    version, said_by = find_version(
        found,
        read,
        metadata=filter(_METADATA.fullmatch, names),
        project=f"{found.parent}/pyproject.toml".lstrip("/"),
    )
    if version is None:
        version, said_by = source.version, "its name"
    told = f"version {version} from {said_by}" if version else "version unknown"
    return SourceTree(
        store,
        found,
        msgspec.structs.replace(
            source, name=found.name, version=version, below=found.parent if source.kind == "revision" else ""
        ),
        f"package {folder} {where}, {told}",
    )
