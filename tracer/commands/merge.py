"""``sgltrace merge``: the traces of the nodes of one run, put together as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sgltrace.commands.output import print_json, say
from sgltrace.commands.query import JsonOption


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(merge)


def merge(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR DIR...", help="Traces of one run, each recorded on another node.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="A new folder for the whole trace.")],
    as_json: JsonOption = False,
) -> None:
    """Merge the traces of a run's nodes, and report ranks that disagree and clocks that differ."""
    from sgltrace.runtime.merge import merge as merged

    found = merged(folders, output)
    if as_json:
        print_json(found)
        return
    say(f"{found.folder}: {len(found.ranks)} ranks of {len(found.nodes)} nodes, {found.matched} steps of more than one")
    for rank, folder in found.ranks.items():
        alone = found.alone.get(rank, 0)
        say(f"  rank {rank}: {folder}" + (f", {alone} steps that no other rank has" if alone else ""))
    for difference in found.disagreements:
        seen = ", ".join(f"{rank} {value}" for rank, value in sorted(difference.seen.items()))
        say(f"ranks disagree in step {difference.step}, {difference.what}: {seen}")
    if found.matched and not found.disagreements:
        say("on every step the ranks agree on mode, batch size, graphs, accept lengths and shapes")
    for note in found.notes:
        say(f"note: {note}")
