"""The edits by name, and the copy of a source that an edit changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .checks import Check

Sort = Literal["removed", "added", "harmless", "same"]


class Copy:
    """A copy of a source that is being edited. Paths are below ``sglang/srt``."""

    def __init__(self, root: Path) -> None:
        """Take the folder that holds ``sglang/``."""
        self.root = root
        self.srt = root / "sglang" / "srt"
        self.changed: set[Path] = set()

    def replace(self, path: str, *pairs: tuple[str, str], after: str = "") -> None:
        """Replace the first occurrence of each text past the text ``after``; all must be there."""
        file = self.srt / path
        text = file.read_text(encoding="utf-8")
        start = self._find(file, text, after, 0) if after else 0
        for old, new in pairs:
            at = self._find(file, text, old, start)
            text = text[:at] + new + text[at + len(old) :]
        self._write(file, text)

    def replace_all(self, path: str, old: str, new: str, times: int) -> None:
        """Replace a text that must occur exactly ``times`` times."""
        file = self.srt / path
        text = file.read_text(encoding="utf-8")
        if text.count(old) != times:
            raise ValueError(f"{file}: {text.count(old)} times, not {times}: {old!r}")
        self._write(file, text.replace(old, new))

    def append(self, path: str, new: str) -> None:
        """Put text at the end of a file."""
        file = self.srt / path
        self._write(file, file.read_text(encoding="utf-8") + new)

    def create(self, path: str, new: str) -> None:
        """Write a file that must not be there yet."""
        file = self.srt / path
        if file.exists():
            raise ValueError(f"{file} is there already")
        self._write(file, new)

    def delete(self, path: str) -> None:
        """Delete a file."""
        (self.srt / path).unlink()

    def write(self, path: str, text: str) -> None:
        """Write a file that is there."""
        self._write(self.srt / path, text)

    def read(self, path: str) -> str:
        """The text of a file as it stands."""
        return (self.srt / path).read_text(encoding="utf-8")

    def cut(self, path: str, first: str, stop: str, after: str = "") -> str:
        """Take the text from ``first`` up to ``stop`` out of a file, and return it."""
        file = self.srt / path
        text = file.read_text(encoding="utf-8")
        start = self._find(file, text, after, 0) if after else 0
        begin = self._find(file, text, first, start)
        end = self._find(file, text, stop, begin + len(first))
        self._write(file, text[:begin] + text[end:])
        return text[begin:end]

    def rename(self, names: dict[str, str]) -> None:
        """Rename identifiers in all Python files; every old name must occur, and no new one."""
        words = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
        clash = re.compile(r"\b(" + "|".join(map(re.escape, names.values())) + r")\b")
        seen: set[str] = set()
        for file in self.root.rglob("*.py"):
            text = file.read_text(encoding="utf-8", errors="surrogateescape")
            if found := clash.search(text):
                raise ValueError(f"{file} has {found[0]!r} already")
            seen |= {found[0] for found in words.finditer(text)}
            new = words.sub(lambda match: names[match[1]], text)
            if new != text:
                self._write(file, new)
        if missing := names.keys() - seen:
            raise ValueError(f"nowhere in {self.root}: {', '.join(sorted(missing))}")

    def compile(self) -> None:
        """Raise SyntaxError where a changed file is no Python any more."""
        for file in sorted(self.changed):
            text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
            compile(text, str(file), "exec", dont_inherit=True)

    def _find(self, file: Path, text: str, wanted: str, start: int) -> int:
        at = text.find(wanted, start)
        if at < 0:
            raise ValueError(f"{file}: not there: {wanted!r}")
        return at

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
        self.changed.add(file)


@dataclass(frozen=True)
class Edit:
    """An edit of a release (``toysgl`` for the toy engine), and what an index of the copy must show."""

    name: str
    release: str
    sort: Sort
    text: str
    apply: Callable[[Copy], None]
    check: Check


EDITS: dict[str, Edit] = {}


def edit(release: str, sort: Sort, check: Check) -> Callable[[Callable[[Copy], None]], Callable[[Copy], None]]:
    """Register a function as the edit of its name."""

    def register(function: Callable[[Copy], None]) -> Callable[[Copy], None]:
        name = function.__name__
        if name in EDITS:
            raise ValueError(f"two edits are named {name}")
        EDITS[name] = Edit(name, release, sort, (function.__doc__ or "").strip(), function, check)
        return function

    return register
