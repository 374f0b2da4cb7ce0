"""Formulas held against what was seen of decode steps.

On steps judge the formulas of on steps. What an off step must look like is judged by steps that did not speculate
alone: a plain run's, or a release's own off steps. A formula that is unknown, or in a part of which nothing is known,
is not judged.

Within a step in which requests finish or join, a tensor may have the rows of the batch before or after it: a formula's
``bs`` is then either, and how often that was so is told. A run of another release than the index's refutes nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sgltrace import runtime
from sgltrace.insight.formula import Symbols, Unknown, agrees, alternatives, is_empty
from sgltrace.insight.observed import CONFIRMED, NOT_EXERCISED, REFUTED, SEEN, Observed, Shape
from sgltrace.model import Tensor

# Symbols of formulas that a server's configuration fixes, by the names it has for them.
CONFIGURED = {
    "topk": "speculative_eagle_topk",
    "num_steps": "speculative_num_steps",
    "num_draft_tokens": "speculative_num_draft_tokens",
    "page_size": "page_size",
    "max_bs": "cuda_graph_max_bs",
}
ONE_TOKEN = {"num_steps": 0, "num_draft_tokens": 1, "speculative_num_draft_tokens": 1}
"""What the widths of speculation are in a step that returns one token for each request."""


class Judge:
    """Holds formulas against the observations of decode steps that did, or did not, speculate."""

    def __init__(
        self,
        seen: Iterable[runtime.Observation],
        config: Mapping[str, Any],
        around: dict[int, set[int]],
        same_release: bool,
        off: bool,
    ) -> None:
        self.off = off
        self.differs = REFUTED if same_release else SEEN
        self.around = around
        self.known = {
            symbol: value
            for symbol, option in CONFIGURED.items()
            if isinstance(value := config.get(option), int) and not isinstance(value, bool)
        }
        if off:
            # The draft's state stays as wide as the server was told to keep it.
            self.known = {"topk": 1, **self.known, **ONE_TOKEN}
        self.free: dict[str, int] = {}
        self.by_field: dict[str, list[runtime.Observation]] = defaultdict(list)
        for o in seen:
            if is_judged(o) and (o.speculation in ("off", "plain")) == off:
                self.by_field[last(o.field)].append(o)

    def tensors(self, rows: list[Tensor]) -> list[tuple[Tensor, Observed]]:
        """Each row with what was seen of it. Rows for the same field at the same stage are alternatives."""
        groups: dict[tuple[str, str | None, str], list[Tensor]] = defaultdict(list)
        for row in rows:
            if row.field is not None:
                groups[row.stage, row.cls, row.field].append(row)
        judged: dict[int, Observed] = {}
        for (stage, cls, field), group in sorted(groups.items(), key=str):
            functions = {p.function for t in group for p in (t.producer, *t.consumers)}
            found = self._found(cls, field, stage, functions)
            for row, observed in zip(group, self._alternatives(group, found), strict=True):
                judged[id(row)] = observed
        return [(row, judged[id(row)]) for row in rows if id(row) in judged]

    def _found(self, cls: str | None, field: str, stage: str, functions: set[str]) -> list[runtime.Observation]:
        named = [o for o in self.by_field[field] if cls is None or of_class(o) in (None, cls)]
        if self.off:  # no stage of speculation ran: only a function that both kinds of step run can tell
            return [o for o in named if o.function in functions]
        here = [o for o in named if o.function in functions and _base(o.stage) == _base(stage)]
        return here or [o for o in named if _base(o.stage) == _base(stage)]

    def _alternatives(self, group: list[Tensor], found: list[runtime.Observation]) -> list[Observed]:
        """An observation speaks for the rows that it fits; if it fits none, it speaks against all of them.

        Where the rows are of on steps and the observations are not, it then says nothing.
        """
        fits = [{id(o) for o in found if self.fits(t.shape, o)} for t in group]
        stray = [o for o in found if not any(id(o) in fit for fit in fits)]
        busy = [t for t in group if not is_empty(t.shape or "")]
        known = [o for o in stray if busy and all(self.comparable(t.shape, o) for t in busy)]
        rows = []
        for tensor, fit in zip(group, fits, strict=True):
            mine = [o for o in found if id(o) in fit]
            against = known if tensor in busy else []
            wrong = self.differs if not self.off else SEEN
            verdict = CONFIRMED if mine and not against else wrong if against else SEEN if found else NOT_EXERCISED
            rows.append(
                Observed(
                    name=tensor.name,
                    function=tensor.producer.function,
                    line=tensor.producer.line,
                    path=tensor.path,
                    formula=tensor.shape,
                    verdict=verdict,
                    shapes=shapes([*mine, *against] if tensor.shape and (mine or against) else found),
                    changing=sum(o.count for o in mine if not self._fits_as_is(tensor.shape, o)),
                )
            )
        return rows

    def verdict(self, formulas: list[str], found: list[runtime.Observation]) -> str:
        """How alternatives of a shape stand to what was seen: all of it must fit one of them."""
        if not found:
            return NOT_EXERCISED
        wrong = [o for o in found if not any(self.fits(f, o) for f in formulas)]
        if not wrong:
            return CONFIRMED
        told = bool(formulas) and all(self.comparable(f, o) for f in formulas for o in wrong)
        return self.differs if told else SEEN

    def fits(self, formula: str | None, o: runtime.Observation) -> bool:
        """Whether a formula holds for what was seen, at the batch's size or at one beside it."""
        return self._fits_as_is(formula, o) or any(
            self._holds(shape, o, self._sizes_around(o)) is True for shape in alternatives(formula or "")
        )

    def _fits_as_is(self, formula: str | None, o: runtime.Observation) -> bool:
        sizes = {size for size in (o.batch_size, o.padded) if size is not None}
        return any(self._holds(shape, o, sizes) is True for shape in alternatives(formula or ""))

    def comparable(self, formula: str | None, o: runtime.Observation) -> bool:
        """Whether every alternative of a formula can be told to hold or not."""
        told = [self._holds(shape, o, {o.batch_size or 0}) is not None for shape in alternatives(formula or "")]
        return bool(told) and all(told)

    def _sizes_around(self, o: runtime.Observation) -> set[int]:
        """The sizes of the batch before and after, if it changed in the first and in the last step of ``o``."""
        return self.around.get(o.first_step, set()) & self.around.get(o.last_step, set())

    def _holds(self, shape: str, o: runtime.Observation, sizes: set[int]) -> bool | None:
        """Whether a shape holds at one of the batch sizes; None where it cannot be told."""
        told: bool | None = None
        for size in sorted(sizes):
            try:
                if agrees(shape, o.shape, Symbols({**self.known, "bs": size}, self.free)):
                    return True
                told = False
            except Unknown:
                continue
        return told


