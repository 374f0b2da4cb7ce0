"""The part of the vocabulary that resolution reads: roles, what is known of each path, and components."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


Named = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A name, patterns of classes, patterns of modules."""


@dataclass(frozen=True, eq=False)
class Roles:
    """Section ``[roles]``; the file says what each means."""

    modules: tuple[str, ...]
    also: tuple[str, ...]
    process: tuple[str, ...]
    scheduler: tuple[str, ...]
    event_loops: tuple[str, ...]
    admission: tuple[str, ...]
    capture: tuple[str, ...]
    capture_classes: tuple[str, ...]
    worker_fields: tuple[str, ...]
    target_fields: tuple[str, ...]
    step_methods: tuple[str, ...]
    mode_classes: tuple[str, ...]
    decode_modes: tuple[str, ...]
    algorithm_predicate: re.Pattern[str]
    main_algorithm: str
    overlap_word: str
    followed: tuple[str, ...]
    outline: tuple[str, ...]
    outline_but: tuple[str, ...]
    known: dict[str, dict[str, bool]]
    components: tuple[Named, ...]

    def is_outlined(self, module: str) -> bool:
        """Whether only a module's classes and signatures are read."""
        return matches(module, self.outline) and not matches(module, self.outline_but)

    @functools.cache  # noqa: B019 (there is one vocabulary)
    def component(self, module: str, cls: str | None) -> str:
        """The part of the engine that a function belongs to; empty where no pattern fits."""
        return first_match(self.components, module, cls)


def first_match(named: Iterable[Named], module: str, cls: str | None) -> str:
    """The first name of which a pattern fits a class or its module; empty where none does."""
    for name, classes, modules in named:
        if (cls is not None and matches(cls, classes)) or matches(module, modules):
            return name
    return ""


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a name fits one of the patterns (``*`` for anything)."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@functools.cache
def roles() -> Roles:
    """The roles as the program ships them."""
    return from_table(tomllib.loads((files("sgltrace") / "vocabulary.toml").read_text(encoding="utf-8")))


def from_table(table: dict[str, Any]) -> Roles:
    """The roles in a parsed vocabulary."""
    section = dict(table["roles"])
    known = section.pop("known", {})
    followed = tuple(section.pop("plugins", {}).get("followed", ()))
    outline = section.pop("outline", {})
    predicate = re.compile(section.pop("algorithm_predicate"))
    main, word = section.pop("main_algorithm"), section.pop("overlap_word")
    names = {key: tuple(value) for key, value in section.items()}
    components = tuple(
        (entry["name"], tuple(entry.get("classes", ())), tuple(entry.get("modules", ())))
        for entry in table.get("components", ())
    )
    return Roles(
        **names,
        algorithm_predicate=predicate,
        main_algorithm=main,
        overlap_word=word,
        followed=followed,
        outline=tuple(outline.get("modules", ())),
        outline_but=tuple(outline.get("but", ())),
        known=known,
        components=components,
    )
