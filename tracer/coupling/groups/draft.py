"""A coupling point before it is ranked: its ends, what it means for each path and design, and its sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sgltrace.index.program.vocabulary import roles
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.model import DESIGNS, PATHS, CouplingPoint, Place, Verdict

HARD, SOFT, NONE = "hard", "soft", "none"
ALWAYS = "always"
ORDER = {HARD: 2, SOFT: 1, NONE: 0}
CONDITIONS = {
    "cuda_graph": "CUDA graph enabled",
    "tbo": "two-batch overlap",
    "mamba_state": "hybrid linear / mamba models",
    "disaggregation": "PD disaggregation",
    "grammar": "grammar in use",
    "logprob": "logprobs requested",
    "dp_attention": "DP attention",
    "tp_agreement": "tensor parallelism",
}
"""What a server needs for code of a kind to run, in words that a configuration answers."""
DECIDING = 5
"""So many places of a side decide; the others are also touched, and stand behind them."""
MOST = 20
"""The most places of a side."""


@dataclass(frozen=True)
class Spot:
    """A place in a function, and what happens there."""

    function: FunctionInfo
    line: int
    what: str


@dataclass(eq=False)
class Draft:
    """``slug`` is made of roles and fields, never of wording: it makes the point's id."""

    kind: str
    slug: str
    title: str
    producers: list[Spot]
    consumers: list[Spot]
    binding_time: str
    verdicts: dict[tuple[str, str], tuple[str, str]]
    """By path and design: a severity and the reason."""
    why: list[str]
    """Sentences, each of which a fact proves."""
    refactor: list[str]
    fields: list[str] = field(default_factory=list)
    formula: str = ""
    condition: str = ALWAYS
    weight: int = 0

    def point(self) -> CouplingPoint:
        """The point as the index has it."""
        severity: dict[str, str | None] = {}
        for path in PATHS:
            found = [level for (p, _), (level, _) in self.verdicts.items() if p == path]
            severity[path] = max(found, key=ORDER.__getitem__) if found else None
        verdicts = [
            Verdict(path=path, design=design, severity=level, reason=reason)
            for path in PATHS
            for design in DESIGNS
            if (path, design) in self.verdicts
            for level, reason in (self.verdicts[path, design],)
        ]
        spots = [*self.producers, *self.consumers]
        return CouplingPoint(
            id=f"{self.kind.replace('_', '-')}-{self.slug}",
            title=self.title,
            kind=self.kind,
            severity=severity,
            designs=sorted({v.design for v in verdicts if v.severity != NONE}),
            binding_time=self.binding_time,
            condition=CONDITIONS.get(self.kind, ALWAYS) if self.condition == ALWAYS else self.condition,
            producers=places(self.producers),
            consumers=places(self.consumers),
            formula=self.formula,
            why_it_blocks=" ".join(dict.fromkeys(filter(None, self.why))),
            refactor=" ".join(dict.fromkeys(self.refactor)),
            verdicts=verdicts,
            fields=sorted(set(self.fields)),
            components=sorted({component(spot.function) for spot in spots} - {""}),
            rule=self.kind,
        )


def component(function: FunctionInfo) -> str:
    """The part of the engine that a function belongs to."""
    outer = function
    while outer.owner is None and outer.parent is not None:
        outer = outer.parent
    return roles().component(function.module.name, None if outer.owner is None else outer.owner.name)


def places(spots: Iterable[Spot]) -> list[Place]:
    """One place a line; the first line of each function before further ones."""
    seen: dict[tuple[str, int], Place] = {}
    turns: dict[str, int] = {}
    ranked: list[tuple[int, int, tuple[str, int]]] = []
    for number, spot in enumerate(spots):
        key = (spot.function.id, spot.line)
        if key in seen or spot.function.synthetic_lines is not None:
            continue
        seen[key] = Place(function=spot.function.id, line=spot.line, what=spot.what, file=spot.function.module.path)
        turns[spot.function.id] = turns.get(spot.function.id, 0) + 1
        ranked.append((turns[spot.function.id], number, key))
    return [seen[key] for _, _, key in sorted(ranked)[:MOST]]


def merged(drafts: list[Draft]) -> list[Draft]:
    """The same point of several paths becomes one."""
    out: dict[tuple[str, str], Draft] = {}
    for draft in drafts:
        known = out.get((draft.kind, draft.slug))
        if known is None:
            out[draft.kind, draft.slug] = draft
            continue
        if _worst(draft) > _worst(known):
            known.title = draft.title
        known.producers = interleaved(known.producers, draft.producers)
        known.consumers = interleaved(known.consumers, draft.consumers)
        known.verdicts |= draft.verdicts
        known.fields += draft.fields
        known.why = _told(known.why, draft.why)
        known.refactor = _told(known.refactor, draft.refactor)
        known.weight = max(known.weight, draft.weight)
    return list(out.values())


def _worst(draft: Draft) -> int:
    return max((ORDER[level] for level, _ in draft.verdicts.values()), default=0)


def _told(first: list[str], second: list[str]) -> list[str]:
    """The sentences of v1 and v2: what holds on both is said once, the rest with its path."""
    shared = [sentence for sentence in first if sentence in second]
    out = list(shared)
    for path, sentences in zip(PATHS, (first, second), strict=True):
        own = [sentence for sentence in sentences if sentence not in shared]
        if own:
            out += [f"On {path}: {own[0]}", *own[1:]]
    return out


def interleaved(left: list[Spot], right: list[Spot]) -> list[Spot]:
    """Two lists of places in turn."""
    out: list[Spot] = []
    for i in range(max(len(left), len(right))):
        out += left[i : i + 1] + right[i : i + 1]
    return out
