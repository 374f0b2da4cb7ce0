"""A summary for an issue or a pull request: the answer, the blockers, and what is unknown."""

from __future__ import annotations

import re

from sgltrace.insight.observed import Run
from sgltrace.model import DESIGNS, PATHS, CouplingPoint, Index, Place
from sgltrace.reports.severities import DESIGN_TEXT, ORDER, severity
from sgltrace.reports.text import evidence_of_many, visible

VERDICTS = ("confirmed", "refuted", "seen, not judged", "not exercised")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|!~])")


def markdown(index: Index, runs: list[Run]) -> bytes:
    """The summary. Names out of the source are escaped."""
    source = index.source
    lines = [
        f"# Coupling of speculative decoding in {escaped(f'{source.name} {source.version or source.requested}')}",
        "",
    ]
    lines += _answers(index)
    points = sorted(index.coupling_points, key=lambda point: (point.rank or 10**6, point.id))
    for path in PATHS:
        if index.entry_points.get(path):
            lines += _checklist(path, points)
    lines += _seen(runs)
    unresolved = len(index.unresolved)
    lines += [
        "## Unknown",
        "",
        f"- {unresolved} calls whose target is not known",
        f"- {len(index.skipped)} files not read",
    ]
    lines += [f"- {escaped(note)}" for note in index.notes]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _answers(index: Index) -> list[str]:
    lines = ["## Can speculation be switched off per batch?", ""]
    lines += ["| Path | Design | Answer | Hard | Soft |", "| --- | --- | --- | ---: | ---: |"]
    for path in PATHS:
        if not index.entry_points.get(path):
            unknown = index.unknown_paths.get(path)
            told = f"this release has no {path} worker" if unknown is None else f"unknown: {escaped(unknown)}"
            lines.append(f"| {path} | | {told} | | |")
            continue
        for design in DESIGNS:
            found = [severity(point, path, design) for point in index.coupling_points]
            hard, soft = found.count("hard"), found.count("soft")
            answer = "no" if hard else "yes, at a cost" if soft else "yes"
            lines.append(f"| {path} | {design}: {DESIGN_TEXT[design]} | {answer} | {hard} | {soft} |")
    return [*lines, ""]


def _checklist(path: str, points: list[CouplingPoint]) -> list[str]:
    lines = [f"## Blockers on {path}", ""]
    for level in ("hard", "soft"):
        for point in points:
            if point.severity.get(path) != level:
                continue
            designs = ", ".join(d for d in DESIGNS if severity(point, path, d) == level) or "none of its own"
            lines.append(f"- [ ] **{escaped(point.title)}** ({level}; designs {designs}; {escaped(point.kind)})")
            for text in filter(None, (point.why_it_blocks, point.refactor)):
                lines.append(f"  - {escaped(text)}")
            lines += [f"  - fixed in {_place(place)}" for place in point.producers]
            lines += [f"  - relied on in {_place(place)}" for place in point.consumers]
    return [*lines, ""]


def _seen(runs: list[Run]) -> list[str]:
    lines = ["## Seen in runs", ""]
    for run in runs:
        verdicts = sorted((e.verdict for e in run.points), key=lambda v: ORDER.get(v, 3))
        told = ", ".join(f"{verdicts.count(v)} {evidence_of_many(v)}" for v in VERDICTS if verdicts.count(v))
        lines.append(f"- {escaped(run.name)}: {len({s.number for s in run.steps})} steps; coupling points {told}")
    return [*(lines if runs else [*lines, "- no run is joined to this index"]), ""]


def _place(place: Place) -> str:
    what = f" ({escaped(place.what)})" if place.what else ""
    return f"{escaped(place.function)}:{place.line}{what}"


def escaped(text: str) -> str:
    """Text that Markdown reads as nothing but text, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(visible(text).split()))
