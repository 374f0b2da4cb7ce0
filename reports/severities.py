"""How bad a coupling point is, over all paths and designs and for one of each."""

from __future__ import annotations

from sgltrace.model import CouplingPoint

DESIGN_TEXT = {
    "A": "the scheduler sends the batch to the target worker",
    "B": "the speculative worker runs a plain decode itself",
    "C": "the speculative worker runs a degenerate verify: no draft steps, one token per request",
}
ORDER = {"hard": 0, "soft": 1, "none": 2}
"""The worst first."""


def worst(point: CouplingPoint) -> str:
    """The worst severity on any path; ``none`` where no path is concerned."""
    return min((value for value in point.severity.values() if value), key=lambda v: ORDER.get(v, 3), default="none")


def severity(point: CouplingPoint, path: str, design: str) -> str | None:
    """The severity for one path and design; None where the point does not concern the path."""
    for verdict in point.verdicts:
        if verdict.path == path and verdict.design == design:
            return verdict.severity
    overall = point.severity.get(path)
    if overall is None:
        return None
    return overall if design in point.designs else "none"
