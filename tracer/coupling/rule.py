"""What a rule is: a kind of coupling, what it means, examples, and how it is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from sgltrace.coupling.point import Finding
from sgltrace.coupling.universe import Universe


@dataclass(frozen=True)
class Example:
    """A small source: a text for each part of the engine, and the functions that the rule must name from it.

    Parts are ``start`` (a process starts), ``scheduler``, ``target`` (the target model's forward pass), ``worker``
    (speculation's own code) and ``v1`` and ``v2`` (a worker of one path). A negative example expects nothing.
    """

    parts: dict[str, str]
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    severity: dict[str, str | None] = field(default_factory=dict)


class Rule:
    """One kind of coupling. A rule names no function and no line: only what the vocabulary lists."""

    kind: ClassVar[str]
    positive: ClassVar[tuple[Example, ...]] = ()
    negative: ClassVar[tuple[Example, ...]] = ()

    def find(self, universe: Universe) -> Iterator[Finding]:
        """The findings of this kind in a tree."""
        raise NotImplementedError
