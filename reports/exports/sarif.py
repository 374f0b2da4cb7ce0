"""Coupling points as SARIF 2.1.0: a rule for each kind, a result for each point, both ends as locations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from sgltrace.model import DESIGNS, PATHS, CouplingPoint, Function, Index, Place
from sgltrace.reports.severities import severity, worst
from sgltrace.reports.text import spelled, visible
from sgltrace.reports.views.questions import QUESTIONS
from sgltrace.whatif.model import Experiment

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"hard": "error", "soft": "warning", "none": "note"}
ABOUT = "https://docs.sglang.ai/advanced_features/speculative_decoding.html"
"""What SGLang says of the feature that all rules are about."""
MEANING = (
    "Code relies on something that speculative decoding fixes: a decode step without it (an off step) needs something "
    "else there."
)
LEVELS_TEXT = (
    "Error: an off step crashes, corrupts, hangs, or spoils the next step with speculative decoding. Warning: it "
    "works, but slower or with a feature wrong. The properties give the severity by path (v1, v2) and design (A, B, C)."
)
_VERSION = re.compile(r"\d+(\.\d+)+")


def sarif(index: Index, experiments: Sequence[Experiment] = ()) -> bytes:
    """The coupling points of an index, with what experiments say of them.

    Files are relative to ``SRCROOT``: in a checkout, the repository's root.
    """
    places = _Places({function.id: function for function in index.functions}, index.source.below)
    kinds = sorted({point.kind for point in index.coupling_points})
    version = _VERSION.search(index.tool)
    run = {
        "tool": {
            "driver": {
                "name": "sgltrace",
                **({"version": version[0], "semanticVersion": version[0]} if version else {}),
                "informationUri": ABOUT,
                "rules": [_rule(kind) for kind in kinds],
            }
        },
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": visible(index.source.root)}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(point, places, kinds, experiments) for point in index.coupling_points],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return (json.dumps(log, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _rule(kind: str) -> dict[str, Any]:
    name = visible(spelled(kind))
    asked = next((text for text, kinds in QUESTIONS if kind in kinds), "")
    told = [*([asked] if asked else []), MEANING, LEVELS_TEXT]
    return {
        "id": visible(kind),
        "name": "".join(word[:1].upper() + word[1:] for word in name.replace("-", " ").split()),
        "shortDescription": {"text": f"Coupling point: {name}"},
        "fullDescription": {"text": MEANING},
        "help": {"text": " ".join(told), "markdown": "\n\n".join([f"**{told[0]}**", *told[1:]])},
        "helpUri": ABOUT,
        "defaultConfiguration": {"level": "warning"},
        "properties": {"tags": ["speculative-decoding", visible(kind)]},
    }


def _result(
    point: CouplingPoint, places: _Places, kinds: list[str], experiments: Sequence[Experiment]
) -> dict[str, Any]:
    relies = places.locations(point.consumers, "relies on it")
    fixes = places.locations(point.producers, "fixes it")
    found = relies + fixes
    text = ": ".join(filter(None, (point.title, point.why_it_blocks)))
    worst_of_all = worst(point)
    result: dict[str, Any] = {
        "ruleId": visible(point.kind),
        "ruleIndex": kinds.index(point.kind),
        "level": LEVELS.get(worst_of_all, "none"),
        "message": {"text": visible(text)},
        "locations": found[:1],
        "relatedLocations": [{"id": number, **location} for number, location in enumerate(found)],
        "partialFingerprints": {"couplingPoint/v1": visible(point.id)},
        "properties": {
            "severity": {path: point.severity.get(path) for path in PATHS},
            "designs": {path: {d: severity(point, path, d) for d in DESIGNS} for path in PATHS},
            "bindingTime": visible(point.binding_time),
            "condition": visible(point.condition),
            "formula": visible(point.formula),
            "refactor": visible(point.refactor),
        },
    }
    told = [entry for found in experiments if (entry := _told(found, point.id)) is not None]
    if told:
        result["properties"]["experiments"] = told
    if fixes and relies:
        result["codeFlows"] = [_flow([*fixes, *relies])]
    if worst_of_all == "none":
        result["kind"] = "informational"
        result["level"] = "none"
    return result


def _told(found: Experiment, point: str) -> dict[str, Any] | None:
    """What an experiment says of a point."""
    rows = [v for v in found.verdicts if v.point == point]
    if not rows:
        return None
    outcomes = [{"without": v.bridge, "outcome": v.outcome, "detail": visible(v.detail)} for v in rows]
    return {"path": found.path, "design": found.design, "standing": rows[0].standing, "outcomes": outcomes}


def _flow(locations: list[dict[str, Any]]) -> dict[str, Any]:
    """From where the value is fixed to where it is relied on."""
    return {"threadFlows": [{"locations": [{"location": location} for location in locations]}]}


class _Places:
    """Makes SARIF locations of places. ``below`` is where the paths begin from the repository's root."""

    def __init__(self, functions: dict[str, Function], below: str) -> None:
        self._functions = functions
        self._below = f"{below}/" if below else ""

    def locations(self, places: list[Place], what: str) -> list[dict[str, Any]]:
        """Those whose file is known."""
        return [location for place in places if (location := self._location(place, what)) is not None]

    def _location(self, place: Place, what: str) -> dict[str, Any] | None:
        function = self._functions.get(place.function)
        file = place.file or (function.file if function else "")
        if not file:
            return None
        uri = quote((self._below + file).encode("utf-8", "surrogatepass"))
        return {
            "physicalLocation": {
                "artifactLocation": {"uri": uri, "uriBaseId": "SRCROOT"},
                "region": {"startLine": max(1, place.line)},
            },
            "logicalLocations": [{"fullyQualifiedName": visible(place.function), "kind": "function"}],
            "message": {"text": visible(f"{what}: {place.what}" if place.what else what)},
        }
