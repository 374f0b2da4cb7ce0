"""``sgltrace compare``: recorded runs set side by side by batch size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption
from sgltrace.errors import InputError, UsageError

if TYPE_CHECKING:
    from sgltrace.insight.compare_runs import RunComparison

PLAN = "plan.json"
"""What every trace folder holds, and nothing else that may be named here."""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(compare)


def compare(
    what: Annotated[
        list[str], typer.Argument(metavar="RUN RUN...", help="Traces of `sgltrace run`; the plain one is the baseline.")
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write a page with a plot to this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set runs side by side by batch size: speed-up, where the curves cross, and what a switch would need."""
    traces = [name for name in what if is_trace(name)]
    if len(traces) == len(what):
        _compare_runs([Path(name) for name in what], output, as_json)
    else:
        other = next(name for name in what if name not in traces)
        raise UsageError(f"{other} is no trace of `sgltrace run` (it has no {PLAN}); name trace folders alone")


def is_trace(name: str) -> bool:
    """Whether a name is that of a trace folder."""
    return Path(name, PLAN).is_file()


def _compare_runs(folders: list[Path], output: Path | None, as_json: bool) -> None:
    from sgltrace.insight.compare_runs import compare_runs
    from sgltrace.insight.differences import differences
    from sgltrace.insight.figures import figures, names

    if len(folders) < 2:
        raise UsageError("compare wants two runs or more; `sgltrace show --summary` has the figures of one")
    runs = [figures(folder, name) for folder, name in zip(folders, names(folders), strict=True)]
    found = compare_runs(runs)
    if len(runs) == 2 and runs[0].what == runs[1].what:
        found.differences = differences(folders[0], folders[1], (runs[0], runs[1]))
    if output is not None:
        _write_page(found, output)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _write_page(found: RunComparison, output: Path) -> None:
    from sgltrace.reports.views.compared import page

    try:
        output.write_bytes(page(found))
    except OSError as error:
        raise InputError(f"cannot write {output}: {error.strerror}; name another file") from error


def _print(found: RunComparison) -> None:
    from sgltrace.insight.compare_text import cost_lines, difference_lines, plot_lines, switch_lines, table_lines

    for side in found.runs:
        told = f"{side.what}, SGLang {side.release or 'of an unknown release'}"
        say(f"{side.name}{'  (the baseline)' if side.baseline else ''}: {told}")
    print()
    for line in table_lines(found):
        print(line)
    for title, lines in (
        ("tokens a second", plot_lines(found)),
        ("switching", [*switch_lines(found), *cost_lines(found)]),
        ("what differs", difference_lines(found)),
        ("notes", found.notes),
    ):
        if lines:
            print(f"\n{bold(title)}")
            for line in lines:
                say(f"  {line}")
