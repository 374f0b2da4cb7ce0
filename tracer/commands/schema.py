"""``sgltrace schema``: what the files that other programs read look like, as JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sgltrace.commands.output import print_json

if TYPE_CHECKING:
    import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(schema)


def schema(
    name: Annotated[
        Literal["index", "run", "plan", "compare", "impact", "edits", "explanation"],
        typer.Argument(
            metavar="NAME",
            help="index: index.json; run and plan: run.json and plan.json of a trace; compare and impact: what "
            "they print with --json; edits: `sgltrace plan --json`; explanation: `sgltrace explain --json`.",
        ),
    ],
) -> None:
    """Print the JSON Schema of a file or an answer. Within a version keys are only added."""
    print_json(schema_of(name))


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a kind of file."""
    import msgspec

    model, version = _models()[name]
    made = msgspec.json.schema(model, schema_hook=_anything)
    return {"$schema": DIALECT, "title": version, **made}


def versions() -> str:
    """The versions of the formats, in one line."""
    from sgltrace.runtime.probe import wire

    read = " and ".join(map(str, wire.READABLE))
    formats = ", ".join(dict.fromkeys(version for _, version in _models().values()))
    return f"{formats}, records of version {wire.VERSION} (reads {read})"


def _models() -> dict[str, tuple[type[msgspec.Struct], str]]:
    from sgltrace.explain.answer import EXPLANATION_SCHEMA, Explanation
    from sgltrace.insight.changes.model import CHANGES_SCHEMA, Changes
    from sgltrace.insight.impact.model import IMPACT_SCHEMA, Impact
    from sgltrace.insight.plan import EDITS_SCHEMA
    from sgltrace.insight.plan import Plan as Edits
    from sgltrace.model import SCHEMA, Index
    from sgltrace.runtime.plan import Plan
    from sgltrace.runtime.staging import TRACE_SCHEMA, RunInfo

    return {
        "index": (Index, SCHEMA),
        "run": (RunInfo, TRACE_SCHEMA),
        "plan": (Plan, TRACE_SCHEMA),
        "compare": (Changes, CHANGES_SCHEMA),
        "impact": (Impact, IMPACT_SCHEMA),
        "edits": (Edits, EDITS_SCHEMA),
        "explanation": (Explanation, EXPLANATION_SCHEMA),
    }


def _anything(kind: type) -> dict[str, Any]:
    if kind is object:
        return {"description": "any value"}
    raise NotImplementedError(kind)
