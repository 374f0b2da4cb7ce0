"""``sgltrace points``: the coupling points of a workspace, or one of them with all that is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sgltrace.commands.configuration import (
    Asked,
    AssumeOption,
    ConfigOption,
    GpuOption,
    ModelOption,
    configuration_data,
    configured,
    print_by_state,
    print_configuration,
    record_data,
)
from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption, WorkspaceOption
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.configured import Applies, Configured
    from sgltrace.model import CouplingPoint, Place


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(points)


def points(
    name: Annotated[str, typer.Argument(metavar="[ID]", help="One point, by its id or how it begins.")] = "",
    workspace: WorkspaceOption = Path(DEFAULT),
    path: Annotated[Literal["v1", "v2"] | None, typer.Option("--path", help="Only this path: v1 or v2.")] = None,
    design: Annotated[
        Literal["A", "B", "C"] | None, typer.Option("--design", help="Only what concerns this design: A, B or C.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="Only this kind, such as kv_alloc.")] = None,
    severity: Annotated[Literal["hard", "soft", "none"] | None, typer.Option(help="Only this severity.")] = None,
    config: ConfigOption = None,
    assume: AssumeOption = None,
    model_config: ModelOption = None,
    gpu: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the coupling points: where code relies on something that speculative decoding fixes."""
    from sgltrace.insight.points import find, select

    opened = Workspace.open(workspace)
    index = opened.load_index()
    cut = configured(opened, index, Asked(config, assume, model_config, gpu), as_json)
    if name:
        point = find(index, name)
        print_json(_data(point, cut)) if as_json else _print_point(point, cut, path, design)
        return
    found = select(index, path, kind, severity, design)
    if as_json:
        print_json({"coupling_points": [_data(point, cut) for point in found], **configuration_data(cut)})
        return
    if cut is not None and found:
        _print_groups(found, cut, path, design)
        return
    for point in found:
        _print_line(point, path, design)
    if not found:
        print("no coupling point matches")


def _data(point: CouplingPoint, cut: Configured | None) -> CouplingPoint | dict[str, Any]:
    """A point, with how it stands to the configuration, and those of its places that may run there."""
    if cut is None:
        return point
    places = {"producers": cut.places(point.producers), "consumers": cut.places(point.consumers)}
    return record_data(point, cut.point(point), places)


def _print_groups(found: list[CouplingPoint], cut: Configured, path: str | None, design: str | None) -> None:
    from sgltrace.insight.configured import OTHERS

    def show(point: CouplingPoint, applies: Applies) -> None:
        _print_line(point, path, design, brief=applies.state == OTHERS)
        if applies.why:
            say(f"          {applies.why}")

    print_configuration(cut)
    print_by_state(found, cut.point, show)


def _print_line(point: CouplingPoint, path: str | None, design: str | None, brief: bool = False) -> None:
    from sgltrace.insight.points import level_of

    asked = [path] if path else sorted(point.severity)
    levels = "  ".join(
        f"{name}{f' {design}' if design else ''} {level_of(point, name, design) or '-':4}" for name in asked
    )
    condition = "" if point.condition == "always" else f"  [{point.condition}]"
    say(f"{point.rank:3}  {levels}  {point.kind:18}  {point.title}{condition}")
    if not brief:
        say(f"          {point.id}")


def _print_point(point: CouplingPoint, cut: Configured | None, path: str | None, design: str | None) -> None:
    print(bold(point.title))
    if cut is not None:
        from sgltrace.insight.configured import TITLES

        applies = cut.point(point)
        say(f"   {TITLES[applies.state]}{f': {applies.why}' if applies.why else ''}")
    say(f"   {point.id}  ({point.kind}, {point.binding_time}, {point.condition})")
    say(f"   {point.why_it_blocks}")
    say(f"   to do: {point.refactor}")
    if point.formula:
        say(f"   {point.formula}")
    for verdict in point.verdicts:
        if path not in (None, verdict.path) or design not in (None, verdict.design):
            continue
        say(f"   {verdict.path} {verdict.design}: {verdict.severity}: {verdict.reason}")
    for label, places in (("produced by", point.producers), ("consumed by", point.consumers)):
        print(f"   {label}")
        for place in places:
            say(f"        {_place(place)}{_elsewhere(place, cut)}")


def _elsewhere(place: Place, cut: Configured | None) -> str:
    runs = True if cut is None else cut.runs(place)
    return {True: "", False: "  (not in this configuration)", None: "  (not known for this configuration)"}[runs]


def _place(place: Place) -> str:
    return f"{place.file}:{place.line}  {place.function.rpartition(':')[2]}  {place.what}"
