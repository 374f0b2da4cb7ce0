"""What conditions say where something is known beforehand: of a path, or of every decode step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import Chain
from sgltrace.index.program.modes import DecodeModes
from sgltrace.index.program.program import Program
from sgltrace.index.program.vocabulary import Roles
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.index.resolution.modules import dotted
from sgltrace.index.resolution.uses import Use

Ask = Callable[[s.Expr], "bool | None"]


class Conditions:
    """Says which calls are never made.

    ``known`` are facts by the end of a dotted name, ``modes`` those of a batch.
    """

    def __init__(self, program: Program, known: dict[str, bool], modes: DecodeModes | None = None) -> None:
        self._program = program
        self._known = known
        self._modes = modes
        self._open: dict[int, bool] = {}
        self._truths: dict[int, bool | None] = {}

    def may_take(self, caller: FunctionInfo, uses: Iterable[Use]) -> bool:
        """Whether one of the places may be run."""
        return not (self._known or self._modes) or any(self._is_open(caller, use) for use in uses)

    def fails(self, chain: Chain) -> bool:
        """Whether one of the conditions around a place is known not to be met."""
        for condition in chain:
            if condition.test is None or condition.kind not in ("if", "return", "assert"):
                continue
            key = id(condition.test)
            if key not in self._truths:
                self._truths[key] = truth(condition.test, self._ask)
            if self._truths[key] is (not condition.holds):
                return True
        return False

    def _is_open(self, caller: FunctionInfo, use: Use) -> bool:
        found = self._open.get(id(use))
        if found is None:
            guards = self._program.guards(caller)
            found = any(not self.fails(guards.at(expression)) for expression in use.expressions)
            self._open[id(use)] = found
        return found

    def _ask(self, test: s.Expr) -> bool | None:
        answer = known_of(test, self._known)
        return answer if answer is not None or self._modes is None else self._modes.truth(test)


def decode_conditions(program: Program, roles: Roles) -> Conditions:
    """What is known while any decode step of a generating server runs."""
    return Conditions(program, roles.known.get("decode", {}), DecodeModes(program, roles))


def truth(test: s.Expr, ask: Ask) -> bool | None:
    """Whether a test holds, as far as ``ask`` tells of what it is made of; None where it does not."""
    if isinstance(test, s.Unary) and test.op == "not":
        inner = truth(test.value, ask)
        return None if inner is None else not inner
    if isinstance(test, s.Bool):
        left, right = truth(test.left, ask), truth(test.right, ask)
        decisive = test.op == "or"
        if left is decisive or right is decisive:
            return decisive
        return left if left is right else None
    return ask(test)


def known_of(test: s.Expr, known: dict[str, bool]) -> bool | None:
    """What is known of a name, an attribute, or a call without arguments, by the end of its dotted name."""
    name = dotted(test.func) if isinstance(test, s.Call) and not test.args else dotted(test)
    if name is None:
        return None
    parts = name.split(".")
    return known.get(".".join(parts[-2:]), known.get(parts[-1]))
