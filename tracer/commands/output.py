"""What the commands print: text for people, in colour on a terminal, or JSON."""

from __future__ import annotations

import sys
from typing import Any

from sgltrace.model import Guard


def print_json(data: Any) -> None:
    """Print plain data or msgspec structs as indented JSON with sorted keys."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(data, order="deterministic"), indent=2).decode())


def say(text: str) -> None:
    """Print a line of text; what a source tree has in its names cannot steer the terminal."""
    print(printable(text))


def printable(text: str) -> str:
    """``text`` with control characters escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_table(rows: list[tuple[str, str]]) -> None:
    """Print labels and texts in two columns; the labels stand out on a terminal."""
    width = max(len(label) for label, _ in rows)
    last = None
    for label, text in rows:
        shown = "" if label == last else label
        print(f"{bold(shown.ljust(width))}  {printable(text)}")
        last = label


def bold(text: str) -> str:
    """``text`` in bold where standard output is a terminal."""
    return f"\x1b[1m{printable(text)}\x1b[0m" if sys.stdout.isatty() else printable(text)


def guard_text(guard: Guard) -> str:
    """A guard in words: ``if not batch.is_empty()``, ``unless an earlier return: x is None``, ``in loop ...``."""
    if guard.kind == "if":
        return f"if {guard.text}" if guard.holds else f"if not ({guard.text})"
    if guard.kind == "return":
        return f"left earlier unless {guard.text}" if guard.holds else f"left earlier if {guard.text}"
    return f"{guard.kind} {guard.text}".strip()
