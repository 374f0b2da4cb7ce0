"""What happened to a folder of sources since it was indexed, and how much of the work has to be done again.

An index is a function of the names of the modules and of the bytes that were read. So it stays as it is, to the byte,
where what changed was not read, or where its facts are the same: facts are all that the analysis takes from a file.
"""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.outline import without_bodies
from sgltrace.index.facts.parse import parse_source
from sgltrace.interpreter import deep_recursion
from sgltrace.sources import SourceTree, UndecodableSource, UnreadableFile, decode_source

Work = Literal["nothing", "report", "index"]


@dataclass(frozen=True)
class Broken:
    """A file that does not parse any more."""

    file: str
    line: int
    why: str


@dataclass
class State:
    """A folder as it was looked at: the content of its modules by path, and size and time of change of their files."""

    contents: dict[str, bytes]
    stamps: dict[str, tuple[int, int]]


@dataclass
class Difference:
    """What became of the modules between two states. ``broken`` files parse no more."""

    changed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """All of them."""
        return sorted([*self.changed, *self.added, *self.removed])


def look(tree: SourceTree, before: State | None = None) -> State:
    """The state of a tree in a folder. Files that look as they did ``before`` are not read again."""
    out = State({}, {})
    for path in tree.modules.values():
        stamp = out.stamps[path] = _stamp(tree, path)
        if before is not None and path in before.contents and before.stamps.get(path) == stamp:
            out.contents[path] = before.contents[path]
            continue
        try:
            out.contents[path] = tree.read(path)
        except UnreadableFile as error:
            out.contents[path] = str(error).encode()
    return out


def _stamp(tree: SourceTree, path: str) -> tuple[int, int]:
    file = tree.locate(path)
    try:
        stat = file.stat() if file is not None else None
    except OSError:
        stat = None
    return (-1, -1) if stat is None else (stat.st_size, stat.st_mtime_ns)


def differ(before: State, after: State) -> Difference:
    """What differs between two states, and which of it is broken."""
    old, new = before.contents, after.contents
    found = Difference(
        changed=sorted(path for path in old.keys() & new.keys() if old[path] != new[path]),
        added=sorted(new.keys() - old.keys()),
        removed=sorted(old.keys() - new.keys()),
    )
    for path in (*found.changed, *found.added):
        broken = _broken(path, after.contents[path])
        was = before.contents.get(path)
        if broken is not None and (was is None or _broken(path, was) is None):
            found.broken.append(broken)
    return found


def work_for(found: Difference, before: State, after: State, read: Collection[str] | None) -> Work:
    """How much has to be done again. ``read`` are the files that the last analysis read; None: nobody knows."""
    if not found.files:
        return "nothing"
    if read is None or found.added or found.removed:
        return "index"  # which modules there are decides what an import finds
    touched = [path for path in found.changed if path in read]
    if not touched:
        return "nothing"
    if not all(same_facts(before.contents[path], after.contents[path]) for path in touched):
        return "index"
    return "report"  # the same index; pages show the text


def same_facts(one: bytes, other: bytes) -> bool:
    """Whether the analysis takes the same from two texts of a file: lines and all, whole or in outline."""
    try:
        left, right = decode_source(one), decode_source(other)
    except UndecodableSource:
        return False
    return s.encode(parse_source(left)) == s.encode(parse_source(right)) and s.encode(
        parse_source(without_bodies(left))
    ) == s.encode(parse_source(without_bodies(right)))


def _broken(path: str, data: bytes) -> Broken | None:
    try:
        with deep_recursion():
            ast.parse(decode_source(data))
    except UndecodableSource as error:
        return Broken(path, 1, str(error))
    except SyntaxError as error:
        return Broken(path, error.lineno or 1, error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return Broken(path, 1, str(error))
    return None


def as_before(tree: SourceTree, before: State, changed: Collection[str]) -> SourceTree:
    """A tree as it was before some of its files changed."""
    return tree.with_files({path: before.contents.get(path) for path in changed}, "before")
