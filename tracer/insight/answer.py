"""The answer that people come for: whether an off step works, for each path and design, and what that hangs on."""

from __future__ import annotations

from collections import Counter

import msgspec

from sgltrace.insight.configured import OTHERS, UNKNOWN, Configured
from sgltrace.model import DESIGNS, PATHS, CouplingPoint, Index

NO, SLOWER, YES, NOT_KNOWN = "no", "slower", "yes", "not known"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one design works on one path, with the numbers behind it."""

    path: str
    design: str
    verdict: str
    """``no`` (something hard is in the way), ``slower``, ``yes``; ``not known`` where only what is undecided blocks."""
    hard: int
    soft: int
    unknown: int = 0
    """Hard points of which a configuration does not decide whether they apply."""
    others: int = 0
    """Hard points that concern other configurations alone."""
    conditions: dict[str, int] = {}
    """Of the hard points, how many hang on which condition."""


def answers(index: Index, configured: Configured | None = None) -> list[Answer]:
    """The answers for each path that the release has."""
    paths = [path for path in PATHS if index.entry_points.get(path)]
    if configured is not None and configured.configuration.path in PATHS:
        paths = [path for path in paths if path == configured.configuration.path]
    return [_answer(index, path, design, configured) for path in paths for design in DESIGNS]


def severity_of(point: CouplingPoint, path: str, design: str) -> str | None:
    """The severity of a point for a path and a design; None where it does not concern the path."""
    for verdict in point.verdicts:
        if verdict.path == path and verdict.design == design:
            return verdict.severity
    overall = point.severity.get(path)
    return overall if overall is None or design in point.designs else "none"


def _answer(index: Index, path: str, design: str, configured: Configured | None) -> Answer:
    count: Counter[str] = Counter()
    conditions: Counter[str] = Counter()
    for point in index.coupling_points:
        level = severity_of(point, path, design)
        if level not in ("hard", "soft"):
            continue
        state = configured.point(point).state if configured is not None else ""
        if state in (OTHERS, UNKNOWN):
            count[f"{level} {state}"] += 1
        else:
            count[level] += 1
        if level == "hard" and state != OTHERS and point.condition != "always":
            conditions[point.condition] += 1
    verdict = NO if count["hard"] else NOT_KNOWN if count[f"hard {UNKNOWN}"] else SLOWER if count["soft"] else YES
    return Answer(
        path=path,
        design=design,
        verdict=verdict,
        hard=count["hard"],
        soft=count["soft"],
        unknown=count[f"hard {UNKNOWN}"],
        others=count[f"hard {OTHERS}"],
        conditions=dict(sorted(conditions.items())),
    )


def sentence(found: Answer) -> str:
    """An answer in one sentence."""
    count = f"{found.hard} hard and {_points(found.soft, 'soft')}"
    begun = {
        NO: f"no: {count} are in the way",
        NOT_KNOWN: "not known: nothing hard is in the way for certain",
        SLOWER: f"yes, at a cost: {_points(found.soft, 'soft')}",
        YES: "yes: nothing is in the way",
    }[found.verdict]
    more = []
    if found.unknown:
        more.append(f"{found.unknown} more hard, if what is not known is so")
    if found.others:
        more.append(f"{_points(found.others, 'hard')} of other configurations left out")
    if found.conditions and not found.unknown and not found.others:
        more.append("of the hard ones " + ", ".join(f"{n} with {c}" for c, n in found.conditions.items()))
    return "; ".join([begun, *more])


def _points(count: int, level: str) -> str:
    return f"{count} {level} point{'' if count == 1 else 's'}"
