"""``--config`` of several commands: the configuration that an answer is cut down to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from sgltrace.commands.output import bold, say
from sgltrace.errors import InputError, UsageError
from sgltrace.files import user_cache_dir
from sgltrace.progress import progress_for_user
from sgltrace.workspace import Workspace

if TYPE_CHECKING:
    from sgltrace.configuration import Configuration
    from sgltrace.insight.configured import Applies, Configured
    from sgltrace.model import Index, Place

Record = TypeVar("Record", bound=msgspec.Struct)

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="WORDS",
        help="Cut down to one server: words such as eagle3,topk=1,tp=8,no-dp, a launch command in quotes, or a file of "
        "`sgltrace explain --json`.",
    ),
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option("--assume", metavar="NAME=VALUE", help="With --config: a fact that it does not decide."),
]
ModelOption = Annotated[
    Path | None,
    typer.Option("--model-config", help="With --config: the model's config.json, or the folder that holds it."),
]
GpuOption = Annotated[str | None, typer.Option("--gpu", help="With --config: the GPU by name, such as h200.")]


@dataclass(frozen=True)
class Asked:
    """What the user said of a configuration."""

    config: str | None
    assume: list[str] | None = None
    model_config: Path | None = None
    gpu: str | None = None

    def check(self) -> None:
        """Raises UsageError where facts are given of no configuration."""
        if self.config is None and (self.assume or self.model_config or self.gpu):
            raise UsageError("--assume, --model-config and --gpu say more of a --config; give that, too")


def configured(workspace: Workspace, index: Index, asked: Asked, quiet: bool = False) -> Configured | None:
    """The index of a workspace, asked about one configuration; None where none was named."""
    asked.check()
    if asked.config is None:
        return None
    from sgltrace.insight.configured import Configured

    return Configured(index, _configuration(workspace, index, asked, quiet))


def _configuration(workspace: Workspace, index: Index, asked: Asked, quiet: bool) -> Configuration:
    from sgltrace.explain.configured import configuration_of
    from sgltrace.explain.explain import make_inputs
    from sgltrace.sources import open_source

    assert asked.config is not None
    stamp = workspace.stamp()
    inputs = make_inputs(asked.assume or [], asked.model_config, asked.gpu)
    with progress_for_user(quiet=quiet) as progress:
        try:
            requested = stamp.requested or index.source.requested
            tree = open_source(requested, cache_dir=user_cache_dir(), progress=progress, package=stamp.package)
        except InputError:
            tree = None
            typer.echo("sgltrace: the source is gone: --config counts as it says, not as it is handled", err=True)
        progress.stage("Evaluating the argument handling")
        return configuration_of(asked.config, index, tree, inputs)


def configuration_data(found: Configured | None) -> dict[str, Any]:
    """What JSON says of the configuration; nothing where none was named."""
    if found is None:
        return {}
    made = found.configuration
    told = {"name": made.name, "worker": made.worker, "path": made.path, "overlap": made.overlap}
    return {"configuration": {**told, "values": made.values, "open": made.open}}


def record_data(record: msgspec.Struct, applies: Applies, places: dict[str, list[Place]]) -> dict[str, Any]:
    """A record with how it stands to the configuration, and with those of its places that may run there."""
    return {
        **{name: getattr(record, name) for name in record.__struct_fields__},
        "applies": {"state": applies.state, "why": applies.why},
        **places,
    }


def print_by_state(
    records: Iterable[Record], applies: Callable[[Record], Applies], show: Callable[[Record, Applies], None]
) -> None:
    """Records under what they are to the configuration: always, yours, others, unknown."""
    from sgltrace.insight.configured import TITLES

    standing = [(record, applies(record)) for record in records]
    for state, title in TITLES.items():
        members = [(record, found) for record, found in standing if found.state == state]
        if members:
            print(f"\n{bold(title)} ({len(members)})")
        for record, found in members:
            show(record, found)


def print_configuration(found: Configured) -> None:
    """The configuration in a line or two."""
    made = found.configuration
    worker = made.worker or ("no speculation" if made.path == "none" else "worker not known")
    overlap = {True: ", with overlap", False: ", without overlap", None: ""}[made.overlap]
    say(f"{bold('configuration')} {made.name}: {worker}, path {made.path or 'not known'}{overlap}")
