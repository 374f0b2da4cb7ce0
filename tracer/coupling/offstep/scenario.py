"""What is given in a step: which process it runs in, and what its batch carries."""

from __future__ import annotations

from dataclasses import dataclass, field

from sgltrace.coupling.offstep.domain import Val
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo


@dataclass(eq=False)
class Scenario:
    """The values that a step's conditions are asked with.

    ``types`` are values by the class of an expression (the algorithm's enum, the forward mode's); ``fields`` by class
    and field, for every class that inherits it; ``stops`` are the functions at which the step is cut, and what runs
    there instead.
    """

    name: str
    types: dict[ClassInfo, Val] = field(default_factory=dict)
    worker_types: dict[ClassInfo, Val | None] = field(default_factory=dict)
    """Overrides ``types`` in code that only a speculative worker reaches; None is unknown."""
    fields: dict[tuple[ClassInfo, str], Val] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    """Names of those ``fields`` that hold although their class is one of ``types``."""
    names: dict[str, Val] = field(default_factory=dict)
    """Values by a field's name alone, for an object of which nothing is known."""
    stops: dict[FunctionInfo, tuple[FunctionInfo, ...]] = field(default_factory=dict)
    platform: dict[str, bool | int] = field(default_factory=dict)
    """What functions answer that ask for the platform, by their names."""
    within: frozenset[FunctionInfo] = frozenset()
    """Only these functions are entered."""
    reachable: frozenset[FunctionInfo] = frozenset()
    """Into these a None that the scenario gives is followed."""
    avoid: frozenset[FunctionInfo] = frozenset()
    """These are never entered, though called: other stages, other workers."""
