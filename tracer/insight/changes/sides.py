"""A source with its index, and what a comparison asks of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sgltrace.insight.changes.bodies import Bodies
from sgltrace.insight.changes.model import SideName
from sgltrace.insight.query import CallGraph
from sgltrace.model import PATHS, Field, Function, Index
from sgltrace.sources import SourceTree


@dataclass
class Side:
    """``tree`` is None where the source of an index is not there any more."""

    index: Index
    tree: SourceTree | None = None
    name: str = ""

    @cached_property
    def graph(self) -> CallGraph:
        """The call graph."""
        return CallGraph(self.index)

    @cached_property
    def bodies(self) -> Bodies | None:
        """The functions as they are written."""
        return None if self.tree is None else Bodies(self.tree, self.index)

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions by id."""
        return {function.id: function for function in self.index.functions}

    @cached_property
    def fields(self) -> dict[str, list[Field]]:
        """The fields by ``Class.field``, as points name them."""
        out: dict[str, list[Field]] = defaultdict(list)
        for field in self.index.fields:
            out[f"{field.cls.rpartition(':')[2].rpartition('.')[2]}.{field.field}"].append(field)
        return out

    @cached_property
    def paths(self) -> list[str]:
        """The paths that the source has."""
        return [path for path in PATHS if self.index.entry_points.get(path)]

    def unknown(self, path: str) -> bool:
        """Whether nobody knows if the source has a path."""
        return path in self.index.unknown_paths

    def called(self) -> SideName:
        """The source as a comparison names it."""
        source = self.index.source
        name = self.name or f"{source.name} {source.version or source.requested}"
        return SideName(
            name=name,
            version=source.version,
            requested=source.requested,
            entry_points=dict(sorted(self.index.entry_points.items())),
        )

    def defined(self, function: str, file: str) -> bool:
        """Whether the source has a function, which no step reaches or may not reach."""
        return self.bodies is not None and self.bodies.defines(function, file)


def short(function: str) -> str:
    """``Class.method`` in backticks, for sentences."""
    name = function.partition(":")[2].replace(".<locals>", "")
    return f"`{'.'.join(name.split('.')[-2:])}`"


def listed(names: Iterable[str], most: int = 3) -> str:
    """``a, b and 2 more``."""
    found = list(dict.fromkeys(names))
    if len(found) > most:
        return f"{', '.join(found[:most])} and {len(found) - most} more"
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 2 else found)
