"""``sgltrace compare``: recorded runs set side by side by batch size, or two sources by what an off step meets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption
from sgltrace.errors import InputError, UsageError

if TYPE_CHECKING:
    from sgltrace.insight.changes import Changes
    from sgltrace.insight.compare_runs import RunComparison

PackageOption = Annotated[str | None, typer.Option(help="The package of a fork that has another name.")]

PLAN = "plan.json"
"""What every trace folder holds, and nothing else that may be named here."""


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(compare)


def compare(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Two sources, as `sgltrace index` takes them, or workspaces, the earlier first; or traces of "
            "`sgltrace run`, of which the plain one is the baseline.",
        ),
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write a page to this file.")] = None,
    as_json: JsonOption = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Of sources: print Markdown for a pull request.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Of sources: print every difference.")] = False,
    package: PackageOption = None,
) -> None:
    """Compare two sources: coupling points, contract, gates and calls that differ, and why. Or compare recorded runs.

    Runs are set side by side by batch size: speed-up, where the curves cross, and what a switch would need.
    """
    traces = [name for name in what if is_trace(name)]
    if len(traces) == len(what):
        if as_markdown:
            raise UsageError("--markdown is for sources; a comparison of runs has --json, and a page with -o")
        _compare_runs([Path(name) for name in what], output, as_json)
    elif traces:
        other = next(name for name in what if name not in traces)
        raise UsageError(f"{other} is no trace of `sgltrace run` (it has no {PLAN}); name traces alone, or sources")
    else:
        if as_json and as_markdown:
            raise UsageError("--json and --markdown both print; name one of them")
        _compare_sources(what, output, as_json, as_markdown, everything, package)


def is_trace(name: str) -> bool:
    """Whether a name is that of a trace folder."""
    return Path(name, PLAN).is_file()


def _compare_sources(
    names: list[str], output: Path | None, as_json: bool, as_markdown: bool, everything: bool, package: str | None
) -> None:
    from sgltrace.insight.changes import compare_everything
    from sgltrace.insight.changes.opening import open_side
    from sgltrace.progress import progress_for_user

    if len(names) != 2:
        raise UsageError(f"compare wants two sources, the earlier first, and not {len(names)}; or traces")
    with progress_for_user(quiet=as_json or as_markdown) as progress:
        before, after = (open_side(name, progress, package=package) for name in names)
        found = compare_everything(before, after, progress.stage)
    if output is not None:
        from sgltrace.reports.views.changes import page

        write_page(output, page(found))
    if as_json:
        print_json(found)
    elif as_markdown:
        from sgltrace.reports.exports.changes import markdown

        print(markdown(found, everything).decode(), end="")
    else:
        _print_changes(found, everything)
        if output is not None:
            say(f"page: {output}")


def _print_changes(found: Changes, everything: bool) -> None:
    from sgltrace.insight.changes.text import change_line, headline, shortened, top

    say(bold(f"{found.before.name} -> {found.after.name}"))
    for line in headline(found):
        say(line)
    chosen = found.changes if everything else top(found.changes)
    print()
    for change in chosen:
        say(change_line(change))
        if change.why:
            say(f"    {change.why if everything else shortened(change.why)}")
    left = sum(change.change != "moved" for change in found.changes) - len(chosen)
    if left > 0:
        say(f"\n{left} smaller differences; --all prints them, -o FILE writes a page")
    if found.renamed:
        say(f"{len(found.renamed)} functions, classes and fields have another name or place, and are the same")
    for note in found.notes:
        say(f"note: {note}")


def _compare_runs(folders: list[Path], output: Path | None, as_json: bool) -> None:
    from sgltrace.insight.compare_runs import compare_runs
    from sgltrace.insight.differences import differences
    from sgltrace.insight.figures import figures, names

    if len(folders) < 2:
        raise UsageError("compare needs two or more runs; `sgltrace show --summary` has the figures of one")
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

    write_page(output, page(found))


def write_page(output: Path, data: bytes) -> None:
    """Write a page where the user wants it. Raises InputError."""
    try:
        output.write_bytes(data)
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
