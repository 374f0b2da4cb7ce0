"""What an index holds, in a handful of numbers: what is printed after indexing, and kept for an unchanged re-run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from sgltrace.insight.answer import Answer, answers, sentence
from sgltrace.model import Index


def summarise(index: Index, took: str) -> dict[str, Any]:
    """The summary as plain data. ``took`` says where the source was found; see ``lines`` for the text."""
    return {
        "source": {
            "name": index.source.name,
            "version": index.source.version,
            "kind": index.source.kind,
            "root": index.source.root,
            "requested": index.source.requested,
            "took": took,
        },
        "entry_points": dict(sorted(index.entry_points.items())),
        "unknown_paths": index.unknown_paths,
        "workers": [
            {"class": worker.cls, "path": worker.path, "algorithms": worker.algorithms, "overlap": worker.overlap}
            for worker in index.workers
        ],
        "event_loops": index.event_loops,
        "functions": len(index.functions),
        "functions_by_path": {
            path: sum(path in function.paths for function in index.functions) for path in sorted(index.entry_points)
        },
        "calls": len(index.calls),
        "calls_by_kind": dict(sorted(Counter(edge.kind for edge in index.calls).items())),
        "unresolved": len(index.unresolved),
        "skipped": [{"file": skipped.file, "why": skipped.why} for skipped in index.skipped],
        "fields": len(index.fields),
        "coupling_points": len(index.coupling_points),
        "answers": [msgspec.to_builtins(answer) for answer in answers(index)],
        "notes": index.notes,
    }


def lines(summary: dict[str, Any], configuration: str | None = None) -> list[tuple[str, str]]:
    """The summary as labels and texts, in the order in which a reader asks. The answers of a configuration replace
    those of the release."""
    source = summary["source"]
    version = source["version"] or "of unknown version"
    told = [("source", f"{source['name']} {version} ({source['kind']}): {source['took']}")]
    for path, entry in summary["entry_points"].items():
        told.append((f"path {path}", entry or _without_entry(summary["unknown_paths"].get(path))))
    for worker in summary["workers"]:
        if worker["path"] is None:
            told.append(("other worker", f"{worker['class']} ({_created(worker)})"))
    if configuration is not None:
        told.append(("configuration", configuration))
    else:
        told += answer_lines([msgspec.convert(answer, Answer) for answer in summary.get("answers", [])])
    on_paths = ", ".join(f"{count} on {path}" for path, count in summary["functions_by_path"].items() if count)
    told.append(("functions", f"{summary['functions']}" + (f" ({on_paths})" if on_paths else "")))
    kinds = sorted(summary["calls_by_kind"].items(), key=lambda item: (-item[1], item[0]))
    told.append(("call edges", f"{summary['calls']}" + (f" ({_counted(kinds)})" if kinds else "")))
    told.append(("unresolved", f"{summary['unresolved']} calls"))
    for label, key in (("fields", "fields"), ("coupling points", "coupling_points")):
        if summary[key]:
            told.append((label, str(summary[key])))
    told += [("skipped", f"{skipped['file']}: {skipped['why']}") for skipped in summary["skipped"]]
    told += [("note", note) for note in summary["notes"]]
    return told


def answer_lines(found: list[Answer]) -> list[tuple[str, str]]:
    """Whether each design works, a line each."""
    return [(f"{answer.path}, design {answer.design}", sentence(answer)) for answer in found]


def _without_entry(unknown: str | None) -> str:
    return "absent: this release creates no such worker" if unknown is None else f"unknown: {unknown}"


def _created(worker: dict[str, Any]) -> str:
    """When the engine creates a worker: ``NGRAM, without overlap``."""
    overlap = {True: ["with overlap"], False: ["without overlap"], None: []}[worker["overlap"]]
    return ", ".join([*worker["algorithms"], *overlap]) or "algorithm unknown"


def _counted(kinds: list[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in kinds)
