"""``sgltrace whatif``: force an off step on a throw-away server, and see what strikes."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sgltrace.commands.output import bold, print_json, say
from sgltrace.commands.query import JsonOption
from sgltrace.errors import EXIT_DONE, EXIT_FOUND, InputError, UsageError
from sgltrace.terminal import columns

if TYPE_CHECKING:
    from sgltrace.model import Index
    from sgltrace.whatif.model import Experiment

_LAUNCH = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
_SPAN = re.compile(r"(\d+)([smh]?)$")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_SERVERS = ("launch_server", "serve", "launch_router")


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(context_settings=_LAUNCH)(whatif)


def whatif(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND...", help="A script that starts an engine, sends its own requests and ends."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="A folder for the experiment; of one to go on with.")
    ] = None,
    path: Annotated[str, typer.Option(help="The path that COMMAND takes: v1 or v2.")] = "v2",
    design: Annotated[str, typer.Option(help="Where the off step is taken.")] = "B",
    pattern: Annotated[
        str, typer.Option(metavar="'off after 10'", help="Which decode steps the ladder takes off.")
    ] = "2 on 2 off",
    also: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Try the last rung with these, too; 'none' for none.")
    ] = None,
    budget: Annotated[str, typer.Option(metavar="20m", help="Add no rung after this time.")] = "20m",
    rung: Annotated[str, typer.Option(metavar="4m", help="End a process that takes longer.")] = "4m",
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Processes of COMMAND side by side.")] = 2,
    ablation: Annotated[bool, typer.Option("--ablation/--no-ablation", help="Take each bridge away alone.")] = True,
    passes: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="COMMAND makes its requests SGLTRACE_PASSES times, N at most: fewer starts."
        ),
    ] = 1,
    index: Annotated[
        Path | None, typer.Option("--index", metavar="FILE", help="An index.json of the same release, made elsewhere.")
    ] = None,
    throw_away: Annotated[
        bool, typer.Option("--throw-away", help="COMMAND starts a server that nobody else uses.")
    ] = False,
    workspace: Annotated[
        Path | None, typer.Option("-w", "--workspace", help="Where the index of COMMAND's SGLang lies, or is to.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Force an off step on throw-away servers, add what it lacks until on and off steps mix, then take each away.

    COMMAND is started again and again, with greedy sampling and the same requests each time. Ends with 1 where on and
    off steps do not mix, or something struck that no coupling point explains.
    """
    from sgltrace.runtime import target as targets
    from sgltrace.whatif import experiment as experiments
    from sgltrace.whatif.lab import CannotRun, Options
    from sgltrace.whatif.ladder import PATTERNS
    from sgltrace.whatif.model import encode

    if not throw_away and any(word.rpartition(".")[2] in _SERVERS for word in command):
        raise UsageError("this command starts a server, which whatif would break for its users: give --throw-away")
    if path not in ("v1", "v2") or design not in ("A", "B", "C"):
        raise UsageError("--path is v1 or v2, --design A, B or C")
    patterns = [_pattern(p) for p in (also if also is not None else PATTERNS) if p != "none"]
    folder = (out or Path(".sgltrace-whatif", time.strftime("%Y%m%d-%H%M%S"))).absolute()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "rungs").is_dir():
        raise InputError(f"{folder} is not empty; give -o a new folder, or one of an experiment that is to go on")
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"sgltrace: {time.monotonic() - began:5.0f} s  {text}", file=sys.stderr, flush=True)

    target = targets.resolve(_without_variables(command), _environment(command))
    if target.package_root is None:
        raise InputError(f"{target.executable or command[0]} finds no sglang; whatif wants the command's own")
    folder.mkdir(parents=True, exist_ok=True)
    made = (
        _given(index, target.version) if index else _index(Path(target.package_root), workspace or folder / "workspace")
    )
    options = Options(
        command=list(command), path=path, design=design, pattern=_pattern(pattern), patterns=patterns, jobs=jobs,
        budget_s=_seconds(budget), rung_s=_seconds(rung), folder=folder / "rungs", ablate=ablation,
        passes=passes,
    )  # fmt: skip
    try:
        found = experiments.experiment(made, options, tell, _machine())
    except CannotRun as error:
        raise InputError(f"no experiment: {error}") from None
    (folder / "experiment.json").write_bytes(encode(found))
    if as_json:
        print_json(found)
    else:
        _print(found)
        print()
        say(f"kept in {folder / 'experiment.json'}; `sgltrace report --experiment` shows it")
    raise typer.Exit(EXIT_DONE if found.ends_clean and not found.unexplained else EXIT_FOUND)


