"""``sgltrace verify``: invariants of a healthy server, held against every recorded step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption
from sgltrace.errors import EXIT_DONE, EXIT_FOUND, InputError


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(verify)


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trace of `sgltrace run`.")],
    as_json: JsonOption = False,
) -> None:
    """Check a run for what holds at every step of a healthy server. Exit code 1: a step breaks it."""
    from sgltrace.runtime import read_trace
    from sgltrace.runtime.verify import verify as check

    found = check(read_trace(run))
    if not found.steps:
        raise InputError(f"{run}: no step is complete in it; there is nothing to check")
    if as_json:
        print_json({"healthy": found.healthy, "steps": found.steps, "invariants": found.invariants})
    else:
        for held in found.invariants:
            count = f"{held.checked} of {found.steps} steps"
            state = f"broken at {held.broken} of {count}" if held.broken else f"held at {count}" if held.checked else ""
            say(f"{held.name:<15} {state or 'nothing recorded tells':<28} {held.says}")
        for held in found.invariants:
            if held.first is not None:
                print()
                print(bold(f"{held.name}: first broken in step {held.first.step}, rank {held.first.rank}"))
                say(f"  {held.first.what}")
                for line in held.first.before:
                    say(f"  {line}")
    raise typer.Exit(EXIT_DONE if found.healthy else EXIT_FOUND)
