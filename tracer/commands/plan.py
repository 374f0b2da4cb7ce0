"""``sgltrace plan``: the refactor as edits, in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sgltrace.commands.configuration import (
    Asked,
    AssumeOption,
    ConfigOption,
    GpuOption,
    ModelOption,
    configured,
    print_configuration,
)
from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption, WorkspaceOption
from sgltrace.errors import UsageError
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.plan import Item, Plan


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(plan)


def plan(
    workspace: WorkspaceOption = Path(DEFAULT),
    path: Annotated[Literal["v1", "v2"] | None, typer.Option("--path", help="The path: v1 or v2.")] = None,
    design: Annotated[
        Literal["A", "B", "C"],
        typer.Option(
            "--design",
            help="A: the scheduler sends the batch to the target worker; B: the speculative worker runs a plain "
            "decode; C: a verify of width one.",
        ),
    ] = "B",
    config: ConfigOption = None,
    assume: AssumeOption = None,
    model_config: ModelOption = None,
    gpu: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """What to change for steps without speculation: as edits, with what each supplies, prevents and waits for."""
    from sgltrace.insight.plan import make_plan
    from sgltrace.insight.state import check_path

    opened = Workspace.open(workspace)
    index = opened.load_index()
    cut = configured(opened, index, Asked(config, assume, model_config, gpu), as_json)
    there = [name for name, entry in sorted(index.entry_points.items()) if entry is not None]
    if cut is not None and cut.configuration.path in there:
        if path not in (None, cut.configuration.path):
            raise UsageError(f"--path {path}: this configuration takes path {cut.configuration.path}")
        path = cut.configuration.path  # type: ignore[assignment]
    elif cut is not None and cut.configuration.path in ("none", "other"):
        raise UsageError(
            f"--config {cut.configuration.name}: this server runs neither v1 nor v2; there is nothing to plan"
        )
    if path is None and not there:
        raise UsageError("the index has no path with a speculative worker; there is nothing to plan")
    chosen = path or there[-1]
    check_path(index, chosen)
    made = make_plan(index, chosen, design, cut)
    if as_json:
        print_json(made)
        return
    if cut is not None:
        print_configuration(cut)
    _print(made)


def _print(made: Plan) -> None:
    numbers = {item.id: item.number for item in made.items}
    print(bold(f"path {made.path}, design {made.design}: {len(made.items)} edits"))
    for item in made.items:
        _print_item(item, numbers)
    if len(made.critical) > 1:
        print(f"\ncritical path: {' -> '.join(str(numbers[name]) for name in made.critical)}")
    if made.graphs:
        print(f"\n{bold('must exist in addition')}")
    for state in made.graphs:
        say(f"   {state.runner}: {state.mode}, {state.width} token a request, batch sizes {state.batch_sizes}")
        say(f"        {state.memory}; today {state.has} ({state.function.rpartition(':')[2]}:{state.line})")
    if made.costs:
        print()
        say(f"{len(made.costs)} soft points stay as costs: {', '.join(made.costs)}")
    if made.left_out:
        say(f"{len(made.left_out)} hard points of other configurations are left out")
    for note in made.notes:
        say(f"note: {note}")


def _print_item(item: Item, numbers: dict[str, int]) -> None:
    doubt = "  (not known for your configuration)" if item.applies == "unknown" else ""
    print(f"\n{bold(f'{item.number:2}  {item.title}')}{doubt}")
    say(f"    {item.what}")
    say(f"    size {item.size}: {item.size_why}")
    say(f"    without it: {item.without}")
    for struck in item.met[:3]:
        late = ", a step later" if struck.later else ""
        where = f", {struck.where}" if struck.where else ""
        say(f"        {struck.function.rpartition(':')[2]}:{struck.line} raises {struck.exception}{late}{where}")
    for name, why in item.why_after.items():
        say(f"    after {numbers[name]}: {why}")
    for value in item.supply:
        layout = "  ".join(filter(None, (value.shape, value.dtype)))
        on = f" (on {value.on})" if value.on else ""
        say(f"    supply {value.field}{on}  {layout or '(shape not derived)'}: {value.value}")
        say(f"        without it: {value.without}{f'; with an old value: {value.stale}' if value.stale else ''}")
        if value.read_in:
            say(f"        read in {', '.join(value.read_in)}")
    for text in item.leave_alone:
        say(f"    leave alone {text}")
    for place in item.functions[:8]:
        say(f"    {place.file}:{place.line}  {place.function.rpartition(':')[2]}  {place.what}")
    if len(item.functions) > 8:
        say(f"    and {len(item.functions) - 8} more places")
    say(f"    test: {item.test}")
    if item.points:
        say(f"    points: {', '.join(item.points)}")
