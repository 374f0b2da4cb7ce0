"""The ``.sgltrace/`` folder: ``index.json``, the report, and a stamp that says what they were made from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from sgltrace.errors import InputError
from sgltrace.files import locked, write_atomically
from sgltrace.model import SCHEMA, Index

DEFAULT = ".sgltrace"
_STAMP_SCHEMA = "sgltrace.workspace/1"


class Stamp(msgspec.Struct, kw_only=True):
    """What a workspace was made from. Two equal ``index_key`` mean that indexing again would give the same."""

    schema: str = _STAMP_SCHEMA
    requested: str = ""
    """``SRC`` as given, with an absolute path where it was one: opens the source again from any folder."""
    package: str | None = None
    """``--package`` as given."""
    index_key: str = ""
    report_key: str = ""
    """Of the options of the report that lies in the workspace; empty where there is none."""
    summary: dict[str, Any] = {}
    index_file: tuple[int, int] | None = None
    """Size and time of change (ns) of the index that the stamp speaks of; a run beside this may replace it."""


class _SchemaOnly(msgspec.Struct):
    schema: str


class Workspace:
    """A workspace folder. ``to_write`` for making one, ``open`` for one that is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index_file = folder / "index.json"
        self.report_folder = folder / "report"
        self._stamp_file = folder / "stamp.json"
        self._runs_file = folder / "runs.json"
        self._experiments_file = folder / "experiments.json"

    @classmethod
    def to_write(cls, folder: Path) -> Workspace:
        """The workspace that may be written at ``folder``; nothing is made yet. Raises InputError for another's folder.

        A folder with anything in it is another's unless a workspace's stamp lies there.
        """
        workspace = cls(folder)
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; give -o a folder of its own")
        if folder.is_dir() and any(folder.iterdir()) and workspace._raw_stamp() is None:
            raise InputError(f"{folder} is not empty and not a workspace of sgltrace; give -o a folder of its own")
        return workspace

    @classmethod
    def open(cls, folder: Path) -> Workspace:
        """The workspace at ``folder``. Raises InputError where there is none, or no finished index in it."""
        workspace = cls(folder)
        if not workspace.index_file.is_file():
            raise InputError(f"there is no index in {folder}; make one with `sgltrace index SRC -o {folder}`")
        return workspace

    def stamp(self) -> Stamp:
        """The stamp; an empty one where it is missing, damaged or another version's, so that all is made anew."""
        try:
            stamp = msgspec.json.decode(self._raw_stamp() or b"{}", type=Stamp)
        except msgspec.MsgspecError:
            return Stamp()
        valid = stamp.schema == _STAMP_SCHEMA and stamp.index_file == self._state_of_index()
        return stamp if valid else Stamp()

    def write_stamp(self, stamp: Stamp) -> None:
        """Replace the stamp; it speaks of the index that lies there now."""
        stamp.index_file = self._state_of_index()
        write_atomically(self._stamp_file, msgspec.json.encode(stamp, order="deterministic") + b"\n")

    def write_index(self, index: Index) -> None:
        """Replace ``index.json``. The stamp is emptied first, and the report goes: they speak of another index."""
        self.write_stamp(Stamp())
        shutil.rmtree(self.report_folder, ignore_errors=True)
        write_atomically(self.folder / ".gitignore", b"*\n")
        write_atomically(self.index_file, encode_index(index))

    def runs(self) -> list[Path]:
        """The traces that belong to the workspace, in the order they were recorded."""
        return _kept(self._runs_file, "runs")

    def add_run(self, trace: Path) -> None:
        """Remember a trace. Nothing of it is copied. Runs that end at once are added one after the other."""
        self._keep(self._runs_file, "runs", trace)

    def experiments(self) -> list[Path]:
        """The kept experiments of `sgltrace whatif` that belong to the workspace."""
        return _kept(self._experiments_file, "experiments")

    def add_experiment(self, kept: Path) -> None:
        """Remember an experiment. Nothing of it is copied."""
        self._keep(self._experiments_file, "experiments", kept)

    def _keep(self, file: Path, what: str, place: Path) -> None:
        with locked(self.folder / ".runs.lock"):
            known = [str(path) for path in _kept(file, what)]
            if str(place.absolute()) not in known:
                write_atomically(file, msgspec.json.encode([*known, str(place.absolute())]) + b"\n")

    def load_index(self) -> Index:
        """Read ``index.json``. Raises InputError where it is damaged or another version's."""
        return load_index(self.index_file)

    def replace_report(self, finished: Path) -> None:
        """Put the finished report folder ``finished`` in the place of the one that is there, which takes its own.

        Another run may do the same at the same moment; then the later one's stays.
        """
        replaced = finished.with_name("replaced")
        while True:
            if self.report_folder.exists():
                self.report_folder.rename(replaced)
            try:
                finished.rename(self.report_folder)
            except OSError:
                if not self.report_folder.exists():
                    raise
                shutil.rmtree(replaced, ignore_errors=True)
                continue
            return

    def state(self) -> object:
        """Changes whenever the index or the list of runs does."""
        runs = self._runs_file.stat().st_mtime_ns if self._runs_file.is_file() else None
        return self._state_of_index(), runs

    def _state_of_index(self) -> tuple[int, int] | None:
        if not self.index_file.is_file():
            return None
        stat = self.index_file.stat()
        return stat.st_size, stat.st_mtime_ns

    def _raw_stamp(self) -> bytes | None:
        return self._stamp_file.read_bytes() if self._stamp_file.is_file() else None


def encode_index(index: Index) -> bytes:
    """The bytes of ``index.json``: the same index gives the same bytes."""
    return msgspec.json.encode(index, order="deterministic") + b"\n"


def load_index(path: Path) -> Index:
    """Read an ``index.json``. Raises InputError where it is missing, damaged or another version's."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    again = f"make it again with `sgltrace index SRC -o {path.parent}`"
    try:
        schema = msgspec.json.decode(data, type=_SchemaOnly).schema
    except msgspec.ValidationError as error:
        raise InputError(f"{path} is not an index of sgltrace ({error}); {again}") from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is damaged ({error}); {again}") from error
    if schema != SCHEMA:
        raise InputError(f"{path} has the schema {schema}, and this sgltrace reads {SCHEMA}; {again}")
    try:
        return msgspec.json.decode(data, type=Index)
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is damaged ({error}); {again}") from error


def _kept(file: Path, what: str) -> list[Path]:
    """The places that a file of the workspace lists."""
    try:
        return [Path(path) for path in msgspec.json.decode(file.read_bytes(), type=list[str])]
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        raise InputError(f"{file} is damaged ({error}); remove it, and name {what} again") from error
