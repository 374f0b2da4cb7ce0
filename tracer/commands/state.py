"""``sgltrace field`` and ``contract``: questions to the field flow of a workspace, and to what is derived from it."""

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
from sgltrace.commands.output import bold, guard_text, print_json, say
from sgltrace.commands.query import JsonOption, WorkspaceOption
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.configured import Applies, Configured
    from sgltrace.insight.state import OrderedAccess
    from sgltrace.model import ContractField, Place

PathOption = Annotated[Literal["v1", "v2"] | None, typer.Option("--path", help="Only this path: v1 or v2.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    app.command()(field)
    app.command()(contract)


def field(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A field, or Class.field: ScheduleBatch.out_cache_loc.")],
    workspace: WorkspaceOption = Path(DEFAULT),
    path: PathOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who writes and reads a field of a decode step's state, in step order."""
    from sgltrace.insight.state import find_fields, in_step_order

    index = Workspace.open(workspace).load_index()
    fields = find_fields(index, name)
    accesses = in_step_order(index, fields, path)
    if as_json:
        rows = [{"class": a.cls, "field": a.field, "writes": a.writes, "access": a.access} for a in accesses]
        print_json({"fields": [f"{f.cls}.{f.field}" for f in fields], "accesses": rows})
        return
    files = {function.id: function.file for function in index.functions}
    for found in fields:
        role = f"  ({found.role})" if found.role else ""
        print(f"{bold(f'{found.cls}.{found.field}')}{role}  {len(found.writes)} writes, {len(found.reads)} reads")
        for access in accesses:
            if (access.cls, access.field) == (found.cls, found.field):
                _print_access(access, files)


def _print_access(found: OrderedAccess, files: dict[str, str]) -> None:
    access = found.access
    shape = f"  {access.shape}" if access.shape else ""
    say(f"   {'W' if found.writes else 'r'} {access.function}  ({access.kind}){shape}")
    where = ", ".join([*access.phase, *access.paths])
    say(f"        {files.get(access.function, '?')}:{access.line}  {access.expression}  [{where}]")
    if access.guards:
        say(f"        {'; '.join(guard_text(guard) for guard in access.guards)}")


def contract(
    workspace: WorkspaceOption = Path(DEFAULT),
    path: PathOption = None,
    config: ConfigOption = None,
    assume: AssumeOption = None,
    model_config: ModelOption = None,
    gpu: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a decode step without speculation must leave behind: shape, dtype, stride, value, and who reads it."""
    from sgltrace.insight.state import contract_of

    opened = Workspace.open(workspace)
    index = opened.load_index()
    rows = contract_of(index, path)
    cut = configured(opened, index, Asked(config, assume, model_config, gpu), as_json)
    if as_json:
        print_json({"contract": [_data(row, cut) for row in rows], **configuration_data(cut)})
        return
    if cut is not None:
        print_configuration(cut)
        _print_cut(rows, cut)
        return
    last = None
    for row in rows:
        if row.path != last:
            print(bold(f"path {row.path}"))
            last = row.path
        _print_row(row)
    if not rows:
        print("the index has no contract: no path with a speculative worker was found")


def _data(row: ContractField, cut: Configured | None) -> ContractField | dict[str, Any]:
    if cut is None:
        return row
    return record_data(row, cut.row(row), {"writers": cut.places(row.writers), "readers": cut.places(row.readers)})


def _print_cut(rows: list[ContractField], cut: Configured) -> None:
    from sgltrace.insight.configured import OTHERS

    def show(row: ContractField, applies: Applies) -> None:
        if applies.state == OTHERS:
            say(f"   {row.path}  {row.field}: {applies.why}")
            return
        _print_row(row, cut)
        if applies.why:
            say(f"        {applies.why}")

    print_by_state(rows, cut.row, show)


def _print_row(row: ContractField, cut: Configured | None = None) -> None:
    layout = "  ".join(part for part in (row.shape, row.dtype, f"stride: {row.stride}" if row.stride else None) if part)
    say(f"   {row.field}  ({row.requirement})  {layout or 'shape not derived'}")
    say(f"        off step: {row.off_step_value}")
    for label, places in (("written by", row.writers), ("read by", row.readers)):
        shown = places if cut is None else cut.places(places)
        if shown:
            say(f"        {label} {_places(shown)}")


def _places(places: list[Place], shown: int = 4) -> str:
    more = f" and {len(places) - shown} more" if len(places) > shown else ""
    return ", ".join(f"{p.function.rpartition(':')[2]}:{p.line}" for p in places[:shown]) + more
