"""``sgltrace points``: the coupling points of a workspace, or one of them with all that is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption, WorkspaceOption
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.model import CouplingPoint, Place


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(points)


def points(
    name: Annotated[str, typer.Argument(metavar="[ID]", help="One point, by its id or how it begins.")] = "",
    workspace: WorkspaceOption = Path(DEFAULT),
    path: Annotated[Literal["v1", "v2"] | None, typer.Option("--path", help="Only this path: v1 or v2.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind, such as kv_alloc.")] = None,
    severity: Annotated[Literal["hard", "soft", "none"] | None, typer.Option(help="Only this severity.")] = None,
    as_json: JsonOption = False,
) -> None:
    """The places where something that speculation fixes crosses into what a plain decode step needs otherwise."""
    from sgltrace.insight.points import find, select

    index = Workspace.open(workspace).load_index()
    if name:
        point = find(index, name)
        print_json(point) if as_json else _print_point(point)
        return
    found = select(index, path, kind, severity)
    if as_json:
        print_json({"coupling_points": found})
        return
    for point in found:
        _print_line(point)
    if not found:
        print("no coupling point meets these conditions")


def _print_line(point: CouplingPoint) -> None:
    levels = "  ".join(f"{path} {level or '-':4}" for path, level in sorted(point.severity.items()))
    condition = "" if point.condition == "always" else f"  [{point.condition}]"
    say(f"{point.rank:3}  {levels}  {point.kind:18}  {point.title}{condition}")
    say(f"          {point.id}")


def _print_point(point: CouplingPoint) -> None:
    print(bold(point.title))
    say(f"   {point.id}  ({point.kind}, {point.binding_time}, {point.condition})")
    say(f"   {point.why_it_blocks}")
    say(f"   refactor: {point.refactor}")
    if point.formula:
        say(f"   {point.formula}")
    for verdict in point.verdicts:
        say(f"   {verdict.path} {verdict.design}: {verdict.severity}: {verdict.reason}")
    for label, places in (("produced by", point.producers), ("consumed by", point.consumers)):
        print(f"   {label}")
        for place in places:
            say(f"        {_place(place)}")


def _place(place: Place) -> str:
    return f"{place.file}:{place.line}  {place.function.rpartition(':')[2]}  {place.what}"
