"""Pages of the reference that are made from the program itself, so that they cannot fall behind it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from sgltrace.cli import _app
from sgltrace.commands.examples import EXAMPLES
from sgltrace.commands.schema import schema_of
from sgltrace.coupling.groups import GROUPS
from sgltrace.reports.exports import FORMATS
from sgltrace.reports.text import spelled
from sgltrace.reports.views.glossary import glossary
from sgltrace.reports.views.questions import QUESTIONS


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, as a hook of MkDocs."""
    for name, lines in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(lines()) + "\n"))
    return files


def commands() -> Iterator[str]:
    """Each command with its arguments and options, from Typer."""
    group = typer.main.get_command(_app())
    assert isinstance(group, click.Group) or hasattr(group, "commands")
    yield from ("# Commands", "")
    yield "`sgltrace --install-completion` installs completion for your shell. Exit codes: 0 done; 1 what was asked"
    yield "for was not found; 2 the command line is wrong; 3 the input cannot be used; 70 a bug; 130 interrupted."
    for name, command in group.commands.items():
        yield from (
            "",
            f"## {name}",
            "",
            _text(command.help or ""),
            "",
            "```sh",
            EXAMPLES.get(name, f"sgltrace {name}"),
            "```",
            "",
        )
        rows = [_parameter(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)]
        if rows:
            yield from ("| | | |", "| --- | --- | --- |", *rows)


def _parameter(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = f"`{parameter.metavar or parameter.name.upper()}`"
    default = parameter.default
    told = "" if default in (None, False, True, "", ()) or callable(default) else f"`{default}`"
    return f"| {names} | {_text(getattr(parameter, 'help', None) or '')} | {told} |"


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("{", "&#123;").replace("<", "&lt;")


def index_json() -> Iterator[str]:
    """The keys of ``index.json``, from its JSON Schema."""
    schema = schema_of("index")
    yield from ("# index.json", "", "`sgltrace schema index` prints the JSON Schema from which this page is made.", "")
    for name, part in {"Index": schema, **schema.get("$defs", {})}.items():
        part = schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        if "properties" not in part or (name != "Index" and part is schema):
            continue
        yield from (f"## {name}", "", _text(part.get("description", "")), "", "| key | type |", "| --- | --- |")
        yield from (f"| `{key}` | {_type(value)} |" for key, value in part["properties"].items())
        yield ""


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return " or ".join(_type(part) for part in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{part}`" for part in value["enum"])
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}" if "items" in value else "list"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"object of {_type(value['additionalProperties'])}"
    return str(value.get("type", "any"))


def points() -> Iterator[str]:
    """The kinds of coupling points: the question that each answers, and where they come from."""
    yield from (
        "# Kinds of coupling points",
        "",
        "A point's kind says what it is about. `sgltrace points --kind KIND`",
        "lists those of one.",
        "",
    )
    yield from ("| kind | called | question |", "| --- | --- | --- |")
    for question, kinds in QUESTIONS:
        yield from (f"| `{kind}` | {spelled(kind)} | {question} |" for kind in kinds)
    yield from ("", "## How they are found", "")
    yield from ("Each module of `sgltrace.coupling.groups` makes points of one kind of answer of the steps that are",)
    yield from ("[run](../explanation/off-step.md):", "", "| module | what it finds |", "| --- | --- |")
    for group in GROUPS:
        module = sys.modules[group.__module__]
        yield f"| `{module.__name__.rpartition('.')[2]}` | {_text(inspect.getdoc(module) or '')} |"


def words() -> Iterator[str]:
    """The glossary of the report."""
    yield from ("# Glossary", "")
    for _, term, text in glossary():
        yield from (term, f":   {text}", "")


def sarif() -> Iterator[str]:
    """What an export holds, and how SARIF says it."""
    yield from ("# Exports and SARIF", "", "| format | what it is |", "| --- | --- |")
    yield from (f"| `{name}` | {about} |" for name, (_, about, _) in FORMATS.items())
    yield from (
        "",
        "In SARIF each kind of coupling point is a rule with help text, and each point a result:",
        "",
        "| of a point | in SARIF |",
        "| --- | --- |",
        "| worst severity | `level`: hard `error`, soft `warning`, none `none` with `kind` `informational` |",
        "| where it is relied on, where it is fixed | `locations` (the first), `relatedLocations` (all) |",
        "| from where it is fixed to where it is relied on | `codeFlows` |",
        "| id | `partialFingerprints`: the same from release to release, so that a point is tracked |",
        "| severity by path and design, condition, formula | `properties` |",
        "",
        "Paths are relative to the repository's root, so `python/sglang/...` where the source is a checkout.",
    )


PAGES = {"commands": commands, "index-json": index_json, "points": points, "glossary": words, "sarif": sarif}