def is_judged(o: runtime.Observation) -> bool:
    """Whether a formula may be held against an observation: batches have another size while they are filtered."""
    return runtime.DECODE in o.mode and bool(o.batch_size) and o.stage != "filter and merge"


def shapes(found: Iterable[runtime.Observation]) -> list[Shape]:
    """What was seen, once for each batch size, shape, dtype, way to run and function."""
    merged: dict[tuple[object, ...], Shape] = {}
    for o in found:
        key = (o.batch_size, o.shape, o.dtype, o.phase, o.function)
        before = merged.get(key)
        merged[key] = Shape(
            batch=o.batch_size,
            shape=list(o.shape),
            dtype=o.dtype,
            how=o.phase,
            function=o.function,
            count=o.count + (before.count if before else 0),
            first_step=min(o.first_step, before.first_step or 0) if before else o.first_step,
            last_step=max(o.last_step, before.last_step or 0) if before else o.last_step,
        )
    return [merged[key] for key in sorted(merged, key=lambda k: (k[0] or 0, str(k)))]


def last(field: str) -> str:
    """The last name of a field's path."""
    return field.rpartition(".")[2]


def of_class(o: runtime.Observation) -> str | None:
    """The bare name of the class that holds the field; None where the selector did not pass through an object."""
    return None if o.cls is None else o.cls.rpartition(":")[2]


def owner(path: str) -> str:
    """What the field's path names before it: ``batch`` of ``arg.batch.seq_lens``, ``return`` of ``return.x``."""
    return re.sub(r"\[[^\]]*\]", "", path).rpartition(".")[0].rpartition(".")[2]


def _base(stage: str) -> str:
    return stage.partition(" (")[0]
