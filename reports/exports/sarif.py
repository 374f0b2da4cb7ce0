"""Coupling points as SARIF 2.1.0: a rule for each kind, a result for each point, both ends as locations."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from sgltrace.model import DESIGNS, PATHS, CouplingPoint, Function, Index, Place
from sgltrace.reports.severities import severity, worst
from sgltrace.reports.text import visible

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {"hard": "error", "soft": "warning", "none": "note"}


def sarif(index: Index) -> bytes:
    """The coupling points of an index. Files are relative to the base ``SRCROOT``, the source root."""
    functions = {function.id: function for function in index.functions}
    kinds = sorted({point.kind for point in index.coupling_points})
    run = {
        "tool": {
            "driver": {
                "name": "sgltrace",
                **({"version": index.tool} if index.tool else {}),
                "rules": [_rule(kind) for kind in kinds],
            }
        },
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": visible(index.source.root)}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(point, functions, kinds) for point in index.coupling_points],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return (json.dumps(log, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _rule(kind: str) -> dict[str, Any]:
    return {
        "id": visible(kind),
        "shortDescription": {"text": visible(f"Coupling point: {kind}")},
        "fullDescription": {
            "text": "Something that speculation fixes crosses into what a plain decode step would need otherwise."
        },
    }


def _result(point: CouplingPoint, functions: dict[str, Function], kinds: list[str]) -> dict[str, Any]:
    places = [(place, "relies on it") for place in point.consumers] + [(p, "fixes it") for p in point.producers]
    locations = [_location(place, what, functions) for place, what in places]
    found = [location for location in locations if location is not None]
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
    if worst_of_all == "none":
        result["kind"] = "informational"
        result["level"] = "none"
    return result


def _location(place: Place, what: str, functions: dict[str, Function]) -> dict[str, Any] | None:
    """The place as a SARIF location; None where its file is not known."""
    function = functions.get(place.function)
    file = place.file or (function.file if function else "")
    if not file:
        return None
    logical = {"fullyQualifiedName": visible(place.function), "kind": "function"}
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(file.encode("utf-8", "surrogatepass")), "uriBaseId": "SRCROOT"},
            "region": {"startLine": max(1, place.line)},
        },
        "logicalLocations": [logical],
        "message": {"text": visible(f"{what}: {place.what}" if place.what else what)},
    }
