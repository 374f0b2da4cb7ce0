"""``sgltrace explain``: which worker, path and modes a launch command gets, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sgltrace.commands.output import bold, print_json, print_table, say
from sgltrace.errors import EXIT_DONE, EXIT_FOUND, UsageError

if TYPE_CHECKING:
    from sgltrace.explain.answer import Explanation
    from sgltrace.explain.wants import Advice

DEFAULT_SOURCE = "sglang"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(explain)


def explain(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SRC] -- COMMAND...",
            help="The source, as `sgltrace index` takes it, and the launch command, with NAME=VALUE before it.",
        ),
    ],
    assume: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What a function, field or fact is that the command does not decide."),
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option("--model-config", help="The model's config.json, or the folder that holds it.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="The GPU by name, such as h200.")] = None,
    want: Annotated[
        Literal["v2", "v1", "off-step"] | None, typer.Option(help="Say what to change to get this.")
    ] = None,
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Ask the command's own SGLang too: its argument handling, nothing started."),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Print what happens under unknown conditions, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Explain which worker, path and values a launch command gets, by running the source's own argument handling."""
    from sgltrace.explain.command import parse_command
    from sgltrace.explain.execute import execute_command
    from sgltrace.explain.explain import explain as explain_command
    from sgltrace.explain.explain import make_inputs
    from sgltrace.explain.wants import advise
    from sgltrace.files import user_cache_dir
    from sgltrace.progress import progress_for_user
    from sgltrace.sources import open_source

    source, launch = _taken_apart(words)
    command = parse_command(launch)
    inputs = make_inputs(assume or [], model_config, gpu)
    with progress_for_user(quiet=as_json) as progress:
        tree = open_source(source, cache_dir=user_cache_dir(), progress=progress)
        progress.stage("Evaluating the argument handling")
        explanation = explain_command(tree, command, inputs)
        advice = None
        if want is not None:
            progress.stage(f"Looking for what gives {want}")
            advice = advise(tree, command, inputs, explanation, want)
    executed = execute_command(command) if execute else None
    if as_json:
        import msgspec

        answer = msgspec.to_builtins(explanation)
        if advice is not None:
            answer["advice"] = msgspec.to_builtins(advice)
        if executed is not None:
            answer["executed"] = executed
        print_json(answer)
    else:
        _print(explanation, everything)
        if advice is not None:
            _print_advice(advice)
        if executed is not None:
            _print_executed(executed, explanation)
    return EXIT_FOUND if explanation.error is not None else EXIT_DONE


def _taken_apart(words: list[str]) -> tuple[str, list[str]]:
    if "--" in words:
        at = words.index("--")
        before, launch = words[:at], words[at + 1 :]
        if len(before) > 1:
            raise UsageError(f"one source before the --, not {len(before)}: {' '.join(before)}")
        return (before[0] if before else DEFAULT_SOURCE), launch
    return DEFAULT_SOURCE, words


def _print(explanation: Explanation, everything: bool) -> None:
    print_table(_summary(explanation))
    shown = [step for step in explanation.chain if everything or step.certain]
    if shown:
        _heading("what happens, in order")
    for step in shown:
        doubt = "" if step.certain else " (if what is not known says so)"
        say(f"  {step.file}:{step.line}  {step.effect}{doubt}")
        if step.condition:
            say(f"      because {step.condition}")
    hidden = len(explanation.chain) - len(shown)
    if hidden:
        say(f"  {hidden} more may happen, as facts outside the command decide; --all prints them")
    if explanation.open:
        _heading("not decided by the command")
        for name, value in sorted(explanation.open.items()):
            options = ", ".join(map(repr, value.one_of)) or "anything"
            say(f"  {name}: {options}")
    if explanation.unknown:
        _heading("asked for: --model-config, --gpu, or --assume")
        for fact in explanation.unknown:
            say(f"  {fact}")
    if everything:
        for failure in explanation.possible_errors:
            say(f"  may be refused: {failure.exception}: {failure.message} ({failure.function}:{failure.line})")
    elif explanation.possible_errors:
        say(f"  {len(explanation.possible_errors)} refusals hang on these facts; --all prints them")


def _heading(text: str) -> None:
    print()
    print(bold(text))


def _summary(explanation: Explanation) -> list[tuple[str, str]]:
    rows = [("source", explanation.source), ("command", explanation.command)]
    if explanation.error is not None:
        error = explanation.error
        rows.append(("refused", f"{error.exception}: {error.message}"))
        rows.append(("", f"{error.function}, line {error.line}"))
    rows.append(("worker", explanation.worker or ("none" if explanation.path == "none" else "not known")))
    rows.append(("path", explanation.path or "not known"))
    rows.append(("overlap", {True: "on", False: "off", None: "not known"}[explanation.overlap]))
    off = explanation.off_step
    rows.append(
        ("off step", f"{ {True: 'reachable', False: 'not reachable', None: 'not known'}[off.reachable] }: {off.why}")
    )
    for name, value in explanation.rewritten.items():
        rows.append(("set to" if name else "", f"{name} = {value!r}"))
    for problem in explanation.problems[:3]:
        rows.append(("not read", problem))
    return rows


def _print_advice(advice: Advice) -> None:
    _heading(f"to get {advice.want}")
    if advice.already:
        say("  the command gets it as it is")
    for change in advice.changes:
        say(f"  {change.text}: {change.result}")
    if not advice.already and not advice.changes:
        say(f"  none of {advice.tried} changes of one or two options gives it")


def _print_executed(executed: dict[str, object], explanation: Explanation) -> None:
    _heading("the command's own SGLang")
    for name, value in executed.items():
        if name != "values":
            say(f"  {name}: {value}")
    values = executed.get("values")
    if isinstance(values, dict):
        differing = [n for n, v in explanation.values.items() if n in values and values[n] != v]
        say(f"  {len(values)} values, of which {len(differing)} differ from the evaluation")
        for name in differing[:20]:
            say(f"    {name}: {explanation.values[name]!r} evaluated, {values[name]!r} executed")