def _environment(command: list[str]) -> dict[str, str]:
    import os

    variables = dict(word.split("=", 1) for word in command[: len(command) - len(_without_variables(command))])
    return dict(os.environ) | variables


def _without_variables(command: list[str]) -> list[str]:
    at = 0
    while at < len(command) and "=" in command[at] and command[at].partition("=")[0].isidentifier():
        at += 1
    return command[at:]


def _pattern(text: str) -> str:
    from sgltrace.runtime.probe.pattern import Pattern

    try:
        Pattern(text)
    except ValueError as error:
        raise UsageError(f"--pattern: {error}") from None
    return text


def _seconds(text: str) -> float:
    found = _SPAN.match(text)
    if not found:
        raise UsageError(f"{text} is no time; give one such as 90s or 20m")
    return float(found.group(1)) * _SECONDS[found.group(2)]


def _machine() -> str:
    from sgltrace.runtime import machine

    gpus, _ = machine.gpus()
    return ", ".join(dict.fromkeys(gpus))


def _given(file: Path, version: str | None) -> Index:
    """An index that was made before. Raises InputError where it is of another release."""
    from sgltrace.workspace import load_index

    made = load_index(file)
    if made.source.version != version:
        raise InputError(f"{file} is an index of {made.source.version}, and the command imports sglang {version}")
    return made


def _index(root: Path, folder: Path) -> Index:
    """The index of the command's own SGLang."""
    from sgltrace.commands.index import bring_up_to_date
    from sgltrace.progress import progress_for_user
    from sgltrace.workspace import Workspace

    workspace = Workspace.to_write(folder)
    with progress_for_user() as progress:
        bring_up_to_date(workspace, str(root), progress, editor=None)
    return workspace.load_index()


def _print(found: Experiment) -> None:
    """First what no point explains, then the ladder, the ablation, the patch."""
    for miss in found.unexplained:
        say(bold("no point explains: ") + miss.what)
    print()
    print(bold("ladder"))
    for number, rung in enumerate(found.rungs):
        strike = rung.strike
        if strike is None:
            say(f"  {number:>2}  on and off steps mix with {len(rung.bridges)} bridges")
            continue
        where = f" in {strike.function or strike.file}:{strike.line}" if strike.file else ""
        first = strike.message.splitlines()[0][:110] if strike.message else ""
        say(f"  {number:>2}  {strike.cls} {strike.when}{where}: {first}")
        say(f"      {strike.point or 'no point'} -> + {strike.bridge or 'nothing that could help'}")
    if found.tried:
        print()
        print(bold("ablation"))
        rows = [[t.bridge, t.outcome, t.detail.splitlines()[0][:90]] for t in found.tried]
        for line in columns(["without", "outcome", ""], rows):
            print(f"  {line}")
    if found.patterns:
        print()
        print(bold("patterns"))
        rows = [[p.pattern, f"{p.off} of {p.steps} steps off", p.outcome, p.detail[:80]] for p in found.patterns]
        for line in columns(["pattern", "", "outcome", ""], rows):
            print(f"  {line}")
    print()
    print(bold("points"))
    rows = [[v.point, v.bridge or "", v.outcome, v.said, v.standing] for v in found.verdicts if v.bridge]
    for line in columns(["point", "bridge", "outcome", "said", ""], rows):
        print(f"  {line}")
    print()
    print(bold("an off step needs"))
    for bridge in found.bridges:
        if bridge.used:
            say(f"  {bridge.says}")
    for row in found.not_built:
        say(f"  not built: {row.field}: {row.why}")
    speed = ", ".join(f"{name} {ms} ms" for name, ms in found.speed.items() if ms is not None)
    print()
    tokens = found.acceptance
    say(f"step: {speed}; accepted: {tokens.get('on')} without off steps, {tokens.get('after')} after")
