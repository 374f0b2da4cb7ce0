"""Text for a terminal: what a file holds cannot steer it, and columns line up."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence


def printable(text: str) -> str:
    """``text`` with control characters escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def bold(text: str) -> str:
    """``text`` in bold where standard output is a terminal."""
    return f"\x1b[1m{printable(text)}\x1b[0m" if sys.stdout.isatty() else printable(text)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table. What looks like a number stands to the right; a column without a value in any row is left out.

    The head stands out on a terminal.
    """
    shown = [at for at in range(len(head)) if any(row[at] for row in rows)]
    widths = {at: max(len(head[at]), *(len(row[at]) for row in rows)) for at in shown}
    right = {at: all(_numeric(row[at]) for row in rows) for at in shown}

    def line(cells: Sequence[str]) -> str:
        parts = (cells[at].rjust(widths[at]) if right[at] else cells[at].ljust(widths[at]) for at in shown)
        return printable("  ".join(parts).rstrip())

    if shown:
        yield bold(line(head))
    for row in rows:
        yield line(row)


_NUMBER = re.compile(r"[-+]?\d[\d.,]*%?( \(.*\))?$")


def _numeric(text: str) -> bool:
    return not text or _NUMBER.match(text) is not None
