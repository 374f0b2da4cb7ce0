"""What to change in a command to get another path, or the release's own off step: tried, not guessed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from sgltrace.explain.answer import Explanation
from sgltrace.explain.cast import find_parts
from sgltrace.explain.command import Command
from sgltrace.explain.explain import explain
from sgltrace.explain.session import Inputs
from sgltrace.explain.vocabulary import hints
from sgltrace.sources import SourceTree, decode_source

MAX_TRIED = 24


class Change(msgspec.Struct):
    """A change of the command that gives what is wanted."""

    text: str
    command: str
    result: str


class Advice(msgspec.Struct):
    """What gives the wanted path or step; empty where nothing that was tried does."""

    want: str
    already: bool
    changes: list[Change] = []
    tried: int = 0


def advise(tree: SourceTree, command: Command, inputs: Inputs, now: Explanation, want: str) -> Advice:
    """Try changes of one option or variable, then of two, until one gives what is wanted."""
    if _gives(now, want):
        return Advice(want, True)
    advice = Advice(want, False)
    single = list(_candidates(tree, command, now, want))
    tried: list[tuple[str, Command]] = []
    for text, changed in single:
        if advice.tried >= MAX_TRIED or advice.changes:
            break
        advice.tried += 1
        result = explain(tree, changed, inputs)
        if _gives(result, want):
            advice.changes.append(Change(text, changed.text(), _result(result)))
        elif now.error is None or result.error is None or result.error.message != now.error.message:
            tried.append((text, changed))
    for text, changed in tried[:3]:
        for second_text, second in _candidates(tree, changed, now, want):
            if advice.tried >= MAX_TRIED or advice.changes or second_text == text:
                break
            advice.tried += 1
            result = explain(tree, second, inputs)
            if _gives(result, want):
                advice.changes.append(Change(f"{text}, and {second_text}", second.text(), _result(result)))
    return advice


def _gives(explanation: Explanation, want: str) -> bool:
    if explanation.error is not None:
        return False
    return explanation.off_step.reachable is True if want == "off-step" else explanation.path == want


def _result(explanation: Explanation) -> str:
    return f"{explanation.worker or 'no worker'}, path {explanation.path}; off step: {explanation.off_step.why}"


def _candidates(tree: SourceTree, command: Command, now: Explanation, want: str) -> Iterator[tuple[str, Command]]:
    """Changes worth trying: options that the conditions on the way name, and variables that they read."""
    known = hints()
    algorithm = _flag(known.algorithm)
    if not _has(command, algorithm):
        yield f"add {algorithm} EAGLE3", _with(command, algorithm, "EAGLE3")
    if want == "off-step" and not _has(command, _flag(known.adaptive)):
        yield f"add {_flag(known.adaptive)}", _with(command, _flag(known.adaptive), None)
    topk = _flag(known.words["topk"])
    if _value(command, topk) not in (None, "1"):
        yield f"{topk} 1 instead of {_value(command, topk)}", _with(command, topk, "1")
    for name in _variables(tree, known.algorithm):
        if name not in command.environment:
            environment = {**command.environment, name: "True"}
            yield f"set {name}=True", Command(environment, command.program, command.arguments)
    for name in list(command.environment):
        rest = {key: value for key, value in command.environment.items() if key != name}
        yield f"unset {name}", Command(rest, command.program, command.arguments)
    for option in dict.fromkeys(word.partition("=")[0] for word in command.arguments if word.startswith("--")):
        field = option.lstrip("-").replace("-", "_")
        if option != algorithm and "model" not in field:
            yield f"without {option}", _without(command, option)


def _variables(tree: SourceTree, algorithm: str) -> list[str]:
    """Environment variables that functions which handle the algorithm's option read."""
    parts = find_parts(tree, hints())
    found: dict[str, None] = {}
    modules = [parts.module, *(name for name in tree.modules if ".arg_groups." in name)]
    for module in modules:
        parsed = ast.parse(decode_source(tree.read_module(module)))
        for node in ast.walk(parsed):
            if isinstance(node, ast.FunctionDef) and algorithm in ast.unparse(node) and len(node.body) < 200:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Attribute) and inner.attr.isupper() and "SPEC" in inner.attr:
                        found[inner.attr] = None
                    elif isinstance(inner, ast.Constant) and _is_variable(inner.value):
                        found[str(inner.value)] = None
    return list(found)


def _is_variable(value: object) -> bool:
    return isinstance(value, str) and value.isupper() and value.startswith("SG") and "SPEC" in value


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _has(command: Command, option: str) -> bool:
    return any(word == option or word.startswith(f"{option}=") for word in command.arguments)


def _value(command: Command, option: str) -> str | None:
    words = command.arguments
    for at, word in enumerate(words):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and at + 1 < len(words):
            return words[at + 1]
    return None


def _without(command: Command, option: str) -> Command:
    kept: list[str] = []
    skipping = False
    for word in command.arguments:
        if word == option or word.startswith(f"{option}="):
            skipping = True
            continue
        if skipping and not word.startswith("--"):
            continue
        skipping = False
        kept.append(word)
    return Command(command.environment, command.program, tuple(kept))


def _with(command: Command, option: str, value: str | None) -> Command:
    base = _without(command, option)
    added = (option,) if value is None else (option, value)
    return Command(base.environment, base.program, (*base.arguments, *added))
