"""An index cut down to one configuration: what applies to it, what only to others, and what nobody can say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from sgltrace.configuration import Configuration
from sgltrace.configuration.vocabulary import condition_words
from sgltrace.insight.reach import Reach, leaves_of
from sgltrace.model import ContractField, CouplingPoint, Guard, Index, Place

ALWAYS, YOURS, OTHERS, UNKNOWN = "always", "yours", "others", "unknown"
TITLES: dict[str, str] = {
    ALWAYS: "always",
    YOURS: "for your configuration",
    UNKNOWN: "not known for your configuration",
    OTHERS: "for other configurations",
}
REQUESTS = "requests decide it"
GATES = "refused where "
"""What a gate's condition stands behind."""


@dataclass(frozen=True)
class Applies:
    """How something stands to a configuration, and why."""

    state: str
    """``always``, ``yours``, ``others`` or ``unknown``."""
    why: str = ""


@dataclass
class Configured:
    """Asks an index about one configuration."""

    index: Index
    configuration: Configuration
    _points: dict[str, Applies] = field(default_factory=dict)

    @cached_property
    def reach(self) -> Reach:
        """What runs under the configuration."""
        return Reach(self.index, self.configuration)

    @cached_property
    def _anywhere(self) -> Reach:
        """What runs whatever the configuration is."""
        return Reach(self.index)

    @cached_property
    def _around(self) -> dict[tuple[str, int], list[list[Guard]]]:
        found: dict[tuple[str, int], list[list[Guard]]] = defaultdict(list)
        for edge in self.index.calls:
            for site in edge.sites:
                found[edge.caller, site.line].append(site.guards)
        for uses in self.index.fields:
            for access in (*uses.writes, *uses.reads):
                found[access.function, access.line].append(access.guards)
        return found

    def runs(self, place: Place, reach: Reach | None = None) -> bool | None:
        """Whether a place is run under the configuration; None where what it hangs on is not known."""
        at = reach or self.reach
        if place.function not in at.may:
            return False
        around = self._around.get((place.function, place.line))
        opened = [at.open(place.function, guards) for guards in around] if around else [True]
        if all(one is False for one in opened):
            return False
        return True if place.function in at.must and True in opened else None

    def point(self, point: CouplingPoint) -> Applies:
        """How a coupling point stands to the configuration."""
        if point.id not in self._points:
            self._points[point.id] = self._point(point)
        return self._points[point.id]

    def _point(self, point: CouplingPoint) -> Applies:
        path = self.configuration.path
        if path in ("v1", "v2") and point.severity.get(path) is None:
            return Applies(OTHERS, f"it is not on path {path}, which this configuration takes")
        if path in ("none", "other"):
            return Applies(OTHERS, "this configuration runs no such speculation")
        words, why = self.words(point.condition)
        if words is False:
            return Applies(OTHERS, why)
        sides = [self._side(point.producers), self._side(point.consumers)]
        for side, told in zip(sides, ("fixes it", "relies on it"), strict=True):
            if side is False:
                return Applies(OTHERS, f"nothing that {told} runs in this configuration")
        if words is None:
            return Applies(UNKNOWN, why)
        if None in sides:
            return Applies(UNKNOWN, self._doubt(point.producers if sides[0] is None else point.consumers))
        general = [self._side(side, self._anywhere) for side in (point.producers, point.consumers)]
        unconditional = not why and all(general)
        return Applies(ALWAYS) if unconditional else Applies(YOURS, why)

    def _side(self, places: Sequence[Place], reach: Reach | None = None) -> bool | None:
        answers = {self.runs(place, reach) for place in places} or {True}
        return True if True in answers else None if None in answers else False

    def _doubt(self, places: Sequence[Place]) -> str:
        """What is not known of the conditions before some places."""
        found: list[str] = []
        for place in places:
            around = self._around.get((place.function, place.line), [])
            found += self.reach.doubts(place.function, [guard for guards in around for guard in guards])
        texts = " and ".join(list(dict.fromkeys(found))[:2])
        return f"not known whether {texts}" if texts else "not known whether it is reached"

    def words(self, condition: str) -> tuple[bool | None, str]:
        """Whether the words of a condition hold, and which arguments say so; no reason where nothing is asked."""
        if condition == ALWAYS:
            return True, ""
        table = condition_words()
        pattern = next((known for known in table if fnmatchcase(condition, known)), None)
        expressions = table[pattern] if pattern is not None else (condition,)
        if expressions == ("True",):
            return True, ""
        known = self.index.conditions
        names = {*known.arguments, *known.meanings, *self.configuration.values, *self.configuration.open}
        asked = [text for text in expressions if leaves_of(text) and leaves_of(text) & names]
        if not asked:
            return None, f"{condition}: {REQUESTS}" if pattern is not None and not expressions else condition
        truths = [self.configuration.holds(text) for text in asked]
        if True in truths:
            return True, self.said(asked[truths.index(True)])
        if None in truths:
            unknown = [text for text, truth in zip(asked, truths, strict=True) if truth is None]
            return None, f"{condition}: not known whether {' or '.join(unknown)}"
        return False, f"{condition}: {'; '.join(self.said(text) for text in asked)}"

    def said(self, expression: str) -> str:
        """The arguments that an expression asks for, with their values."""
        found = []
        for name in sorted(leaves_of(expression)):
            values = self.configuration.known(name)
            if values is not None and len(values) == 1:
                found.append(f"{name} is {values[0]!r}")
        if found:
            return ", ".join(found)
        return f"{expression} holds" if self.configuration.holds(expression) else f"no {expression}"

    def row(self, row: ContractField) -> Applies:
        """How a row of the contract stands to the configuration: by who reads the field."""
        path = self.configuration.path
        if path in ("v1", "v2") and row.path != path:
            return Applies(OTHERS, f"it is of path {row.path}")
        side = self._side(row.readers or row.writers)
        if side is False:
            return Applies(OTHERS, "nobody reads it in this configuration")
        if side is None:
            return Applies(UNKNOWN, self._doubt(row.readers or row.writers))
        return Applies(ALWAYS if self._side(row.readers or row.writers, self._anywhere) else YOURS)

    def gate(self, gate: Place) -> bool | None:
        """Whether a gate before the release's own off step refuses this configuration."""
        _, found, condition = gate.what.partition(GATES)
        if not found:
            return None
        text = condition.partition(": ")[0]
        negative = text.startswith("not ")
        truth = self.configuration.holds(text.removeprefix("not "))
        return None if truth is None else truth is not negative

    def places(self, places: Iterable[Place]) -> list[Place]:
        """Those of some places that are not ruled out."""
        return [place for place in places if self.runs(place) is not False]
