"""A comparison in words: the same for the terminal, the page and a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sgltrace.insight.changes.model import Change, Changes, Step

TOP = 20
"""So many changes are told unless all are asked for: a reader has minutes."""

SECTIONS = (
    ("Coupling points", ("point",)),
    ("Defaults", ("default",)),
    ("Workers, gates, paths", ("gate",)),
    ("The contract of an off step", ("contract",)),
    ("Calls of the decode step", ("call",)),
    ("Tensors", ("tensor",)),
)

_KINDS = ("gone", "easier", "new", "harder", "changed", "moved")


@dataclass(frozen=True)
class Section:
    """The changes of one sort, in their order."""

    title: str
    changes: list[Change]

    @property
    def slug(self) -> str:
        """An anchor."""
        return "-".join(self.title.lower().replace(",", "").split())


def headline(found: Changes) -> list[str]:
    """What matters in a few sentences."""
    points = [c for c in found.changes if c.of == "point"]
    counted: Counter[str] = Counter(c.change for c in points)
    lines = []
    told = [f"{counted[kind]} {kind}" for kind in _KINDS if counted[kind]]
    lines.append(f"Coupling points: {', '.join(told)}." if told else "No coupling point differs.")
    for path in sorted({*found.before.entry_points, *found.after.entry_points}):
        was, now = found.before.entry_points.get(path), found.after.entry_points.get(path)
        if was and not now:
            lines.append(f"{path} is gone with its worker: its points are no progress.")
        elif now and not was:
            lines.append(f"{path} is new.")
    lines += [f"For design {design}: {text}." for design, text in _by_design(points)]
    return lines


def _by_design(points: Sequence[Change]) -> list[tuple[str, str]]:
    out = []
    for design in ("A", "B", "C"):
        hard = [c for c in points if c.progress and any(_hard(s, design) for s in c.severities)]
        better = sum(c.designs.get(design) == "easier" for c in hard)
        worse = sum(c.designs.get(design) == "harder" for c in hard)
        if better or worse:
            told = [f"{better} hard before and not after" if better else "", f"{worse} newly hard" if worse else ""]
            out.append((design, " and ".join(filter(None, told))))
    return out


def _hard(step: Step, design: str) -> bool:
    return step.design == design and (step.before == "hard") != (step.after == "hard")


def sections(changes: Sequence[Change]) -> list[Section]:
    """The changes by sort; sorts without any are left out."""
    found = [Section(title, [c for c in changes if c.of in kinds]) for title, kinds in SECTIONS]
    return [section for section in found if section.changes]


def top(changes: Sequence[Change], most: int = TOP) -> list[Change]:
    """The changes that matter most. What only moved is none of them."""
    return [c for c in changes if c.change != "moved"][:most]


def change_line(change: Change) -> str:
    """One change in a line: ``gone  point  accept_lens must be set ... (v2: A hard, B hard -> nothing)``."""
    sides = ""
    if change.of in ("point", "default", "tensor") and (change.before or change.after):
        sides = f"  [{change.before or 'nothing'} -> {change.after or 'nothing'}]"
    where = f" ({change.where})" if change.where else ""
    return f"{change.change:8}{change.of:9}{change.title}{where}{sides}"


def shortened(text: str, most: int = 320) -> str:
    """The first sentences of a text."""
    return text if len(text) <= most else f"{text[:most].rpartition(' ')[0]} ..."
