"""The status line of a run: the last line of the terminal, kept out of the way of what the server prints."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from .decode import read_head


class Progress(msgspec.Struct, kw_only=True):
    """What the heads of a trace folder say so far."""

    attached: int = 0
    recording: int = 0
    steps: int = 0
    records: int = 0
    size: int = 0
    dropped_records: int = 0
    stopped: list[str] = []


def progress(folder: Path) -> Progress:
    """Look at the heads and sizes in ``folder``; nothing is an error here."""
    seen = Progress()
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return seen
    for entry in entries:
        try:
            if entry.name.endswith(".seg"):
                seen.size += entry.stat(follow_symlinks=False).st_size
            elif entry.name.endswith(".head"):
                head = read_head(Path(entry.path))
                seen.attached += 1
                seen.recording += head.records > 0
                seen.steps = max(seen.steps, head.last_step)
                seen.records += head.records
                seen.dropped_records += head.dropped_records
                if head.reason:
                    seen.stopped.append(f"process {head.pid}: {head.reason}")
        except (OSError, ValueError):
            continue
    return seen


class StatusLine:
    """One line at the foot of a terminal: the terminal scrolls above it. Does nothing where there is no terminal."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._rows = 0

    def show(self, text: str) -> None:
        """Show ``text``, cut to the terminal's width."""
        if not self.on:
            return
        try:
            columns, rows = os.get_terminal_size(sys.stderr.fileno())
        except OSError:
            self.on = False
            return
        if rows < 3:
            return
        out = ""
        if rows != self._rows:
            # Make room below the cursor, then let only the rows above the last one scroll.
            out += f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A"
            self._rows = rows
        out += f"\x1b7\x1b[{rows};1H\x1b[2K\x1b[2m{text[: columns - 1]}\x1b[22m\x1b8"
        sys.stderr.write(out)
        sys.stderr.flush()

    def clear(self) -> None:
        """Give the terminal back as it was."""
        if self.on and self._rows:
            sys.stderr.write(f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[2K\x1b8")
            sys.stderr.flush()
            self._rows = 0


def size_text(size: int) -> str:
    """``3.2 MB``."""
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
