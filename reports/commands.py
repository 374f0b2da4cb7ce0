"""``sgltrace export``: what a workspace holds, in other formats."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sgltrace.errors import InputError
from sgltrace.insight.observed import Run
from sgltrace.reports.exports import FORMATS, export
from sgltrace.workspace import DEFAULT, Workspace

HELP = "; ".join(f"{name}: {what}" for name, (_, what, _) in FORMATS.items())


def register(app: typer.Typer, runs: Callable[[Workspace], list[Run]]) -> None:
    """Add the command to the program. ``runs`` gives what is recorded in a workspace, joined to its index."""

    @app.command(name="export")
    def export_command(
        form: Annotated[str, typer.Argument(metavar="FORMAT", help=HELP)],
        workspace: Annotated[Path, typer.Option("-w", "--workspace", help="The workspace to read.")] = Path(DEFAULT),
        output: Annotated[
            Path | None, typer.Option("-o", "--output", help="The file to write; standard output if left out.")
        ] = None,
    ) -> None:
        """Write coupling points, the call graph or observations in another format."""
        found = Workspace.open(workspace)
        data = export(form, found.load_index(), runs(found))
        if output is None:
            sys.stdout.buffer.write(data)
            return
        try:
            output.write_bytes(data)
        except OSError as error:
            raise InputError(f"cannot write {output}: {error.strerror}; name another file") from error
