"""An experiment from start to end, and what it says of each coupling point."""

from __future__ import annotations

import time
from collections.abc import Callable

from sgltrace import __version__
from sgltrace.model import CouplingPoint, Index
from sgltrace.whatif import model as m
from sgltrace.whatif.lab import TICK_S, Lab, Options
from sgltrace.whatif.ladder import Ablation, Ladder

WORST = ("hard", "soft", "none")


def experiment(index: Index, options: Options, say: Callable[[str], None], machine: str = "") -> m.Experiment:
    """Force the off step of a path. Raises CannotRun where the server is not of the kind."""
    lab = Lab(index, options, say)
    lab.watch()
    ladder, ablation = Ladder(lab), Ablation(lab)
    rest = ablation.cases()
    try:
        while True:
            ladder.climb()
            ahead = ladder.next()
            # one rung after the other where there is little room; what may come next, too, where there is more
            lab.fill([*ahead[: options.jobs // 2 or 1], *rest, *ahead], ahead[0] if ahead else None)
            if not lab.running:
                break
            while not lab.reap():
                time.sleep(TICK_S)
    finally:
        lab.close()
    if not ladder.over or not all(lab.known(case) for case in rest):
        say("the time is over; run it again with the same -o to go on")
    found = m.Experiment(
        tool=__version__, release=index.source.version, path=options.path, design=options.design,
        command=options.command, machine=machine, pattern=options.pattern, noise=lab.noise,
    )  # fmt: skip
    found.rungs, found.unexplained = ladder.rungs, ladder.misses
    found.tried, found.patterns = ablation.tried(ladder), ablation.patterns()
    full = ablation.case()
    with_all = lab.outcomes.get(full)
    found.ends_clean = lab.known(full) and lab.strike(full) is None
    needed = {t.bridge for t in found.tried if t.outcome != m.NO_EFFECT}
    found.bridges = [
        m.BridgeLine(id=x.id, kind=x.kind, says=x.says, points=x.points, used=x.id in needed, listed=x.listed)
        for x in lab.program.bridges
    ]
    found.not_built = lab.program.not_built
    watched, plain = lab.watched, lab.plain
    found.speed = {
        "on": _rounded(watched.period_ms.get("on") if watched else None),
        "off": _rounded(with_all.period_ms.get("off") if with_all else None),
        "plain": _rounded(plain.period_ms.get("plain") if plain else None),
    }
    found.acceptance = {
        "on": _rounded(watched.accept.get("on") if watched else None),
        "after": _rounded(with_all.accept.get("after") if with_all else None),
    }
    _misses(found)
    found.verdicts = verdicts(index, found)
    unsure = lab.learned.get("unsure") or {}
    found.notes = [
        f"more than one field could be the {fact}: {', '.join(v)}" for fact, v in sorted(unsure.items()) if v
    ]
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _misses(found: m.Experiment) -> None:
    """What an off step needed and no point names: these are the analysis's own."""
    known = {b.id: b for b in found.bridges}
    for tried in found.tried:
        bridge = known[tried.bridge]
        if m.SEVERITY.get(tried.outcome) == "hard" and not bridge.points:
            what = f"{bridge.says}: without it the off step {said(tried.outcome)}, and no point names it"
            found.unexplained.append(m.Miss(what=what, bridge=bridge.id, strike=tried.strike))


def said(outcome: str) -> str:
    """An outcome as the verb of a sentence."""
    return "is silently wrong" if outcome == m.WRONG else outcome


def verdicts(index: Index, found: m.Experiment) -> list[m.PointVerdict]:
    """Of every point of the path and design: what the runs without its bridges say."""
    tried = {t.bridge: t for t in found.tried}
    missing = {p: n for n in found.not_built for p in n.points}
    out: list[m.PointVerdict] = []
    answers = {b.id: _claims(index, found, b.points) for b in found.bridges}
    for point in index.coupling_points:
        claimed = next((v.severity for v in point.verdicts if (v.path, v.design) == (found.path, found.design)), None)
        if claimed is None:
            continue
        rows = [
            m.PointVerdict(point=point.id, bridge=t.bridge, outcome=t.outcome, detail=t.detail, said=claimed)
            for b in found.bridges
            if point.id in b.points and (t := tried.get(b.id)) is not None
        ]
        if not rows:
            why = missing[point.id].why if point.id in missing else _not_exercised(point)
            rows = [m.PointVerdict(point=point.id, bridge=None, outcome=m.NOT_EXERCISED, detail=why, said=claimed)]
        standing = _standing(
            claimed, [r for r in rows if not _accounted(claimed, r, answers.get(r.bridge or "", set()))]
        )
        for row in rows:
            row.standing = standing
        out += rows
    return out


def _claims(index: Index, found: m.Experiment, points: list[str]) -> set[str]:
    return {
        v.severity
        for point in index.coupling_points
        if point.id in points
        for v in point.verdicts
        if (v.path, v.design) == (found.path, found.design)
    }


def _accounted(claimed: str, row: m.PointVerdict, claims: set[str]) -> bool:
    """Whether a worse outcome is what another point of the same bridge says: it does not speak against this one."""
    seen = "hard" if row.outcome == m.SHADOWED else m.SEVERITY.get(row.outcome)
    return seen is not None and WORST.index(seen) < WORST.index(claimed) and seen in claims


def _not_exercised(point: CouplingPoint) -> str:
    if point.condition not in ("", "always"):
        return f"asks for: {point.condition}"
    return "no bridge stands for it: nothing that an off step is given goes through its fields"


def _standing(claimed: str, rows: list[m.PointVerdict]) -> str:
    seen = [m.SEVERITY[row.outcome] for row in rows if row.outcome in m.SEVERITY]
    if any(row.outcome == m.SHADOWED for row in rows):
        seen.append("hard")
    if not seen:
        return ""
    worst = min(seen, key=WORST.index)
    if worst == claimed:
        return m.CONFIRMED
    if any(row.outcome == m.NOT_EXERCISED for row in rows):
        return ""  # what was not tried may be what it is hard for
    if worst == "none":
        return m.NO_BLOCKER
    return m.WORSE if WORST.index(worst) < WORST.index(claimed) else m.MILDER
