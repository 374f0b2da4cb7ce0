"""Mutants of sources: what an editor, a merge, a broken disk or a hostile hand makes of a file.

The same seed gives the same mutant.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

from sgltrace.sources import SourceTree
from sgltrace.sources.layout import Package

WORD = re.compile(rb"[A-Za-z_]\w*")
ODD = [
    b"<<<<<<< HEAD\n", b"=======\n", b">>>>>>> other\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\x0c", b"\\\n", b"\r",
    b"print 'two'\n", b"9" * 5000, b"x" + b".y" * 800, b"[" * 150, b"lambda: " * 90, b"not " * 300,
    b't"{x!r:>{y}}"', b"match x:\n    case {'a': [1, *_], **rest} if (y := x): pass\n", b"type X[T] = list[T]\n",
    b"async ", b"yield ", b"await ", b"global self\n", b"from . import *\n", b"*", b"**", b":=", b"...", b"@",
    b"'''", b'"""', b"(", b")", b"]", b"{", b"}", b":",
]  # fmt: skip

Mutator = Callable[[bytes, random.Random], bytes]


def mutant(source: bytes, seed: int) -> bytes:
    """A mutant of a source, by one to three of the ways below."""
    dice = random.Random(seed)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        source = dice.choice(WAYS)(source, dice)
    return source


def drop_lines(source: bytes, dice: random.Random) -> bytes:
    lines = source.split(b"\n")
    at = dice.randrange(len(lines))
    del lines[at : at + dice.choice([1, 1, 2, 10])]
    return b"\n".join(lines)


def double_lines(source: bytes, dice: random.Random) -> bytes:
    lines = source.split(b"\n")
    at, there = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[there:there] = lines[at : at + dice.choice([1, 3, 20])]
    return b"\n".join(lines)


def swap_lines(source: bytes, dice: random.Random) -> bytes:
    lines = source.split(b"\n")
    one, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\n".join(lines)


def indent(source: bytes, dice: random.Random) -> bytes:
    lines = source.split(b"\n")
    at = dice.randrange(len(lines))
    for i in range(at, min(at + dice.choice([1, 5, 30]), len(lines))):
        lines[i] = b"    " + lines[i] if dice.random() < 0.8 else lines[i][4:]
    return b"\n".join(lines)


def other_word(source: bytes, dice: random.Random) -> bytes:
    """One name in the place of another, everywhere or at one place."""
    words = sorted(set(WORD.findall(source)))
    if len(words) < 2:
        return source
    old, new = dice.sample(words, 2)
    found = re.compile(rb"\b%s\b" % old)
    places = list(found.finditer(source))
    if dice.random() < 0.5:
        return found.sub(new, source)
    at = dice.choice(places)
    return source[: at.start()] + new + source[at.end() :]


def insert(source: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(source) + 1)
    return source[:at] + dice.choice(ODD) + source[at:]


def cut(source: bytes, dice: random.Random) -> bytes:
    return source[: dice.randrange(len(source) + 1)]


def flip(source: bytes, dice: random.Random) -> bytes:
    if not source:
        return source
    at = dice.randrange(len(source))
    return source[:at] + bytes([dice.randrange(256)]) + source[at + 1 :]


def for_checkers_only(source: bytes, dice: random.Random) -> bytes:
    """Imports that only a type checker sees."""
    lines = source.split(b"\n")
    imports = [i for i, line in enumerate(lines) if line.startswith(b"from ") and not line.endswith((b"(", b"\\"))]
    for i in imports:
        if b"__future__" not in lines[i] and dice.random() < 0.5:
            lines[i] = b"if TYPE_CHECKING: " + lines[i]
    return b"\n".join(lines)


def quoted_annotations(source: bytes, dice: random.Random) -> bytes:
    return re.sub(rb"(->|: )\s*([A-Z]\w+)(?=[,):=])", lambda m: m[1] + b' "' + m[2] + b'"', source)


def no_body(source: bytes, dice: random.Random) -> bytes:
    """A function that tells nothing but its signature."""
    heads = list(re.finditer(rb"^( *)def [^\n]*:\n", source, re.MULTILINE))
    if not heads:
        return source
    head = dice.choice(heads)
    return source[: head.end()] + head[1] + b"    return REGISTRY[name]\n" + source[head.end() :]


WAYS: list[Mutator] = [
    drop_lines, double_lines, swap_lines, indent, other_word, other_word, insert, insert, cut, flip, for_checkers_only,
    quoted_annotations, no_body,
]  # fmt: skip


class Edited:
    """A store of files as another has them, but for those that are given."""

    def __init__(self, tree: SourceTree, edits: dict[str, bytes]) -> None:
        self._tree = tree
        self._edits = edits
        self.unread: dict[str, str] = {}

    def names(self) -> list[str]:
        return sorted(self._tree.modules.values())

    def read(self, name: str) -> bytes:
        return self._edits[name] if name in self._edits else self._tree.read(name)

    def fingerprint(self) -> str:
        return repr(sorted(self._edits))

    def locate(self, name: str) -> Path | None:
        return None


def edited(tree: SourceTree, edits: dict[str, bytes]) -> SourceTree:
    """A tree with other contents of some of its files, by their paths."""
    return SourceTree(Edited(tree, edits), _Whole("", tree.package), tree.source, "edited")


class _Whole(Package):
    """The names of the store are the paths of the tree."""

    def path_of(self, name: str) -> str:
        return name

    def name_of(self, path: str) -> str:
        return path
