"""The indexed source as the report reads it: lines of a file, and which of them a page shows, with marks."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass, field
from typing import Protocol

from sgltrace.errors import InputError
from sgltrace.reports.text import visible

LONGEST = 1500
"""Lines of one excerpt that are shown; the rest is left to the editor, and the page says so."""


class Source(Protocol):
    """What the report needs of a source tree."""

    def read(self, path: str, /) -> bytes | None:
        """The bytes of a file; None, or an ``InputError``, where it cannot be read."""
        ...


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a file, which the browser fetches and highlights. ``cut`` counts those left out at the end.

    ``notes`` has what is said of a line by its number; it is empty where the line is only marked.
    """

    file: str
    first: int
    last: int
    notes: dict[int, str] = field(default_factory=dict)
    cut: int = 0


class SourceReader:
    """Reads each file once, none where the caller has no source."""

    def __init__(self, source: Source | None) -> None:
        self._source = source
        self._files: dict[str, list[str]] = {}

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

    def pieces(self, file: str, ranges: list[tuple[int, int]]) -> list[tuple[int, str]]:
        """The text of some ranges of lines, those that meet joined: each with its first line, what hides visible."""
        lines = self.lines(file)
        joined: list[list[int]] = []
        for first, last in sorted(ranges):
            if joined and first <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
        return [(first, visible("\n".join(lines[first - 1 : last]))) for first, last in joined if first <= len(lines)]

    def function(self, file: str, first: int, last: int) -> Excerpt | None:
        """A whole function; None where the file cannot be read or has no such line."""
        end = min(last, first + LONGEST - 1, len(self.lines(file)))
        return Excerpt(file, first, end, cut=max(0, last - first + 1 - LONGEST)) if end >= first else None

    def around(self, file: str, bounds: tuple[int, int], notes: dict[int, str], context: int = 4) -> list[Excerpt]:
        """The noted lines of a function with ``context`` lines around them, those that meet joined to one excerpt."""
        first, last = bounds
        last = min(last, first + LONGEST - 1, len(self.lines(file)))
        ranges: list[list[int]] = []
        for line in sorted(line for line in notes if first <= line <= last):
            low, high = max(first, line - context), min(last, line + context)
            if ranges and low <= ranges[-1][1] + 2:
                ranges[-1][1] = high
            else:
                ranges.append([low, high])
        return [
            Excerpt(file, low, high, {line: note for line, note in notes.items() if low <= line <= high})
            for low, high in ranges
        ]


def _decode(data: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, UnicodeDecodeError):
        encoding = "utf-8"
    return data.decode(encoding, errors="replace")
