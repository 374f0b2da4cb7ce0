"""What the commands print: text for people, in colour on a terminal, or JSON."""

from __future__ import annotations

from typing import Any

from sgltrace.model import Guard
from sgltrace.terminal import bold, printable

__all__ = ["bold", "guard_text", "print_json", "print_table", "printable", "say"]


def print_json(data: Any) -> None:
    """Print plain data or msgspec structs as indented JSON with sorted keys."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(data, order="deterministic"), indent=2).decode())


def say(text: str) -> None:
    """Print a line of text; what a source tree has in its names cannot steer the terminal."""
    print(printable(text))


def print_table(rows: list[tuple[str, str]]) -> None:
    """Print labels and texts in two columns; the labels stand out on a terminal."""
    width = max(len(label) for label, _ in rows)
    last = None
    for label, text in rows:
        shown = "" if label == last else label
        print(f"{bold(shown.ljust(width))}  {printable(text)}")
        last = label


def guard_text(guard: Guard) -> str:
    """A guard in words: ``if not batch.is_empty()``, ``unless an earlier return: x is None``, ``in loop ...``."""
    if guard.kind == "if":
        return f"if {guard.text}" if guard.holds else f"if not ({guard.text})"
    if guard.kind == "return":
        return f"left earlier unless {guard.text}" if guard.holds else f"left earlier if {guard.text}"
    return f"{guard.kind} {guard.text}".strip()
