"""What runs say of the contract of an off step.

A step that speculates shows what on steps produce and judges nothing here. A plain run judges the designs whose off
step is a plain step (A and B); a release's own off steps judge the one that stays in the worker (C).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Sequence

from sgltrace import runtime
from sgltrace.insight.formula import Unknown, evaluate, parse
from sgltrace.insight.judge import ONE_TOKEN, Judge, is_judged, last, of_class, owner, shapes
from sgltrace.insight.observed import CONFIRMED, NOT_EXERCISED, SEEN, ContractEvidence, Observed
from sgltrace.model import ContractField

UNSET = "must stay unset"
_TUPLE = re.compile(r"(?:^|(?<=\bor ))\((?:[^()]|\([^()]*\))*,(?:[^()]|\([^()]*\))*\)")


class Lengths:
    """How lists of lengths of requests (slots allocated, tokens committed) changed from a step to the next one."""

    def __init__(self) -> None:
        self.pairs: list[tuple[dict[str, list[int]], dict[str, list[int]]]] = []
        self._before: dict[str, tuple[runtime.Step, dict[str, list[int]]]] = {}

    def add(self, step: runtime.Step) -> None:
        """Take a step in; pairs are kept of steps that follow each other, with the same batch."""
        now = {
            name: values
            for name, values in (("kv_allocated_len", step.allocated), ("kv_committed_len", step.committed))
            if values
        }
        before = self._before.get(step.rank)
        if (
            before is not None
            and len(self.pairs) < 1000
            and step.speculation in ("off", "plain")
            and step.number == before[0].number + 1
            and step.batch_size == before[0].batch_size
            and step.speculation == before[0].speculation
        ):
            self.pairs.append((before[1], now))
        self._before[step.rank] = (step, now)


class OffStep:
    """Judges the rows of a contract."""

    def __init__(
        self, judge: Judge, seen: Sequence[runtime.Observation], unset: Sequence[runtime.Unset], lengths: Lengths
    ) -> None:
        self._judge = judge
        self._lengths = lengths
        self._kinds = {o.speculation for o in seen if o.speculation}
        self._seen: dict[str, list[runtime.Observation]] = defaultdict(list)
        for o in seen:
            if is_judged(o):
                self._seen[last(o.field)].append(o)
        self._unset: dict[str, list[runtime.Unset]] = defaultdict(list)
        for u in unset:
            if runtime.DECODE in u.mode:
                self._unset[u.field].append(u)

    def row(self, field: ContractField) -> ContractEvidence:
        """What was seen of one field, and how it stands to what the off step must leave there."""
        holder, _, name = field.field.rpartition(".")
        functions = {p.function for p in (*field.writers, *field.readers)}
        found = [o for o in self._seen[name] if _is_of(holder, of_class(o), o.path, o.function in functions)]
        judging = [o for o in found if o.speculation in self._judges(field)]
        verdict, why = self._verdict(field, name, holder, functions, judging)
        if verdict == NOT_EXERCISED and found:
            verdict = SEEN
            why = why or "on steps judge no off step"
        place = (field.writers or field.readers)[:1]
        observed = [
            Observed(
                name=name,
                function=p.function,
                line=p.line,
                path=field.path,
                formula=field.shape,
                verdict=verdict,
                shapes=shapes(judging or found),
                why=why,
            )
            for p in place
        ]
        return ContractEvidence(
            path=field.path, field=field.field, design=design(field), verdict=verdict, why=why, observed=observed
        )

    def _judges(self, field: ContractField) -> set[str]:
        """The kinds of steps that may judge a row."""
        kinds = {"A": {"plain"}, "B": {"plain"}, "C": {"off"}}.get(design(field), {"plain", "off"})
        return kinds & self._kinds

    def _verdict(
        self,
        field: ContractField,
        name: str,
        holder: str,
        functions: set[str],
        judging: list[runtime.Observation],
    ) -> tuple[str, str]:
        judges = self._judges(field)
        if not judges:
            return NOT_EXERCISED, ""
        unset = [
            u
            for u in self._unset[name]
            if u.speculation in judges and _is_of(holder, _bare(u.cls), u.path, u.function in functions)
        ]
        if field.requirement == UNSET and (unset or judging):
            return (self._judge.differs, "it was set") if judging else (CONFIRMED, "it was None")
        if judging:
            verdict = self._judge.verdict(off_step_shapes(field), judging)
            dtypes = sorted({o.dtype for o in judging})
            told = field.dtype and not any(_same_dtype(field.dtype, dtype) for dtype in dtypes)
            return verdict, f"its dtype was {' or '.join(dtypes)}, not {field.dtype}" if told else ""
        stepped = self._stepped(field, name)
        if stepped is not None:
            return (CONFIRMED, "from step to step") if stepped else (self._judge.differs, "from step to step")
        return (SEEN, "it was None in steps that do not speculate") if unset else (NOT_EXERCISED, "")

    def _stepped(self, field: ContractField, name: str) -> bool | None:
        """Whether a length of each request changed as the row says; None where that cannot be told."""
        for text in (field.off_step_value, field.shape or ""):
            formula = parse(text) or _effect(text)
            told = []
            for before, now in self._lengths.pairs if formula is not None else []:
                for at, value in enumerate(now.get(name, [])):
                    symbols = {key: values[at] for key, values in before.items() if at < len(values)}
                    try:
                        told.append(formula is not None and evaluate(formula, {**ONE_TOKEN, **symbols}) == value)
                    except Unknown:
                        continue
            if told:
                return all(told)
        return None


def _effect(text: str) -> ast.expr | None:
    """What ``x += 1``, written out or behind a colon, makes of ``x``; None for other texts."""
    try:
        (statement,) = ast.parse(text.rpartition(": ")[2].strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.target, (ast.Name, ast.Attribute)):
        return None
    name = statement.target.id if isinstance(statement.target, ast.Name) else statement.target.attr
    return ast.BinOp(left=ast.Name(id=name), op=statement.op, right=statement.value)


def design(field: ContractField) -> str:
    """The design that a row is of; empty where an index has one contract for all of them."""
    return getattr(field, "design", "") or ""


def off_step_shapes(field: ContractField) -> list[str]:
    """The shapes that a row allows an off step: its own, and those that its value names."""
    named = _TUPLE.findall(field.off_step_value)
    own = [field.shape] if field.shape is not None and field.shape.startswith("(") else []
    return list(dict.fromkeys([*own, *named]))


def _is_of(holder: str, cls: str | None, path: str, here: bool) -> bool:
    """Whether a recorded value is the field of a row's holder: a class, ``result``, ``batch``, ``spec_info`` ..."""
    before = owner(path)
    if cls is not None:
        return cls == holder or (here and _squeezed(holder) in _squeezed(cls)) or before == holder
    if before == holder or _squeezed(before) == _squeezed(holder) or before.endswith(f"_{holder}"):
        return True
    return here and before in ("return", "arg", "self", "")


def _squeezed(name: str) -> str:
    return name.replace("_", "").lower()


def _bare(cls: str | None) -> str | None:
    return None if cls is None else cls.rpartition(":")[2]


_ALIASES = {"long": "int64", "int": "int32", "float": "float32", "half": "float16", "bool_": "bool"}


def _same_dtype(written: str, seen: str) -> bool:
    return written in (seen, "list") or _ALIASES.get(written) == seen
