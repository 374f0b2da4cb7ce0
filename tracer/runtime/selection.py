"""Which steps of a trace are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from sgltrace.errors import UsageError

from .step import Step
from .steps import steps
from .trace import ProcessTrace, Trace

_SPAN = re.compile(r"(\d+)?:(\d+)?$")
_RANK = re.compile(r"([a-z]+)(\d+)")


class Selection(msgspec.Struct, kw_only=True, frozen=True):
    """What a user asked to see; what is None or empty chooses nothing. ``upto`` is without its end."""

    first: int | None = None
    upto: int | None = None
    last: int | None = None
    """The newest so many of each rank, of those that the rest chooses."""
    batches: tuple[int, int] | None = None
    """The least and the largest batch size."""
    rank: str = ""
    mode: str = ""

    def ranks(self, trace: Trace) -> list[ProcessTrace]:
        """The processes that are shown. Raises ``UsageError`` if there is none of the rank."""
        found = trace.recording()
        if not self.rank:
            return found
        chosen = [p for p in found if self.rank in _names(p.rank)]
        if not chosen:
            known = ", ".join(process.rank for process in found) or "none was recorded"
            raise UsageError(f"--rank {self.rank}: there is no such rank in {trace.folder}; there are: {known}")
        return chosen

    def in_span(self, found: Iterable[Step]) -> Iterator[Step]:
        """The steps between the first and the last number."""
        for step in found:
            if self.upto is not None and step.number >= self.upto:
                return
            if self.first is None or step.number >= self.first:
                yield step

    def shows(self, mode: str, batch: int | None) -> bool:
        """Whether steps of a mode and batch size are shown."""
        if self.mode and self.mode.upper() not in mode.upper():
            return False
        return self.batches is None or (batch is not None and self.batches[0] <= batch <= self.batches[1])

    def steps(self, trace: Trace, process: ProcessTrace, detail: bool) -> Iterator[Step]:
        """The steps of a process that are shown."""
        found = (
            step
            for step in self.in_span(steps(trace, process, detail))
            if not self.narrows or (step.ran and self.shows(step.mode, step.batch_size))
        )
        return found if self.last is None else iter(_tail(found, self.last))

    @property
    def narrows(self) -> bool:
        """Whether steps are chosen by what they are."""
        return bool(self.mode) or self.batches is not None


def _tail(found: Iterable[Step], count: int) -> Iterable[Step]:
    from collections import deque

    return deque((step for step in found if step.ran), maxlen=count)


def _names(rank: str) -> set[str]:
    """What a rank may be called: ``tp1 pp0``, ``tp1``, ``1``."""
    parts = _RANK.findall(rank)
    return {rank, *(kind + number for kind, number in parts), *(number for kind, number in parts if kind == "tp")}


def select(steps: str = "", last: int | None = None, batch: str = "", rank: str = "", mode: str = "") -> Selection:
    """A selection from what stands on the command line. Raises ``UsageError``."""
    first, upto = span(steps) if steps else (None, None)
    return Selection(
        first=first, upto=upto, last=last, batches=_batches(batch) if batch else None, rank=rank, mode=mode
    )


def span(text: str) -> tuple[int, int | None]:
    """``A:B``, ``A:`` or ``:B``. Raises ``UsageError``."""
    found = _SPAN.match(text)
    if found is None:
        raise UsageError(f"--steps {text}: steps are given as A:B, A: or :B")
    first, upto = found.groups()
    return int(first or 0), None if upto is None else int(upto)


def _batches(text: str) -> tuple[int, int]:
    if text.isdecimal():
        return int(text), int(text)
    least, dash, most = text.partition("-")
    if dash and least.isdecimal() and most.isdecimal() and int(least) <= int(most):
        return int(least), int(most)
    raise UsageError(f"--batch {text}: give a size such as 8, or sizes such as 4-8")
