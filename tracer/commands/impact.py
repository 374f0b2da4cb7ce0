"""``sgltrace impact``: what a diff does to a dynamic disable of speculation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sgltrace.commands.compare import PackageOption, write_page
from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption
from sgltrace.errors import EXIT_DONE, EXIT_FOUND, UsageError

if TYPE_CHECKING:
    from sgltrace.insight.impact import Impact


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(impact)


def impact(
    diff: Annotated[
        str,
        typer.Argument(
            metavar="DIFF",
            help="A unified diff, a file of `git format-patch`, - for standard input, or A..B of a checkout.",
        ),
    ],
    source: Annotated[
        str, typer.Option("--source", metavar="SRC", help="What it is a change of, as `sgltrace index` takes it.")
    ] = ".",
    fail_on: Annotated[
        Literal["new-hard"] | None, typer.Option("--fail-on", help="Exit with 1 where it adds a hard point.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write a page to this file.")] = None,
    as_json: JsonOption = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print every difference.")] = False,
    package: PackageOption = None,
) -> int:
    """Say what a diff resolves, adds and edits of what stands in the way of switching speculation off per batch.

    It is applied in memory; nothing of the source is written.
    """
    from sgltrace.insight.impact import Impact, assess
    from sgltrace.insight.impact.opening import open_diff, sides
    from sgltrace.progress import progress_for_user
    from sgltrace.sources.patch import DoesNotApply

    if as_json and as_markdown:
        raise UsageError("--json and --markdown both print; name one of them")
    with progress_for_user(quiet=as_json or as_markdown) as progress:
        try:
            opened = open_diff(diff, source, progress, package)
        except DoesNotApply as error:
            if as_json:
                print_json(Impact(applies=False, why=str(error)))
            raise
        before, after = sides(opened, progress)
        found = assess(before, after, opened.files, progress.stage)
    found.notes = [*opened.notes, *found.notes]
    _tell(found, diff, output, as_json, as_markdown, everything)
    return EXIT_FOUND if fail_on and found.new_hard else EXIT_DONE


def _tell(found: Impact, diff: str, output: Path | None, as_json: bool, as_markdown: bool, everything: bool) -> None:
    if output is not None:
        from sgltrace.reports.views.changes import impact_page

        write_page(output, impact_page(found, diff))
    if as_json:
        print_json(found)
    elif as_markdown:
        from sgltrace.reports.exports.changes import impact_markdown

        print(impact_markdown(found).decode(), end="")
    else:
        _print(found, everything)
        if output is not None:
            say(f"page: {output}")


def _print(found: Impact, everything: bool) -> None:
    from sgltrace.insight.changes.text import TOP, change_line, shortened
    from sgltrace.insight.impact.text import buckets, edited_line

    say(bold(found.why))
    for title, changes in buckets(found):
        print(f"\n{bold(title)}")
        for change in changes if everything else changes[:TOP]:
            say(f"  {change_line(change)}")
            say(f"      {change.why if everything else shortened(change.why)}")
        if not everything and len(changes) > TOP:
            say(f"  {len(changes) - TOP} more; --all prints them")
    if found.edited:
        print(f"\n{bold('What it edits')}")
        for entry in found.edited if everything else found.edited[:TOP]:
            say(f"  {edited_line(entry)}")
            if entry.way:
                say(f"      {' -> '.join(name.partition(':')[2] for name in entry.way)}")
        if not everything and len(found.edited) > TOP:
            say(f"  {len(found.edited) - TOP} more; --all prints them")
    if found.fields:
        say(f"  fields: {', '.join(found.fields)}")
    if found.others:
        print()
        if everything:
            print(bold("What else differs"))
            for change in found.others:
                say(f"  {change_line(change)}")
        else:
            say(f"{len(found.others)} other differences (calls, shapes, values); --all prints them")
    for note in found.notes:
        say(f"note: {note}")
