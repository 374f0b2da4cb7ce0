"""How a block of statements ends, and how the ends of two blocks become one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sgltrace.evaluate.journal import Delta, Journal, join_values
from sgltrace.evaluate.unknown import Unknown


class Outcome:
    """The end of a block."""


@dataclass
class Normal(Outcome):
    """The next statement follows."""


@dataclass
class Jump(Outcome):
    """``break`` or ``continue``."""

    kind: str


@dataclass
class Return(Outcome):
    """The function's value."""

    value: Any


@dataclass
class Raised(Outcome):
    """An exception, which the source raises or which Python raises at it."""

    error: BaseException


@dataclass
class Alternative:
    """One end of several: what it had changed since the block forked, and what was decided on the way."""

    outcome: Outcome
    delta: Delta
    decided: dict[str, bool]


@dataclass
class Split(Outcome):
    """Ends of different kinds, of which an unknown condition decides. Nothing of them is applied."""

    condition: Unknown
    alternatives: list[Alternative] = field(default_factory=list)


NORMAL = Normal()
BREAK = Jump("break")
CONTINUE = Jump("continue")


def _kind(outcome: Outcome) -> str:
    return outcome.kind if isinstance(outcome, Jump) else type(outcome).__name__


def compose(outcome: Outcome, delta: Delta, decided: dict[str, bool]) -> list[Alternative]:
    """A block's end as alternatives, with all that changed since it began."""
    if not isinstance(outcome, Split):
        return [Alternative(outcome, delta, decided)]
    return [
        Alternative(end.outcome, {**delta, **end.delta}, {**decided, **end.decided}) for end in outcome.alternatives
    ]


def settle(journal: Journal, condition: Unknown, ends: list[Alternative], decided: dict[str, bool]) -> Outcome:
    """Join ends of one kind. One end that is left is applied; several stay a Split."""
    groups: dict[str, Alternative] = {}
    for end in ends:
        kind = _kind(end.outcome)
        other = groups.get(kind)
        if other is None:
            groups[kind] = end
            continue
        outcome = other.outcome
        if isinstance(outcome, Return) and isinstance(end.outcome, Return):
            outcome = Return(join_values(outcome.value, end.outcome.value, condition))
        shared = {name: value for name, value in other.decided.items() if end.decided.get(name) is value}
        groups[kind] = Alternative(outcome, journal.join(other.delta, end.delta, condition), shared)
    if len(groups) > 1:
        return Split(condition, list(groups.values()))
    (only,) = groups.values()
    journal.apply(only.delta)
    decided.update(only.decided)
    return only.outcome
