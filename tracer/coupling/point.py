"""What a rule hands over: sites on both sides, and what they mean for each design. ``model.CouplingPoint`` after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sgltrace.coupling.facts import Access, Branch, Call, Item, Mention, Refusal, Stride
from sgltrace.coupling.universe import Fn, Universe
from sgltrace.model import DESIGNS, PATHS, CouplingPoint, Place, Verdict

HARD, SOFT, NONE = "hard", "soft", "none"
_ORDER = {HARD: 2, SOFT: 1, NONE: 0}

PLACES = 14
"""The most functions that one side of a point names."""
ENOUGH = 5
"""With so many functions of the usual platform, those of others are left out."""
ALIKE = 4
"""The most functions of one name among them: one method of many backends says the same thing many times."""
LINES = 4
"""The most lines that it names of one function."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place in a function, and why it is named. Of two sites the heavier tells more."""

    function: str
    line: int
    what: str
    weight: int = 0
    path: str | None = None


Found = TypeVar("Found", Access, Branch, Call, Mention, Refusal, Stride, Item)

Judgement = tuple[str, str]
"""A severity and its reason."""


@dataclass
class Finding:
    """One thing that couples, before it is ranked and numbered.

    ``verdicts`` maps a design to what it means on either path; ``by_path`` overrides it for one path.
    ``only`` names the paths the finding can concern (what its sites say decides within them).
    """

    kind: str
    title: str
    producers: list[Site]
    consumers: list[Site]
    binding_time: str
    why: str
    refactor: str
    verdicts: Mapping[str, Judgement]
    by_path: Mapping[str, Mapping[str, Judgement]] = field(default_factory=dict)
    formula: str = ""
    condition: str = "always"
    fields: Sequence[str] = ()
    only: tuple[str, ...] = PATHS
    rule: str = ""
    weight: int = 0


def site(item: Item, what: str, weight: int = 0) -> Site:
    """The site of something that was found."""
    return Site(item.function, item.line, what, weight, getattr(item, "path", None))


def sites(items: Iterable[Found], what: str | Callable[[Found], str], weight: int = 0) -> list[Site]:
    """The sites of things that were found, one for each line."""
    seen: dict[tuple[str, int], Site] = {}
    for item in items:
        text = what(item) if callable(what) else what
        seen.setdefault((item.function, item.line), site(item, text, weight))
    return list(seen.values())


def of(fn: Fn, what: str, weight: int = 0, line: int | None = None) -> Site:
    """A function as a whole."""
    return Site(fn.id, fn.line if line is None else line, what, weight)


def site_paths(universe: Universe, item: Site) -> frozenset[str]:
    """The paths on which a site runs; both where nothing says otherwise."""
    paths = universe.paths_of(item.function)
    return paths & {item.path} if item.path is not None and item.path in paths else paths


def trim(universe: Universe, found: Iterable[Site], most: int = PLACES) -> list[Site]:
    """The sites of the functions that tell most, at most ``most`` functions and ``LINES`` lines of each."""
    by_function: dict[str, list[Site]] = {}
    for item in found:
        by_function.setdefault(item.function, []).append(item)

    def value(entry: tuple[str, list[Site]]) -> tuple[int, str, int]:
        function, items = entry
        fn = universe.fns[function]
        score = max(s.weight for s in items) * 10 + min(len(items), 6) + universe.importance(fn)
        return (-score, fn.file, fn.line)

    out: list[Site] = []
    named: Counter[str] = Counter()
    order = sorted(by_function.items(), key=value)
    chosen = []
    for function, items in order:
        name = universe.fns[function].name
        named[name] += 1
        if named[name] <= ALIKE or name == "__init__":
            chosen.append((function, items))
    here = [entry for entry in chosen if not universe.elsewhere(universe.fns[entry[0]])]
    for _, items in (here if len(here) >= ENOUGH else chosen)[:most]:
        lines: dict[int, Site] = {}
        for item in sorted(items, key=lambda s: (-s.weight, s.line)):
            lines.setdefault(item.line, item)
        out += sorted(list(lines.values())[:LINES], key=lambda s: s.line)
    return out


def severity_on(
    universe: Universe, finding: Finding, path: str, done: frozenset[str] = frozenset()
) -> tuple[str | None, list[Verdict]]:
    """The worst over the designs on a path, with the verdict for each; None where a side does not run there.

    ``done`` are the paths on which the release has an off step of its own, which is of design C.
    """
    if path not in finding.only or path not in universe.paths:
        return None, []
    for side in (finding.producers, finding.consumers):
        if not any(path in site_paths(universe, s) for s in side):
            return None, []
    table = {**finding.verdicts, **finding.by_path.get(path, {})}
    if path in done and table.get("C", (NONE,))[0] == HARD:
        table["C"] = (SOFT, "the release's own step without drafts takes care of it, within its gates")
    verdicts = [Verdict(path=path, design=d, severity=table[d][0], reason=table[d][1]) for d in DESIGNS if d in table]
    if not verdicts:
        return NONE, []
    return max((v.severity for v in verdicts), key=_ORDER.__getitem__), verdicts


def build(universe: Universe, finding: Finding, done: frozenset[str] = frozenset()) -> CouplingPoint | None:
    """The coupling point of a finding; None where neither path has both of its sides."""
    severity: dict[str, str | None] = {}
    verdicts: list[Verdict] = []
    for path in PATHS:
        severity[path], found = severity_on(universe, finding, path, done)
        verdicts += found
    if all(value is None for value in severity.values()):
        return None
    blocked = sorted({v.design for v in verdicts if v.severity != NONE})
    live = frozenset(path for path, value in severity.items() if value is not None)
    producers = trim(universe, [s for s in finding.producers if _shown(universe, s, live)])
    consumers = trim(universe, [s for s in finding.consumers if _shown(universe, s, live)])
    functions = [universe.fns[s.function] for s in (*producers, *consumers)]
    return CouplingPoint(
        id="",
        title=finding.title,
        kind=finding.kind,
        severity=severity,
        designs=blocked,
        binding_time=finding.binding_time,
        condition=finding.condition,
        producers=[_place(universe, s) for s in producers],
        consumers=[_place(universe, s) for s in consumers],
        formula=finding.formula,
        why_it_blocks=finding.why,
        refactor=finding.refactor,
        verdicts=verdicts,
        fields=sorted(set(finding.fields)),
        components=sorted({universe.component(fn) for fn in functions} - {""}),
        rule=finding.rule,
    )


def _shown(universe: Universe, item: Site, live: frozenset[str]) -> bool:
    """Whether a site belongs to a point on the paths where it stands; other algorithms' code is named after theirs."""
    fn = universe.fns[item.function]
    return not fn.made and (fn.other or bool(site_paths(universe, item) & live))


def _place(universe: Universe, item: Site) -> Place:
    return Place(function=item.function, line=item.line, what=item.what, file=universe.fns[item.function].file)
