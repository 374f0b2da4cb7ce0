"""What runs saw of tensors, as a table: a row for each tensor, a column for each batch size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sgltrace.insight.observed import Observed, Shape
from sgltrace.reports.context import Context
from sgltrace.reports.views.common import FunctionLink, function_link

COLUMNS = 10
"""Batch sizes with a column; of more the first ones and the largest are shown."""
DISTINCT = 3
"""Shapes in one cell; of more the rest is counted."""
ORDER = ("refuted", "confirmed", "seen, not judged")


@dataclass(frozen=True)
class SeenRow:
    """A tensor where it was seen, in one dtype and one way to run."""

    name: str
    function: FunctionLink
    line: int
    formula: str | None
    verdict: str
    why: str
    """What else is to be said of the verdict."""
    elsewhere: list[FunctionLink]
    """Where it was recorded, if not in the function itself."""
    changing: int
    """How often it had the rows of the batch before or after."""
    dtype: str
    how: str
    cells: list[str]
    """The shapes at each batch size of the table; empty where none was seen."""
    steps: str
    count: int
    first: bool
    """Whether it is the tensor's first row."""


@dataclass(frozen=True)
class SeenTable:
    """Rows by tensor, what was refuted first. ``None`` is a batch size that was not recorded."""

    batches: list[int | None]
    left_out: int
    """Batch sizes without a column."""
    rows: list[SeenRow]


def seen_table(context: Context, tensors: Iterable[Observed]) -> SeenTable:
    """The table of tensors that were seen; what was not has no row."""
    found = sorted(
        (o for o in tensors if o.shapes), key=lambda o: (verdict_rank(o.verdict), o.name, o.function, o.line)
    )
    sizes = sorted({s.batch for o in found for s in o.shapes}, key=lambda size: (size is None, size or 0))
    batches = sizes if len(sizes) <= COLUMNS else [*sizes[: COLUMNS - 1], sizes[-1]]
    rows = [row for observed in found for row in _rows(context, observed, batches)]
    return SeenTable(batches, len(sizes) - len(batches), rows)


def verdict_rank(verdict: str) -> int:
    """What differs first, then what agrees, then what was seen and not judged."""
    return ORDER.index(verdict) if verdict in ORDER else len(ORDER)


def shape_text(shape: list[int]) -> str:
    """``(8, 1024)``, ``(8,)``, ``()`` as Python writes them."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _rows(context: Context, observed: Observed, batches: list[int | None]) -> list[SeenRow]:
    ways: dict[tuple[str, str], list[Shape]] = {}
    for shape in observed.shapes:
        ways.setdefault((shape.how, shape.dtype), []).append(shape)
    return [
        SeenRow(
            name=observed.name,
            function=function_link(context, observed.function, observed.line or None),
            line=observed.line,
            formula=observed.formula,
            verdict=observed.verdict,
            why=_why(observed),
            elsewhere=[
                function_link(context, name)
                for name in sorted(
                    {shape.function for shape in shapes if shape.function not in ("", observed.function)}
                )
            ],
            changing=observed.changing,
            dtype=dtype,
            how=how,
            cells=[_cell([shape for shape in shapes if shape.batch == batch]) for batch in batches],
            steps=_steps(shapes),
            count=sum(shape.count for shape in shapes),
            first=number == 0,
        )
        for number, ((how, dtype), shapes) in enumerate(sorted(ways.items()))
    ]


def _why(observed: Observed) -> str:
    one = "held against steps with one token for each request" if observed.one_token else ""
    return "; ".join(part for part in (one, observed.why) if part)


def _cell(shapes: list[Shape]) -> str:
    texts = list(dict.fromkeys(shape_text(shape.shape).replace(" ", "\N{NO-BREAK SPACE}") for shape in shapes))
    more = f" and {len(texts) - DISTINCT} more" if len(texts) > DISTINCT else ""
    return " or ".join(texts[:DISTINCT]) + more


def _steps(shapes: list[Shape]) -> str:
    firsts = [shape.first_step for shape in shapes if shape.first_step is not None]
    lasts = [shape.last_step for shape in shapes if shape.last_step is not None]
    if not firsts or not lasts:
        return ""
    return f"{min(firsts)}" if min(firsts) == max(lasts) else f"{min(firsts)}–{max(lasts)}"
