"""Watches the Python processes that a command starts, through /proc, and says which of them the probe did not enter
and why. Nothing is done to them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(t|d)?$")
_SECRET = re.compile(r"(key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)


class Process(msgspec.Struct, kw_only=True):
    """A process that was seen. ``start`` is in clock ticks since boot, and with ``pid`` never repeats."""

    pid: int
    start: int
    parent: int
    command: list[str]
    python: bool
    pythonpath: str | None = None
    traced: bool = False
    """Whether it got the variables that lead to the probe."""
    alive: bool = True
    arguments: int = 0
    """Where its arguments lie in memory; 0 if that cannot be told."""
    programs: int = 1
    """How many programs it ran one after the other, that were seen: ``exec`` keeps its id."""
    exit_code: int | None = None
    """How it ended, as shells report it, where it was seen before its parent had asked."""

    @property
    def name(self) -> str:
        """What its trace files are called."""
        return f"{self.pid}-{self.start}"


class Watcher:
    """The tree of processes under ``root``, kept up to date by ``look``."""

    def __init__(self, root: int, folder: Path) -> None:
        self.root = root
        self.folder = folder
        self.seen: dict[tuple[int, int], Process] = {}

    def look(self) -> None:
        """Note processes that are new, and those that ended."""
        table = _process_table()
        below = {self.root} if self.root in table else set()
        below |= {pid for (pid, start), p in self.seen.items() if p.alive and table.get(pid, _GONE)[1] == start}
        grown = True
        while grown:
            new = {pid for pid, (parent, *_) in table.items() if parent in below} - below
            below |= new
            grown = bool(new)
        for pid in below:
            parent, start, arguments = table[pid]
            if (pid, start) not in self.seen:
                process = _read(pid, start, parent, self.folder)
                if process is not None:
                    process.arguments = arguments
                    self.seen[pid, start] = process
            else:
                self._look_again(pid, start, parent, arguments)
        for (pid, start), process in self.seen.items():
            process.alive = table.get(pid, _GONE)[1] == start
            if process.alive and process.exit_code is None:
                process.exit_code = _exit_code(pid)

    def _look_again(self, pid: int, start: int, parent: int, arguments: int) -> None:
        """A fork may have become a Python by ``exec`` since, and a Python another one."""
        before = self.seen[pid, start]
        replaced = arguments and before.arguments and arguments != before.arguments
        if before.python and not replaced:
            return  # what it calls itself may have changed: servers write over their command line and environment
        again = _read(pid, start, parent, self.folder)
        if again is not None:
            again.programs = before.programs + (before.python and again.python)
            again.arguments = arguments
            self.seen[pid, start] = again

    def _attached(self, process: Process) -> bool:
        """Whether the probe is in the last program that it ran."""
        name = process.name if process.programs == 1 else f"{process.name}-{process.programs - 1}"
        return (self.folder / f"{name}.head").exists()

    def alive(self) -> list[Process]:
        """Processes that were alive at the last look."""
        return [process for process in self.seen.values() if process.alive]

    def python(self) -> list[Process]:
        """Python processes, in order of their start."""
        return sorted((p for p in self.seen.values() if p.python), key=lambda p: (p.start, p.pid))

    def _forked_from_attached(self, process: Process) -> bool:
        """Whether it is a fork of a process that has the probe: it has it too, and writes once it records."""
        parents = {p.pid: p for p in self.seen.values() if p.start <= process.start}
        while (parent := parents.get(process.parent)) is not None and parent.command == process.command:
            if (self.folder / f"{parent.name}.head").exists():
                return True
            if parent is process:
                break
            process = parent
        return False

    def why_not_attached(self, process: Process) -> str | None:
        """None if the probe is in ``process``, else the reason as far as it can be told from outside."""
        if self._attached(process) or (process.programs == 1 and self._forked_from_attached(process)):
            return None
        options = _python_options(process.command)
        for letter, meaning in (("I", "isolated mode"), ("E", "PYTHON* variables ignored"), ("S", "no site module")):
            if letter in options:
                return f"python was started with -{letter} ({meaning})"
        if not self.folder.is_dir():
            return "the trace folder is gone"
        if not process.traced:
            return "its environment does not hold SGLTRACE_DIR (started with an environment of its own)"
        earlier = _earlier_sitecustomize(process.pythonpath, self.folder / "probe")
        if earlier is not None:
            return f"{earlier} comes first on its PYTHONPATH and does not run the next sitecustomize"
        if str(self.folder / "probe") not in (process.pythonpath or "").split(os.pathsep):
            return (
                "something between set PYTHONPATH anew, without the probe's folder; have it add to PYTHONPATH instead"
            )
        if not os.access(self.folder, os.W_OK):
            return "the trace folder cannot be written to"
        return "it ended, or was seen, before the probe had started; or its Python is older than 3.10"


_GONE = (0, 0, 0)


def is_running(name: str) -> bool:
    """Whether the process whose files are called ``name`` (``<pid>-<start>``) still runs on this machine."""
    pid, start, *_ = [*name.split("-"), ""]
    try:
        fields = Path("/proc", pid, "stat").read_bytes().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return False
    return fields[19].decode() == start and fields[0] != b"Z"


def redacted(command: list[str]) -> list[str]:
    """A command line without the values of options that look like secrets."""
    shown = []
    hide = False
    for word in command:
        if hide and not word.startswith("-"):
            shown.append("***")
            hide = False
            continue
        hide = False
        name, equals, _ = word.partition("=")
        if _SECRET.search(name) and word.startswith("-"):
            shown.append(f"{name}=***" if equals else word)
            hide = not equals
        elif _SECRET.search(name) and equals:
            shown.append(f"{name}=***")
        else:
            shown.append(word)
    return shown


def _process_table() -> dict[int, tuple[int, int, int]]:
    """``pid`` to parent, start time, and where its arguments lie in memory, which only ``exec`` changes."""
    table = {}
    for entry in (path.name for path in Path("/proc").iterdir()):
        if not entry.isdigit():
            continue
        try:
            fields = Path("/proc", entry, "stat").read_bytes().rsplit(b")", 1)[1].split()
        except (OSError, IndexError):
            continue  # it ended in between
        table[int(entry)] = int(fields[1]), int(fields[19]), int(fields[45]) if len(fields) > 45 else 0
    return table


def _read(pid: int, start: int, parent: int, folder: Path) -> Process | None:
    base = Path("/proc", str(pid))
    command = _command(base)
    if command is None:
        return None
    try:
        program = (base / "exe").readlink().name
    except OSError:
        program = Path(command[0]).name if command else ""
    environment = _environment(base)
    return Process(
        pid=pid,
        start=start,
        parent=parent,
        command=command,
        python=bool(_PYTHON.match(program)),
        pythonpath=environment.get("PYTHONPATH"),
        traced=environment.get("SGLTRACE_DIR") == str(folder),
    )


def _command(base: Path) -> list[str] | None:
    try:
        words = base.joinpath("cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return None
    while len(words) > 1 and not words[-1]:  # servers that rename themselves leave the rest of the line empty
        words.pop()
    return [word.decode("utf-8", "replace").rstrip() for word in words]


def _exit_code(pid: int) -> int | None:
    """How a process ended whose parent has not asked yet; None where it runs, or may not be looked at."""
    try:
        fields = Path("/proc", str(pid), "stat").read_bytes().rsplit(b")", 1)[1].split()
        if fields[0] != b"Z" or len(fields) < 50:
            return None
        status = int(fields[49])
    except (OSError, IndexError, ValueError):
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _environment(base: Path) -> dict[str, str]:
    try:
        raw = base.joinpath("environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _python_options(command: list[str]) -> str:
    """The letters of the interpreter's own options, ``IEs`` for ``python -I -Es script``."""
    letters = ""
    words = command[1:]
    while words and words[0].startswith("-") and not words[0].startswith("--"):
        word = words.pop(0)
        stop = next((at for at, letter in enumerate(word) if letter in "mcXW"), None)
        letters += word[1:stop]
        if stop is not None:
            if word[stop] in "mc":
                break
            if stop == len(word) - 1 and words:
                words.pop(0)
    return letters


def _earlier_sitecustomize(pythonpath: str | None, door: Path) -> str | None:
    for entry in (pythonpath or "").split(os.pathsep):
        if entry == str(door):
            return None
        if entry and Path(entry, "sitecustomize.py").exists():
            return str(Path(entry, "sitecustomize.py"))
    return None
