"""What is asked of the coupling points of an edited source, beside those of the source as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Index = dict[str, Any]
Point = dict[str, Any]
Result = tuple[bool, str]
Check = Callable[[Index, Index], list[Result]]

ORDER = ("none", "soft", "hard")
PATHS = ("v1", "v2")
DESIGNS = "ABC"


@dataclass(frozen=True)
class About:
    """Which points are meant: those that fit everything given.

    ``field`` is the last part of one of the point's fields. ``words`` stand anywhere in it as whole words, and one of
    ``some`` does. Each of ``ends`` names a producer or consumer, and one of ``either`` does: ``Class.method``, or
    ``.method`` of any class.
    """

    field: str = ""
    words: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    some: tuple[str, ...] = ()

    def fits(self, point: Point) -> bool:
        """Whether a point is one of them."""
        text = json.dumps(point)
        sites = functions(point, "producers") | functions(point, "consumers")
        return (
            (not self.field or any(f.split(".")[-1] == self.field for f in point["fields"]))
            and all(re.search(rf"\b{re.escape(word)}\b", text) for word in self.words)
            and (not self.some or any(re.search(rf"\b{re.escape(word)}\b", text) for word in self.some))
            and all(any(_is(site, end) for site in sites) for end in self.ends)
            and (not self.either or any(_is(site, end) for site in sites for end in self.either))
        )


def points(index: Index) -> list[Point]:
    """The coupling points of an index."""
    found: list[Point] = index["coupling_points"]
    return found


def functions(point: Point, side: str) -> set[str]:
    """The qualified names, without modules, at one side of a point."""
    return {site["function"].partition(":")[2].replace("<locals>.", "") for site in point[side]}


def _is(site: str, end: str) -> bool:
    return site == end or site.endswith(end if end.startswith(".") else f".{end}")


def severity(point: Point, path: str, design: str) -> str:
    """The verdict of a point for a path and a design; none where it has none."""
    found = [v["severity"] for v in point["verdicts"] if v["path"] == path and v["design"] == design]
    return (found[0] if found else None) or "none"


def worst(point: Point, path: str, designs: Iterable[str]) -> str:
    """The worst verdict of a point among some designs."""
    return max((severity(point, path, design) for design in designs), key=ORDER.index, default="none")


def at_least(point: Point, path: str, designs: Iterable[str], bar: str) -> bool:
    """Whether a point is as bad as ``bar`` in one of the designs."""
    return ORDER.index(worst(point, path, designs)) >= ORDER.index(bar)


def _titles(points: list[Point]) -> str:
    return "".join(f"; {point['title']}" for point in points[:2])


def gone(what: str, about: About, path: str, designs: str, bar: str = "hard") -> Check:
    """A point as bad as ``bar`` was there, and none is any more in these designs."""

    def check(base: Index, variant: Index) -> list[Result]:
        before, after = (
            [p for p in points(index) if about.fits(p) and at_least(p, path, designs, bar)] for index in (base, variant)
        )
        return [
            (bool(before), f"{what}: {bar} on {path} {designs} before"),
            (not after, f"{what}: no longer {bar} on {path} {designs}{_titles(after)}"),
        ]

    return check


def fewer(what: str, about: About, path: str, design: str) -> Check:
    """Fewer points are hard than were, where a field stays coupled for another reason."""

    def check(base: Index, variant: Index) -> list[Result]:
        before, after = (
            [p for p in points(index) if about.fits(p) and severity(p, path, design) == "hard"]
            for index in (base, variant)
        )
        return [
            (
                len(after) < len(before),
                f"{what}: {len(before)} hard on {path} {design}, then {len(after)}{_titles(after)}",
            )
        ]

    return check


def found(what: str, about: About, path: str, designs: str, bar: str = "hard", spared: str = "") -> Check:
    """A point as bad as ``bar`` is there in each of the designs; in the ``spared`` designs none is hard."""

    def check(base: Index, variant: Index) -> list[Result]:
        fitting = [p for p in points(variant) if about.fits(p)]
        by_words = [p for p in points(variant) if About(about.field, about.words, some=about.some).fits(p)]
        missing = [d for d in designs if not any(at_least(p, path, d, bar) for p in fitting)]
        state = "too weak" if fitting else "elsewhere" if by_words else "not found"
        told = f"{state} for {''.join(missing)}" if missing else "found"
        results = [(not missing, f"{what}: {bar} on {path} {designs}: {told}")]
        if spared:
            wrong = [p for p in fitting if at_least(p, path, spared, "hard")]
            results.append((not wrong, f"{what}: not hard on {path} {spared}{_titles(wrong)}"))
        return results

    return check


def quiet(what: str, about: About, path: str = "", designs: str = DESIGNS) -> Check:
    """No point about it is hard, but those that were before: these may take up a field beside others of theirs."""

    def check(base: Index, variant: Index) -> list[Result]:
        paths = (path,) if path else PATHS
        before = {p["id"] for p in points(base) if _is_hard(p)}
        fitting = [p for p in points(variant) if about.fits(p) and p["id"] not in before]
        hard = [p for p in fitting if any(at_least(p, each, designs, "hard") for each in paths)]
        return [(not hard, f"{what}: nothing hard{_titles(hard)}")]

    return check


def most_gone(what: str, path: str, design: str, share: float) -> Check:
    """No more than a share of the points that were hard for a path and a design is hard still."""

    def check(base: Index, variant: Index) -> list[Result]:
        old, new = ([p for p in points(index) if severity(p, path, design) == "hard"] for index in (base, variant))
        return [
            (
                bool(old) and len(new) <= share * len(old),
                f"{what}: {len(new)} of {len(old)} hard on {path} {design}{_titles(new)}",
            )
        ]

    return check


def _key(point: Point) -> tuple[str, ...]:
    return (point["kind"], *(severity(point, path, design) for path in PATHS for design in DESIGNS))


def _meet(old: Point, new: Point) -> bool:
    return all(not old[side] or functions(old, side) & functions(new, side) for side in ("producers", "consumers"))


def _is_hard(point: Point) -> bool:
    return "hard" in point["severity"].values()


def same(what: str, names: dict[str, str] | None = None, moved: tuple[str, ...] = ()) -> Check:
    """Every hard point stays and none appears: kind, severity by path and design, and a function at each end.

    ``names`` are the identifiers that the edit renames. Functions in ``moved`` left their place: a point whose side
    lies in them alone is not asked for a function at that side.
    """
    words = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b") if names else None

    def renamed(text: str) -> str:
        return words.sub(lambda match: (names or {})[match[1]], text) if words else text

    def stays(old: Point, new: Point) -> bool:
        sides = [
            s for s in ("producers", "consumers") if {f for f in functions(old, s) if not any(_is(f, m) for m in moved)}
        ]
        return _key(old) == _key(new) and all(
            {renamed(f) for f in functions(old, s)} & functions(new, s) for s in sides
        )

    def check(base: Index, variant: Index) -> list[Result]:
        old, new = list(filter(_is_hard, points(base))), list(filter(_is_hard, points(variant)))
        lost = [a for a in old if not any(stays(a, b) for b in new)]
        made = [b for b in new if not any(stays(a, b) for a in old)]
        said = f"{len(old) - len(lost)}/{len(old)} hard points stay, {len(made)} new"
        return [(bool(old) and not lost and not made, f"{what}: {said}{_titles(lost)}{_titles(made)}")]

    return check


def others_stay(*spared: About, share: float = 0.9) -> Check:
    """Nearly all hard points that are not about what was edited stay."""

    def check(base: Index, variant: Index) -> list[Result]:
        old = [p for p in points(base) if _is_hard(p) and not any(about.fits(p) for about in spared)]
        new = list(filter(_is_hard, points(variant)))
        lost = [a for a in old if not any(_key(a) == _key(b) and _meet(a, b) for b in new)]
        kept = len(old) - len(lost)
        return [(bool(old) and kept >= share * len(old), f"{kept}/{len(old)} other hard points stay{_titles(lost)}")]

    return check


def path_stays(path: str) -> Check:
    """The hard points of a path that the edit does not touch stay as they were."""

    def key(point: Point) -> tuple[str, ...]:
        return (point["kind"], *(severity(point, path, design) for design in DESIGNS))

    def check(base: Index, variant: Index) -> list[Result]:
        old, new = ([p for p in points(i) if p["severity"].get(path) == "hard"] for i in (base, variant))
        lost = [a for a in old if not any(key(a) == key(b) and _meet(a, b) for b in new)]
        made = [b for b in new if not any(key(a) == key(b) and _meet(a, b) for a in old)]
        said = f"{len(old) - len(lost)}/{len(old)} hard points of {path} stay, {len(made)} new"
        return [(bool(old) and not lost and not made, f"{said}{_titles(lost)}{_titles(made)}")]

    return check


def off_step(what: str, path: str, gate: str) -> Check:
    """The source has an off step of its own on a path, behind a gate in a file."""

    def check(base: Index, variant: Index) -> list[Result]:
        old, new = (
            [
                s
                for s in index.get("off_steps", [])
                if s["path"] == path and any(g["file"].endswith(gate) for g in s["gates"])
            ]
            for index in (base, variant)
        )
        return [
            (not old, f"{what}: none in {gate} before"),
            (bool(new), f"{what}: an off step on {path}, gate in {gate}"),
        ]

    return check


def every(*checks: Check) -> Check:
    """All of several checks."""
    return lambda base, variant: [result for check in checks for result in check(base, variant)]
