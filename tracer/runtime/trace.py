"""A trace folder, opened: its processes and ranks, its steps, and what was recorded in them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import msgspec

from sgltrace.errors import InputError

from . import plan as plans
from .decode import Head, Loss, Record, read_head, read_segment
from .definitions import Interned
from .histogram import Kind, read_histogram
from .observations import CallPair
from .plan import Plan, Site
from .staging import RunInfo

MAX_JSON = 32 << 20
MERGED = "merge.json"
FILE = re.compile(r"(\d+-\d+(?:-\d+)?)\.(head|json|hist|(\d+)\.seg|calls\.json)")


class ProcessInfo(msgspec.Struct, kw_only=True):
    """What a process wrote of itself; all of it may be missing."""

    pid: int = 0
    parent: int = 0
    python: str = ""
    executable: str = ""
    door: str = ""
    fast: bool = False
    attached: list[int] = []
    missing: list[dict[str, Any]] = []
    messages: list[str] = []
    sources: dict[str, str | None] = {}
    identity: dict[str, Any] = {}
    config: dict[str, Any] = {}
    wrapper_ns: tuple[int, int] | None = None
    """What a wrapper was measured to cost beside what it records, and one that goes no further than its gate."""
    ctl: int = 0
    """The last request of ``sgltrace ctl`` that was taken up."""


class Node(msgspec.Struct, kw_only=True):
    """One machine of a merged run. Times in nanoseconds."""

    folder: str
    """Its trace, as it was named."""
    host: str = ""
    processes: list[str] = []
    """The names of its processes in the merged trace."""
    shift_ns: int = 0
    """What is added to its times, so that they are of the first node's clock."""
    matched: int = 0
    """Steps by which that was told; 0 where the wall clocks had to do."""
    spread_ns: int = 0
    """How much the difference of the clocks varied among nine tenths of them."""
    drift_ns: int = 0
    """By how much it changed from the first half of them to the second."""
    wall_ns: int | None = None
    """By how much the wall clocks say otherwise."""


class Merged(msgspec.Struct, kw_only=True):
    """``merge.json``: the nodes that a trace was put together from."""

    nodes: list[Node] = []


class ProcessTrace:
    """What one process recorded."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.head: Head | None = None
        self.info = ProcessInfo()
        self.loss = Loss()
        self.segments: list[int] = []
        self.shift_ns = 0
        """What is added to this process's times, so that they are of the first machine's clock."""
        self.twin = False
        """Whether another process has the same rank."""
        self._interned: Interned = {}

    @property
    def rank(self) -> str:
        """``tp0``, ``tp1 pp1`` ...: what tells ranks apart; the name if unknown."""
        ranks = ((short, self.info.identity.get(f"{short}_rank")) for short in ("tp", "pp", "dp"))
        parts = [f"{short}{rank}" for short, rank in ranks if isinstance(rank, int) and (short == "tp" or rank)]
        return " ".join([*parts, *([self.name] if self.twin or not parts else [])])

    def histogram(self) -> list[Kind]:
        """What was counted of every step, by mode, batch size and width; empty for traces before version 2.

        Raises ``ValueError``, ``OSError`` for a damaged file.
        """
        try:
            return read_histogram(self.folder / f"{self.name}.hist")
        except FileNotFoundError:
            return []

    def records(self, sites: Container[int] | None = None) -> Iterator[Record]:
        """The records in the order they were written, of ``sites`` alone if given. ``loss`` is counted anew."""
        self.loss = Loss()
        first = self.head.first_segment if self.head is not None else (self.segments[:1] or [0])[0]
        expected = self.head.next_segment if self.head is not None else first + len(self.segments)
        held = [n for n in self.segments if n >= first]
        self.loss.missing_segments = max(0, min(expected - first, 1 << 20) - len(held))
        for number in self.segments:
            try:
                path = self.folder / f"{self.name}.{number}.seg"
                yield from read_segment(path, self.loss, sites, self._interned, self.shift_ns)
            except (OSError, ValueError) as error:
                self.loss.unusable_files += 1
                self.loss.why.append(f"{self.name}.{number}.seg: {error}")


class Trace:
    """A trace folder. Nothing is changed in it."""

    def __init__(self, folder: Path) -> None:
        """Open ``folder``. Raises ``InputError`` if it is no trace."""
        self.folder = folder
        self.problems: list[str] = []
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; name one that `sgltrace run` wrote")
        self.plan = self._plan()
        self.run = self._json(folder / "run.json", RunInfo)
        merged = self._json(folder / MERGED, Merged)
        self.nodes: list[Node] = merged.nodes if merged is not None else []
        self.processes = self._processes()

    def _plan(self) -> Plan:
        try:
            return plans.decode(_read(self.folder / "plan.json"))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise InputError(
                f"{self.folder}: no readable plan.json ({error}); it is not a trace of sgltrace run"
            ) from None

    def _json(self, path: Path, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(_read(path), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            self.problems.append(f"{path.name}: {error}")
            return None

    def _processes(self) -> list[ProcessTrace]:
        found: dict[str, ProcessTrace] = {}
        for entry in sorted(path.name for path in self.folder.iterdir()):
            match = FILE.fullmatch(entry)
            if match is None:
                continue
            name, kind, number = match.groups()
            process = found.setdefault(name, ProcessTrace(self.folder, name))
            if kind == "head":
                try:
                    process.head = read_head(self.folder / entry)
                except (OSError, ValueError) as error:
                    self.problems.append(f"{entry}: {error}")
            elif kind == "json":
                process.info = self._json(self.folder / entry, ProcessInfo) or ProcessInfo()
            elif number is not None:
                process.segments.append(int(number))
        for node in self.nodes:
            for name in node.processes:
                if name in found:
                    found[name].shift_ns = node.shift_ns
        ranks = Counter(process.rank for process in found.values() if process.segments)
        for process in found.values():
            process.segments.sort()
            process.twin = ranks[process.rank] > 1
        return sorted(found.values(), key=lambda p: (p.rank == p.name, p.rank, p.name))

    def recording(self) -> list[ProcessTrace]:
        """The processes that recorded something, by rank."""
        return [process for process in self.processes if process.segments]

    def site(self, number: int) -> Site | None:
        """The site that records call ``number``."""
        return self.plan.sites[number - 1] if 0 < number <= len(self.plan.sites) else None

    def config(self) -> dict[str, Any]:
        """The server's configuration, as the first rank had it."""
        return next((process.info.config for process in self.recording() if process.info.config), {})

    def call_pairs(self) -> list[CallPair]:
        """Who called whom in the window of ``--calls``, over all processes, sorted."""
        counts: dict[tuple[str, str, int, int], int] = {}
        for process in self.processes:
            pairs = self._json(self.folder / f"{process.name}.calls.json", list[tuple[str, int, str, int, int]])
            for caller, caller_line, callee, callee_line, count in pairs or ():
                key = (caller, callee, caller_line, callee_line)
                counts[key] = counts.get(key, 0) + count
        return [
            CallPair(caller=caller, callee=callee, caller_line=line, callee_line=callee_line, count=count)
            for (caller, callee, line, callee_line), count in sorted(counts.items())
        ]


def read_trace(folder: Path | str) -> Trace:
    """Open a trace folder, of a run that ended or goes on. Raises ``InputError``."""
    return Trace(Path(folder))


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        data = file.read(MAX_JSON + 1)
    if len(data) > MAX_JSON:
        raise ValueError(f"larger than {MAX_JSON} bytes")
    return data
