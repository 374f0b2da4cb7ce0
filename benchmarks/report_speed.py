"""How long the whole report takes, over the time that Pygments needs to highlight the same excerpts.

    python benchmarks/report_speed.py INDEX SOURCE

INDEX is the ``index.json`` of a workspace, SOURCE what it was made from. Both are timed in this one run, several times
in turn, and the best of each counts, in processor time of this process and its children and in wall time. Exits with 1
where the report takes more than twice the processor time; wall time depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from sgltrace.files import user_cache_dir
from sgltrace.model import Index
from sgltrace.progress import SilentProgress
from sgltrace.reports import ReportOptions, render
from sgltrace.reports.context import Context
from sgltrace.sources import SourceTree, open_source
from sgltrace.workspace import load_index

MOST = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("source")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    index = load_index(arguments.index)
    tree = open_source(arguments.source, cache_dir=user_cache_dir(), progress=SilentProgress())
    excerpts = excerpts_of(index, tree)
    lines = sum(text.count("\n") + 1 for text in excerpts)
    print(f"{len(excerpts)} excerpts, {lines} lines")
    report, pygments = [], []
    for number in range(arguments.rounds):
        report.append(timed(lambda: render_once(index, tree)))
        pygments.append(timed(lambda: by_pygments(excerpts)))
        print(f"round {number + 1}: report {report[-1][0]:.2f} s, Pygments {pygments[-1][0]:.2f} s of processor time")
    ratios = [min(r[which] for r in report) / min(p[which] for p in pygments) for which in (0, 1)]
    print(f"report over Pygments: {ratios[0]:.2f} in processor time, {ratios[1]:.2f} in wall time (at most {MOST})")
    return int(ratios[0] > MOST)


def excerpts_of(index: Index, tree: SourceTree) -> list[str]:
    """The source of each function that has a page."""
    context = Context(index, tree, ReportOptions())
    found = []
    for function in context.shown:
        lines = context.reader.lines(function.file)[function.line - 1 : function.end_line]
        found.append("\n".join(lines))
    return found


def render_once(index: Index, tree: SourceTree) -> None:
    with tempfile.TemporaryDirectory() as folder:
        render(index, tree, Path(folder), ReportOptions())


def by_pygments(excerpts: list[str]) -> None:
    lexer, formatter = PythonLexer(), HtmlFormatter(nowrap=True)
    for text in excerpts:
        highlight(text, lexer, formatter)


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Processor time with that of children, and wall time, in seconds."""
    before, began = os.times(), time.perf_counter()
    work()
    after, ended = os.times(), time.perf_counter()
    return sum(after[:4]) - sum(before[:4]), ended - began


if __name__ == "__main__":
    raise SystemExit(main())
