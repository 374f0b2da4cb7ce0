"""The same findings in other formats, each as bytes that a caller writes where it likes."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from sgltrace.errors import UsageError
from sgltrace.insight.observed import Run
from sgltrace.model import Index
from sgltrace.reports.exports.graphs import dot, graphml
from sgltrace.reports.exports.markdown import markdown
from sgltrace.reports.exports.sarif import sarif
from sgltrace.reports.exports.tables import csv_table, json_lines, parquet_table
from sgltrace.whatif.model import Experiment

FORMATS: dict[str, tuple[str, str, Callable[[Index, list[Run], list[Experiment]], bytes]]] = {
    "sarif": (
        "sarif",
        "coupling points as SARIF 2.1.0, for editors and code scanning",
        lambda i, _, tried: sarif(i, tried),
    ),
    "jsonl": ("jsonl", "coupling points as JSON Lines, one a line", lambda i, _, __: json_lines(i)),
    "graphml": ("graphml", "the call graph as GraphML", lambda i, _, __: graphml(i)),
    "dot": ("dot", "the call graph for Graphviz, a cluster for each component", lambda i, _, __: dot(i)),
    "csv": ("csv", "observed shapes as comma-separated values", lambda _, runs, __: csv_table(runs)),
    "parquet": ("parquet", "observed shapes as Parquet (needs pyarrow)", lambda _, runs, __: parquet_table(runs)),
    "markdown": ("md", "a summary in Markdown", lambda i, runs, _: markdown(i, runs)),
}
"""Name to file ending, what it is, and the function that makes it."""


def export(
    name: str, index: Index, runs: list[Run] | None = None, experiments: list[Experiment] | None = None
) -> bytes:
    """``index``, ``runs`` and ``experiments`` in the format ``name``. Raises ``UsageError`` for one that is unknown."""
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, n=2)
        raise UsageError(f"no format {name!r}; {f'did you mean {near[0]}?' if near else f'choose {_listed()}'}")
    return FORMATS[name][2](index, sorted(runs or [], key=lambda run: run.name), experiments or [])


def _listed() -> str:
    return ", ".join(FORMATS)


__all__ = ["FORMATS", "export"]
