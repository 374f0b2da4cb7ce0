"""Which of two regimes a condition selects: a speculative step, or a plain one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sgltrace.index.facts import syntax as s

SPEC = "spec"
PLAIN = "plain"

PROCESS = "process"
"""The condition is fixed for the life of the process (the algorithm, the configuration)."""
BATCH = "batch"
"""The condition may differ from batch to batch (the draft state, the forward mode)."""
DRAFT = "draft"
"""The condition tells a draft model's objects from the target's."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a condition says: the regime where it holds, the regime where it does not, and its scope."""

    when_true: str | None = None
    when_false: str | None = None
    scope: str = PROCESS
    atoms: tuple[str, ...] = ()
    path_true: str | None = None
    """The path that is taken where the condition holds (overlap scheduling is v2's, its absence v1's)."""
    path_false: str | None = None

    @property
    def known(self) -> bool:
        """Whether the condition says anything about speculation."""
        return self.when_true is not None or self.when_false is not None

    @property
    def empty(self) -> bool:
        """Whether it says nothing of the path, either."""
        return not self.known and self.path_true is None and self.path_false is None

    def negated(self) -> Reading:
        """The reading of ``not condition``."""
        return replace(
            self,
            when_true=self.when_false,
            when_false=self.when_true,
            path_true=self.path_false,
            path_false=self.path_true,
        )


NOTHING = Reading()


def both(left: Reading, right: Reading) -> Reading:
    """``left and right``: it holds only where both hold; where it fails, nothing is known unless both say the same."""
    if left.empty and right.empty:
        return NOTHING
    same = left.when_false == right.when_false
    return Reading(
        left.when_true or right.when_true,
        left.when_false if same else None,
        left.scope if left.scope != PROCESS or not right.known else right.scope,
        left.atoms + right.atoms,
        left.path_true or right.path_true,
        left.path_false if left.path_false == right.path_false else None,
    )


def last_name(node: s.Expr) -> str | None:
    """The last name of ``a.b.c``, of ``f()`` and of ``a[i]``; None for other expressions."""
    match node:
        case s.Name(id=name):
            return name
        case s.Attr(attr=name):
            return name
        case s.Call(func=func):
            return last_name(func)
        case s.Sub(value=value):
            return last_name(value)
    return None
