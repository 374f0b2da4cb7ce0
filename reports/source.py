"""The indexed source as the report reads it: lines of a file, and highlighted excerpts with marks."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from typing import Protocol

from sgltrace.errors import InputError
from sgltrace.reports.highlight import highlight, plain

LONGEST = 1500
"""Lines of one excerpt that are shown; the rest is left to the editor, and the page says so."""

HERE = "here"
"""The note of a line of which nothing more is to be said."""


class Source(Protocol):
    """What the report needs of a source tree."""

    def read(self, path: str, /) -> bytes | None:
        """The bytes of a file; None, or an ``InputError``, where it cannot be read."""
        ...


@dataclass(slots=True)
class Line:
    """A line of an excerpt: its number, its inert HTML, and what is said about it (empty where nothing)."""

    number: int
    html: str
    note: str = ""


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a file. ``cut`` counts the lines that were left out at the end."""

    file: str
    lines: list[Line]
    cut: int = 0


class SourceReader:
    """Reads each file once, none where the caller has no source, and keeps the highlighted lines asked for."""

    def __init__(self, source: Source | None) -> None:
        self._source = source
        self._files: dict[str, list[str]] = {}
        self._spans: dict[tuple[str, int, int], list[str]] = {}

    def lines(self, file: str) -> list[str]:
        """The file's lines without their ends, empty where the file cannot be read. Counted as Python counts them."""
        if file not in self._files:
            data = self._bytes(file)
            text = "" if data is None else _decode(data)
            self._files[file] = text.replace("\r\n", "\n").replace("\r", "\n").split("\n") if text else []
        return self._files[file]

    def _bytes(self, file: str) -> bytes | None:
        if self._source is None:
            return None
        try:
            return self._source.read(file)
        except InputError:  # the page says that the file could not be read
            return None

    def span(self, file: str, first: int, last: int) -> list[str]:
        """The highlighted lines ``first`` to ``last``, without the indentation that they share."""
        key = (file, first, last)
        if key not in self._spans:
            lines = self.lines(file)[max(0, first - 1) : last]
            indent = _shared_indent(lines)
            mark = highlight if file.endswith((".py", ".pyi")) else plain
            self._spans[key] = mark([line[indent:] for line in lines]) if lines else []
        return self._spans[key]

    def function(self, file: str, first: int, last: int, notes: dict[int, str] | None = None) -> Excerpt:
        """A whole function, with notes on some of its lines."""
        notes = notes or {}
        shown = self.span(file, first, min(last, first + LONGEST - 1))
        lines = [Line(number, text, notes.get(number, "")) for number, text in enumerate(shown, first)]
        return Excerpt(file, lines, max(0, last - first + 1 - LONGEST))

    def around(self, file: str, bounds: tuple[int, int], notes: dict[int, str], context: int = 4) -> list[Excerpt]:
        """The noted lines of a function with ``context`` lines around them, those that meet joined to one excerpt."""
        first, last = bounds
        last = min(last, first + LONGEST - 1)
        shown = self.span(file, first, last)
        last = first + len(shown) - 1
        ranges: list[list[int]] = []
        for line in sorted(line for line in notes if first <= line <= last):
            low, high = max(first, line - context), min(last, line + context)
            if ranges and low <= ranges[-1][1] + 2:
                ranges[-1][1] = high
            else:
                ranges.append([low, high])
        return [
            Excerpt(file, [Line(n, shown[n - first], notes.get(n, "")) for n in range(low, high + 1)])
            for low, high in ranges
        ]


def _decode(data: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, UnicodeDecodeError):
        encoding = "utf-8"
    return data.decode(encoding, errors="replace")


def _shared_indent(lines: list[str]) -> int:
    widths = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip()]
    return min(widths, default=0)
