"""What an expression may be in a step, as far as the scenario decides it: a few constants, or unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sgltrace.index.resolution.entities import ClassInfo


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a scenario takes as given, from which a truth or a value follows.

    ``scope`` is ``process`` (fixed for the life of the process), ``batch`` (an off step may choose it), ``unset`` (a
    field that nothing in the step sets), ``mode`` (a plain decode) or ``path`` (overlap scheduling or none).
    """

    scope: str
    name: str
    """``Class.field``, or the name of the class whose value is given."""


PROCESS, BATCH, UNSET, MODE, PATH = "process", "batch", "unset", "mode", "path"

Atom = tuple[str, Any]
"""``("c", constant)``, ``("m", member)`` of an enum whose class the value knows, or ``("o", None)``: some object."""
NONE: Atom = ("c", None)
OBJECT: Atom = ("o", None)

MOST = 6
"""A value of more alternatives is unknown."""


@dataclass(frozen=True, slots=True)
class Val:
    """The alternatives, and the facts that they follow from. What is unknown is written as Python's None."""

    atoms: frozenset[Atom]
    why: frozenset[Fact] = frozenset()

    @property
    def is_none(self) -> bool:
        """Whether it is None for certain."""
        return self.atoms == _NONE

    @property
    def truth(self) -> bool | None:
        """Whether it is true; None where it may be either."""
        found = {_true(atom) for atom in self.atoms}
        return found.pop() if len(found) == 1 else None


_NONE = frozenset({NONE})
_EMPTY: frozenset[Fact] = frozenset()


def _true(atom: Atom) -> bool:
    return bool(atom[1]) if atom[0] == "c" else True


def const(value: Any, why: Iterable[Fact] = ()) -> Val:
    """A value that is one constant."""
    return Val(frozenset({("c", value)}), frozenset(why))


TRUE, FALSE = const(True), const(False)


def boolean(value: bool, why: frozenset[Fact] = _EMPTY) -> Val:
    """A truth that follows from facts."""
    if not why:
        return TRUE if value else FALSE
    return const(value, why)


def member(cls: ClassInfo, names: Iterable[str], why: Iterable[Fact] = ()) -> Val:
    """Some members of an enum."""
    return Val(frozenset(("m", (cls.id, name)) for name in names), frozenset(why))


def join(left: Val | None, right: Val | None) -> Val | None:
    """What either of two is; unknown where one is, or there are too many."""
    if left is None or right is None:
        return None
    if left is right or left == right:
        return left
    atoms = left.atoms | right.atoms
    return Val(atoms, left.why | right.why) if len(atoms) <= MOST else None
