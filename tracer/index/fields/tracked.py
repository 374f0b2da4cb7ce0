"""Which classes carry a step's state: by the names that the vocabulary has for each role, else by what they do."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sgltrace.index.fields.anchors import Anchors

if TYPE_CHECKING:
    from sgltrace.index.program import Program
    from sgltrace.index.resolution.entities import ClassInfo

VOCABULARY = Path(__file__).parents[2] / "vocabulary.toml"


class Role(msgspec.Struct, frozen=True):
    """A kind of object that carries state."""

    title: str
    """How a report calls it."""
    carries: str
    """How long such an object lives: ``step``, ``request`` or ``process``."""
    classes: list[str]


class _Vocabulary(msgspec.Struct):
    tracked: dict[str, Role]


MANY = frozenset({"spec_worker", "draft_input"})
"""Roles that several classes play at once, each of another algorithm: one of them may be new where others are known."""


@cache
def roles() -> dict[str, Role]:
    """The roles of the vocabulary, by their key."""
    return msgspec.toml.decode(VOCABULARY.read_bytes(), type=_Vocabulary).tracked


class TrackedClasses:
    """The tracked classes of one program. A class has the role of the nearest of its bases that is named."""

    def __init__(self, program: Program) -> None:
        self._classes = program.engine.classes
        self._named = {name: key for key, role in roles().items() for name in role.classes}
        self._roles: dict[ClassInfo, str | None] = {}
        self.derived: dict[ClassInfo, str] = {}
        """Classes that play a role under a name that the vocabulary does not have."""
        if hasattr(program, "cast"):  # a program whose parts were not asked for has the known names alone
            self.derived = self._derive(program)
        self._roles.clear()

    def _derive(self, program: Program) -> dict[ClassInfo, str]:
        # a class's bases may be in a module that nobody has read yet
        classes = [c for m in list(program.engine.modules.loaded.values()) for c in m.classes.values()]
        wanted = (set(roles()) - {self.role(c) for c in classes}) | MANY
        found = Anchors(program).find()
        return {cls: role for cls, role in found.items() if role in wanted and self.role(cls) is None}

    def role(self, cls: ClassInfo) -> str | None:
        """The key of the class's role, None where it is not tracked."""
        if cls not in self._roles:
            order = self._classes.mro(cls)
            names = (self._named.get(base.name) or self.derived.get(base) for base in order)
            self._roles[cls] = next((key for key in names if key is not None), None)
        return self._roles[cls]

    def owner(self, cls: ClassInfo, field: str) -> ClassInfo:
        """The class to which a field of ``cls`` belongs: the furthest base of a tracked role that declares it."""
        for base in reversed(self._classes.mro(cls)):
            if field in base.annotations and self.role(base) is not None:
                return base
        return cls
