"""From what a user says of a server (words, a launch command, a saved file) to its configuration."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sgltrace.configuration import Configuration, parse_words
from sgltrace.configuration.model import Open, Value
from sgltrace.errors import InputError, UsageError
from sgltrace.explain.command import Command, parse_command
from sgltrace.explain.explain import explain
from sgltrace.explain.session import Inputs
from sgltrace.explain.vocabulary import Hints, hints
from sgltrace.model import Conditions, Index
from sgltrace.sources import SourceTree

MODEL = {"model_path": "model"}
"""What stands for the model where words say nothing of it."""


def configuration_of(text: str, index: Index, tree: SourceTree | None, inputs: Inputs) -> Configuration:
    """The configuration that ``text`` names: a launch command, a file of ``explain --json``, or words with commas.

    The source's own argument handling decides what the arguments become; without a source the words alone count.
    Raises UsageError for words that this release does not have, InputError for a file that is none.
    """
    conditions = index.conditions
    saved = Path(text)
    if text.endswith(".json") or (saved.is_file() and " " not in text):
        return _finished(_read(saved), index, inputs, text)
    if " " in text.strip() and ("--" in text or "launch" in text):
        return _finished(_handled(parse_command([text]), tree, inputs), index, inputs, text)
    known = hints()
    algorithms = frozenset(conditions.algorithms)
    values = parse_words(text, known.words, known.algorithm, algorithms, frozenset(conditions.arguments))
    return _finished(_of_words({**_model(conditions), **values}, tree, inputs, known), index, inputs, text)


def _read(file: Path) -> Configuration:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Configuration)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"--config {file}: {why}; name a file of `sgltrace explain --json`") from error
    except msgspec.MsgspecError as error:
        raise InputError(f"--config {file}: {error}; name a file of `sgltrace explain --json`") from error


def _handled(command: Command, tree: SourceTree | None, inputs: Inputs) -> Configuration:
    if tree is None:
        raise InputError("--config: the source is gone, and nobody can say what this command's arguments become")
    explanation = explain(tree, command, inputs)
    if explanation.error is not None:
        error = explanation.error
        raise UsageError(
            f"--config: this release refuses the command ({error.exception}: {error.message or 'no message'}, "
            f"{error.function}:{error.line}); `sgltrace explain` says why"
        )
    return explanation.configuration()


def _of_words(given: dict[str, Value], tree: SourceTree | None, inputs: Inputs, known: Hints) -> Configuration:
    """Widths that the words leave out are completed, since no server starts without; what they are stays open."""
    if tree is None:
        return Configuration(values=given)
    steps, tokens = known.words["steps"], known.words["draft-tokens"]
    completed = {**{steps: 3, tokens: 4}, **given}
    attempts: list[tuple[dict[str, Value], set[str]]] = [(given, set())]
    if known.algorithm in given:
        attempts.append((completed, set(completed) - set(given)))
    refused = ""
    for values, added in attempts:
        explanation = explain(tree, Command({}, (), tuple(_arguments(values))), inputs)
        if explanation.error is None:
            found = explanation.configuration()
            for name in added:
                found.values.pop(name, None)
                found.open[name] = Open([], [f"--config does not say {name}"])
            return found
        refused = f"{explanation.error.exception}: {explanation.error.message}"
    raise UsageError(
        f"--config: this release refuses such a server ({refused}); say what it lacks, or give the command"
    )


def _model(conditions: Conditions) -> dict[str, Value]:
    return {name: value for name, value in MODEL.items() if name in conditions.arguments}


def _arguments(values: dict[str, Value]) -> list[str]:
    words: list[str] = []
    for name, value in values.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not False and value is not None:
            words += [option, str(value)]
    return words


def _finished(found: Configuration, index: Index, inputs: Inputs, name: str) -> Configuration:
    """With what the source says of names and of the algorithm, and what was assumed or stands in the model's file."""
    known, conditions = hints(), index.conditions
    found.meanings = conditions.meanings
    member = str(found.values.get(known.algorithm) or "NONE").upper()
    if known.algorithm in found.values:
        answers = conditions.algorithms.get(member, {})
        found.predicates = {**answers, **{f"self.{key.rpartition('.')[2]}": value for key, value in answers.items()}}
    for more in (inputs.model, inputs.assumed):
        for key, value in more.items():
            if key.isidentifier() and key not in found.values:
                found.values[key] = value
    found.name = name
    if found.worker is None and found.path is None:
        _choose_worker(found, index, member)
    return found


def _choose_worker(found: Configuration, index: Index, member: str) -> None:
    """The worker that the index knows for the algorithm, where the evaluation did not come to one."""
    if found.overlap is None:
        found.overlap = found.holds(f"not {hints().words['overlap'].removeprefix('!')}")
    fitting = [w for w in index.workers if member in (w.algorithms or [member]) and w.overlap in (None, found.overlap)]
    paths = {worker.path for worker in fitting}
    if len(paths) == 1 and found.overlap is not None:
        found.path = fitting[0].path or "other"
        found.worker = fitting[0].cls.rpartition(":")[2] if len(fitting) == 1 else None
