"""Reads conditions: what each says about speculation.

A condition is read as far as the vocabulary goes: the algorithm's predicates, the algorithm and the other
speculative configuration, the draft state on a batch, the forward modes that only speculation uses, the
draft role of a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sgltrace.coupling.regime import BATCH, DRAFT, NOTHING, PLAIN, PROCESS, SPEC, Reading, both, last_name
from sgltrace.coupling.vocabulary import SpecVocabulary
from sgltrace.index.facts import syntax as s


@dataclass
class Predicates:
    """Names that stand for a condition on speculation, found in one source tree.

    ``algorithm`` holds the methods of the algorithm's enum, ``mode`` those of the forward mode's, ``derived`` the
    other functions and properties that only return such a condition. ``algorithm_fields`` are the names that hold
    an algorithm.
    """

    vocabulary: SpecVocabulary
    algorithm: dict[str, Reading] = field(default_factory=dict)
    mode: dict[str, Reading] = field(default_factory=dict)
    derived: dict[str, Reading] = field(default_factory=dict)
    algorithm_fields: set[str] = field(default_factory=set)

    def read(self, node: s.Expr, local: Mapping[str, s.Expr] | None = None) -> Reading:
        """What a condition says about speculation; ``local`` maps a local name to what it was bound to."""
        return self._read(node, local or {}, 0)

    def _read(self, node: s.Expr, local: Mapping[str, s.Expr], depth: int) -> Reading:
        if depth > 8:
            return NOTHING
        match node:
            case s.Unary(op="not", value=value):
                return self._read(value, local, depth + 1).negated()
            case s.Bool(op="and", left=left, right=right):
                return both(self._read(left, local, depth + 1), self._read(right, local, depth + 1))
            case s.Bool(op="or", left=left, right=right):
                return both(
                    self._read(left, local, depth + 1).negated(), self._read(right, local, depth + 1).negated()
                ).negated()
            case s.Cmp():
                return self._compare(node, local, depth)
            case s.Call():
                return self._call(node, local, depth)
            case s.Attr(attr=name):
                if name in self.derived:
                    return self.derived[name]
                return self._truth(name)
            case s.Name(id=name):
                if name in local:
                    return self._read(local[name], {k: v for k, v in local.items() if k != name}, depth + 1)
                return self._truth(name)
            case s.Walrus(value=value):
                return self._read(value, local, depth + 1)
        return NOTHING

    def _truth(self, name: str) -> Reading:
        """The truth of a bare value: a configuration value, the draft state, the draft role, the draft worker."""
        words = self.vocabulary
        if name in words.draft_flags:
            return Reading(SPEC, None, DRAFT, (name,))
        if name in words.overlap_fields:
            overlap = Reading(path_true="v2", path_false="v1")
            return overlap.negated() if name in words.no_overlap_fields else overlap
        if name in words.info_fields or name in words.result_fields:
            return Reading(SPEC, PLAIN, BATCH, (name,))
        if name in words.worker_fields or name in words.algorithm_fields or words.is_config(name):
            return Reading(SPEC, PLAIN, PROCESS, (name,))
        return NOTHING

    def _call(self, node: s.Call, local: Mapping[str, s.Expr], depth: int) -> Reading:
        match node.func:
            case s.Attr(value=owner, attr=name):
                if name in self.algorithm and self.holds_algorithm(owner, local):
                    return self.algorithm[name]
                if name in self.mode and name not in self.derived:
                    return self.mode[name]
                return self.derived.get(name, NOTHING)
            case s.Name(id="isinstance") if len(node.args) == 2:
                names = {last_name(item) for item in s.descend(node.args[1].value)}
                if names & self.vocabulary.input_classes:
                    return Reading(SPEC, None, BATCH, tuple(sorted(n for n in names if n)))
                return NOTHING
            case s.Name(id="bool") if node.args:
                return self._read(node.args[0].value, local, depth + 1)
            case s.Name(id="getattr") if len(node.args) >= 2 and isinstance(node.args[1].value, s.Const):
                return self._truth(str(node.args[1].value.value))
            case s.Name(id=name):
                return self.derived.get(name, NOTHING)
        return NOTHING

    def _compare(self, node: s.Cmp, local: Mapping[str, s.Expr], depth: int) -> Reading:
        if len(node.ops) != 1:
            return NOTHING
        op, right = node.ops[0], node.rights[0]
        left = node.left
        while isinstance(left, s.Name) and left.id in local and depth < 8:
            left, depth = local[left.id], depth + 1
        name = last_name(left)
        if isinstance(right, s.Const) and right.value is None and op in ("is", "is not", "==", "!="):
            reading = self._read(left, {}, depth + 1)
            if reading.empty:
                return NOTHING
            # `x is None` says the opposite of the truth of x; a predicate call is never None.
            return reading.negated() if op in ("is", "==") else reading
        member = self._member(right)
        if member is not None:
            kind, spec = member
            if kind == "mode":
                if not spec:
                    return NOTHING
                reading = Reading(SPEC, None, BATCH, (name or "mode",))
            else:
                reading = Reading(SPEC, None) if spec else Reading(PLAIN, SPEC)
                reading = replace(reading, atoms=(name or "algorithm",))
            return reading.negated() if op in ("!=", "is not") else reading
        if name is not None and (self.vocabulary.is_config(name) or name in self.algorithm_fields):
            # "in" a list with None in it says nothing where it holds, and that there is an algorithm where it does not.
            with_none = any(isinstance(p, s.Const) and p.value is None for p in s.descend(right))
            inside = Reading(None, SPEC, PROCESS, (name,)) if with_none else Reading(SPEC, None, PROCESS, (name,))
            if op in ("==", "in", ">", ">="):
                return inside
            if op in ("!=", "not in"):
                return inside.negated()
        return NOTHING

    def _member(self, node: s.Expr) -> tuple[str, bool] | None:
        """``(enum, whether the member belongs to speculation)`` of ``Enum.MEMBER``."""
        if not isinstance(node, s.Attr):
            return None
        owner = last_name(node.value)
        if owner in self.vocabulary.mode_enums:
            return "mode", node.attr in self.vocabulary.spec_modes
        if owner in self.vocabulary.algorithm_enums:
            return "algorithm", node.attr not in self.vocabulary.plain_members
        return None

    def holds_algorithm(self, node: s.Expr, local: Mapping[str, s.Expr]) -> bool:
        """Whether an expression holds the speculative algorithm."""
        name = last_name(node)
        if name is None:
            return False
        if name in self.algorithm_fields or name in self.vocabulary.algorithm_fields:
            return True
        if isinstance(node, s.Name) and name in local:
            return self.holds_algorithm(local[name], {k: v for k, v in local.items() if k != name})
        # An algorithm made on the spot: SpeculativeAlgorithm.from_string(...).
        return isinstance(node, s.Call) and any(
            last_name(part) in self.vocabulary.algorithm_enums for part in s.descend(node.func)
        )
