"""One path as the groups see it: its answers, and what they ask about functions, fields and places."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sgltrace.coupling.groups.draft import Spot
from sgltrace.coupling.offstep.interpret import Strike
from sgltrace.coupling.offstep.questions import Answers, Questions
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.index.fields import Access
from sgltrace.index.resolution.entities import FunctionInfo

ALLOCATING = frozenset({"kv_allocator", "request_pool"})
"""Roles whose methods hand out and take back KV slots."""
NEAR = 2
"""A function takes KV slots where it calls who does through so many calls."""
SHORT = 72


def shown(node: s.Expr | None) -> str:
    """An expression as text, cut where it is long."""
    out = "" if node is None else text(node)
    return out if len(out) <= SHORT else out[: SHORT - 3] + "..."


def name(function: FunctionInfo) -> str:
    """A function as a reader says it."""
    return f"`{function.qualname.replace('<locals>.', '')}`"


def names(functions: Iterable[FunctionInfo], most: int = 3) -> str:
    """Some functions in one phrase, and how many more there are."""
    found = list(dict.fromkeys(name(f) for f in functions))
    rest = len(found) - most
    listed = found[:most]
    if rest > 0:
        return f"{', '.join(listed)} and {rest} more"
    return " and ".join([", ".join(listed[:-1]), listed[-1]]) if len(listed) > 1 else "".join(listed)


def said(functions: Iterable[FunctionInfo], verb: str, most: int = 3) -> str:
    """Some functions and what they do, the verb in the number that they ask for: ``a sets``, ``a and b set``."""
    found = list(functions)
    one = len({f.qualname for f in found}) == 1
    return f"{names(found, most)} {verb if one else _plural(verb)}"


def _plural(verb: str) -> str:
    words = verb.split(" ")
    irregular = {"does": "do", "goes": "go", "is": "are", "has": "have"}
    words[0] = irregular.get(words[0], words[0].removesuffix("s"))
    return " ".join(words)


def negated(condition: str) -> str:
    """A condition that does not hold, without a second ``not``."""
    if condition.startswith("not ") and " and " not in condition and " or " not in condition:
        return condition.removeprefix("not ")
    return f"not ({condition})" if " " in condition else f"not {condition}"


def slug(*parts: str) -> str:
    """An id's part: words of letters and digits, joined by hyphens."""
    return "-".join(re.findall(r"[a-z0-9]+", "-".join(parts).lower()))


VERBS = {"augment": "adds to", "in-place": "changes in place", "delete": "deletes", "kernel": "stores through"}


def write(access: Access) -> Spot:
    """A write as a place."""
    verb = VERBS.get(access.kind, "sets")
    value = "" if access.value is None or access.kind == "kernel" else f": {shown(access.value)}"
    return Spot(access.function, access.line, f"{verb} {access.field}{value}")


def read(access: Access) -> Spot:
    """A read as a place."""
    return Spot(access.function, access.line, f"reads {access.field}")


def strike(found: Strike) -> Spot:
    """A strike as a place."""
    return Spot(found.function, found.line, f"raises {found.exception}: {shown(found.expression)}")


@dataclass(eq=False)
class Scene:
    """The answers on one path."""

    questions: Questions
    answers: Answers
    own_off: bool
    """Whether the release has an off step of its own on the path."""

    @property
    def path(self) -> str:
        """The path."""
        return self.answers.path

    def verdicts(
        self, a: tuple[str, str], b: tuple[str, str], c: tuple[str, str]
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """The verdicts of the three designs."""
        return {(self.path, "A"): a, (self.path, "B"): b, (self.path, "C"): c}

    def allocates(self, functions: Iterable[FunctionInfo]) -> bool:
        """Whether functions, or what they call in the scheduler's half of a plain step or of one with speculation, take
        or give back KV slots."""
        return any(function in self._near_slots for function in functions)

    def handles_slots(self, function: FunctionInfo) -> bool:
        """Whether a function itself calls an allocator or a pool."""
        q = self.questions
        return any(
            callee.owner is not None and q.flow.role(callee.owner) in ALLOCATING and not callee.is_property
            for callee, _, _ in q.steps.sites.out.get(function, ())
        )

    @cached_property
    def _near_slots(self) -> frozenset[FunctionInfo]:
        """Functions that reach a method of an allocator or a pool through at most ``NEAR`` calls."""
        q = self.questions
        near = {f for f in q.program.functions.values() if f.owner is not None and q.flow.role(f.owner) in ALLOCATING}
        for _ in range(NEAR):
            near |= {
                f
                for f, called in q.steps.sites.out.items()
                if f not in near and any(callee in near and not callee.is_property for callee, _, _ in called)
            }
        return frozenset(near)

    def verifies(self, function: FunctionInfo) -> bool:
        """Whether a function belongs to the verify of a step: it runs the target model, or is called by what does."""
        return function in self._verify

    @cached_property
    def _verify(self) -> frozenset[FunctionInfo]:
        q = self.questions
        target = q.parts.target
        order = [] if target is None or target.owner is None else q.program.engine.classes.mro(target.owner)
        direct = {
            f
            for f in q.on.worker.readings
            if f in q.parts.own or f is q.parts.entries[self.path]
            for callee, _, _ in q.steps.sites.out.get(f, ())
            if callee.owner in order and callee.name == (target.name if target else None)
        } - {q.parts.entries[self.path]}
        found = set(direct)
        todo = list(direct)
        while todo:
            for callee, _, _ in q.steps.sites.out.get(todo.pop(), ()):
                if callee in q.parts.own and callee not in found:
                    found.add(callee)
                    todo.append(callee)
        return frozenset(found)
