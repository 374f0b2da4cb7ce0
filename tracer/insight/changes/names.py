"""Which function, class and field of one source is which of the other, whatever they are called and wherever they lie.

A function is the same where it has the same id; else where its body has the same shape, or most of its lines. Names
that stand in the same places of two such bodies are the same names. A field that is gone is the one that is new in its
class where the names of the bodies say so, or where the same functions write and read it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from sgltrace.insight.changes.bodies import Bodies, Body
from sgltrace.model import Field, Index

ENOUGH = 12
"""A body that tells less is not recognised by its shape alone."""
ALIKE = 0.6
"""The share of lines that two bodies of different shape have in common where they are the same function."""
SURE = 0.5
"""The share of places at which one name stands for another where they are the same."""
FEW = 5
"""A qualified name that more functions have tells nothing."""
COMMON = 40
"""A line that so many functions have tells nothing."""


@dataclass(frozen=True)
class Names:
    """Names of the source before, as they are after. What is not in a table is called the same, or is gone."""

    functions: Mapping[str, str]
    """Every function that is on both sides."""
    classes: Mapping[str, str]
    """Bare names of classes that have another."""
    fields: Mapping[str, str]
    """``Class.field`` that is called otherwise after."""
    words: Mapping[str, str]
    """Names that are nowhere any more, with those in their places."""

    def function(self, id: str) -> str | None:
        """The function after; None where it is gone."""
        return self.functions.get(id)

    def field(self, name: str) -> str:
        """A ``Class.field`` as it is called after."""
        if name in self.fields:
            return self.fields[name]
        cls, dot, field = name.rpartition(".")
        return f"{self.classes.get(cls, cls)}{dot}{self.words.get(field, field)}" if dot else name

    def text(self, text: str) -> str:
        """A text with the names of the source after."""
        table = {**self.words, **self.classes}
        return re.sub(r"[A-Za-z_]\w*", lambda m: table.get(m[0], m[0]), text) if table else text


def match_names(before: Index, after: Index, bodies: tuple[Bodies, Bodies] | None) -> Names:
    """What is called what. Without the sources (``bodies``) what has the same id, or name and class, is the same."""
    functions = _functions(before, after, bodies)
    votes: Counter[tuple[str, str]] = Counter()
    if bodies is not None:
        _vote(functions, bodies, votes)
    words = _words(votes, bodies, before, after)
    classes = _classes(before, after, functions, words)
    fields = _fields(before, after, functions, classes, votes)
    return Names(functions, classes, fields, words)


# --- functions ---


def _functions(before: Index, after: Index, bodies: tuple[Bodies, Bodies] | None) -> dict[str, str]:
    old, new = ({f.id for f in index.functions} for index in (before, after))
    matched = {id: id for id in old & new}
    left, right = sorted(old - new), sorted(new - old)
    pairs: list[tuple[float, str, str]] = []
    if bodies is not None:
        found = ({id: body for id in ids if (body := side.body(id)) is not None} for ids, side in
                 ((left, bodies[0]), (right, bodies[1])))  # fmt: skip
        pairs += _by_body(*found)
    pairs += _by_tail(left, right)
    taken: set[str] = set()
    for _, one, other in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if one not in matched and other not in taken:
            matched[one] = other
            taken.add(other)
    return matched


def _by_tail(left: list[str], right: list[str]) -> list[tuple[float, str, str]]:
    """Functions of one qualified name in another module, where the name has a class in it."""
    tails: dict[str, list[str]] = defaultdict(list)
    for id in right:
        tails[id.partition(":")[2]].append(id)
    return [
        (0.6 if "." in name else 0.5, id, other)
        for id in left
        for name in (id.partition(":")[2],)
        for other in (tails[name] if len(tails.get(name, [])) <= FEW else [])
    ]


def _by_body(left: dict[str, Body], right: dict[str, Body]) -> list[tuple[float, str, str]]:
    shapes: dict[tuple[str, ...], list[str]] = defaultdict(list)
    rare: dict[tuple[str, int], set[str]] = defaultdict(set)
    for id, body in right.items():
        shapes[body.shape].append(id)
        for line in body.lines:
            rare[line.shape, len(line.words)].add(id)
    out: list[tuple[float, str, str]] = []
    for id, body in left.items():
        if body.size >= ENOUGH:
            for other in shapes.get(body.shape, [])[:COMMON]:
                out.append((1.0 + _same_words(body, right[other]) + _same_name(id, other), id, other))
        near: Counter[str] = Counter()
        for line in body.lines:
            found = rare.get((line.shape, len(line.words)), set())
            if len(found) < COMMON:
                near.update(found)
        for other, _ in near.most_common(6):
            share = _same_lines(body, right[other])
            bar = ALIKE if id.rpartition(".")[2] != other.rpartition(".")[2] else ALIKE / 2
            if share >= bar and min(body.size, right[other].size) >= ENOUGH:
                out.append((share + _same_name(id, other) / 2, id, other))
    return out


def _same_lines(one: Body, other: Body) -> float:
    """The share of lines of the same shape, whose names agree at that, of the longer body."""
    left, right = Counter(one.lines), Counter(other.lines)
    equal = sum((left & right).values())
    shapes = sum((Counter(one.shape) & Counter(other.shape)).values())
    return (0.6 * equal + 0.4 * shapes) / max(len(one.lines), len(other.lines), 1)


def _same_words(one: Body, other: Body) -> float:
    left = [word for line in one.lines for word in line.words]
    right = [word for line in other.lines for word in line.words]
    return sum(a == b for a, b in zip(left, right, strict=False)) / max(len(left), 1)


def _same_name(one: str, other: str) -> float:
    (module, _, name), (module_after, _, name_after) = one.partition(":"), other.partition(":")
    return 0.4 * (name == name_after) + 0.2 * (
        name.rpartition(".")[2] == name_after.rpartition(".")[2]
    ) + 0.1 * (module == module_after)  # fmt: skip


# --- names inside ---


def _vote(functions: Mapping[str, str], bodies: tuple[Bodies, Bodies], votes: Counter[tuple[str, str]]) -> None:
    """Count which name stands where another stood, over all functions that are not the same text."""
    before, after = bodies
    same: dict[tuple[str, str], bool] = {}
    for one, other in sorted(functions.items()):
        files = (before.file_of(one), after.file_of(other))
        if files not in same:
            same[files] = before.data(files[0]) == after.data(files[1])
        if same[files]:
            continue
        left, right = before.body(one), after.body(other)
        if left is None or right is None or left == right:
            continue
        _align(left, right, votes)


def _align(left: Body, right: Body, votes: Counter[tuple[str, str]]) -> None:
    if left.shape == right.shape:
        pairs = list(zip(left.lines, right.lines, strict=True))
    else:
        matcher = SequenceMatcher(None, left.shape, right.shape, autojunk=False)
        pairs = [
            (left.lines[i + n], right.lines[j + n])
            for i, j, size in matcher.get_matching_blocks()
            if size > 1 or left.lines[i : i + size] == right.lines[j : j + size]
            for n in range(size)
        ]
    for one, other in pairs:
        if len(one.words) == len(other.words):
            votes.update(zip(one.words, other.words, strict=True))


def _words(
    votes: Counter[tuple[str, str]], bodies: tuple[Bodies, Bodies] | None, before: Index, after: Index
) -> dict[str, str]:
    """Names that are nowhere any more, and what stands in their places and was nowhere before."""
    changed = [(pair, count) for pair, count in votes.most_common() if pair[0] != pair[1]]
    if not changed or bodies is None:
        return {}
    old, new = _vocabulary(before, bodies[0]), _vocabulary(after, bodies[1])
    total: Counter[str] = Counter()
    for (one, _), count in votes.items():
        total[one] += count
    out: dict[str, str] = {}
    for (one, other), count in changed:
        if one not in out and one not in new and other not in old and count / total[one] > SURE:
            out[one] = other
    return out


def _vocabulary(index: Index, bodies: Bodies) -> set[str]:
    found: set[bytes] = set()
    for file in sorted({function.file for function in index.functions}):
        found.update(re.findall(rb"[A-Za-z_]\w*", bodies.data(file) or b""))
    return {word.decode() for word in found}


# --- classes and fields ---


def _classes(before: Index, after: Index, functions: Mapping[str, str], words: Mapping[str, str]) -> dict[str, str]:
    """Bare names of classes that have another: their methods, all in all, belong to it, it stands in the places of the
    old name, or it has the same fields.
    """
    old, new = _class_names(before), _class_names(after)
    gone, made = old - new, new - old
    methods = Counter(_class_of(function.id) for function in before.functions)
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for one, other in functions.items():
        left, right = _class_of(one), _class_of(other)
        if left in gone and right:
            votes[left][right] += 1
    out: dict[str, str] = {}
    for left in sorted(gone):
        if words.get(left) in made:
            out[left] = words[left]
        elif votes[left]:
            right, count = votes[left].most_common(1)[0]
            enough = count > 1 or count >= SURE * methods[left]
            if right in made and enough and count >= SURE * votes[left].total():
                out[left] = right
    left_over = made - set(out.values())
    fields, there = _by_class(before.fields), _by_class(after.fields)
    for left in sorted(gone - out.keys()):
        names = {words.get(name, name) for name in fields.get(left, {})}
        alike = [(_overlap(names, set(there.get(right, {}))), right) for right in sorted(left_over)]
        share, right = max(alike, default=(0.0, ""))
        if len(names) > 2 and share > ALIKE:
            out[left] = right
            left_over.discard(right)
    return out


def _class_names(index: Index) -> set[str]:
    return {name for f in index.functions if (name := _class_of(f.id))} | {_bare(f.cls) for f in index.fields}


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(len(one | other), 1)


def _class_of(function: str) -> str:
    """The bare name of the class that a function is a method of; nothing for others."""
    parts = function.partition(":")[2].split(".<locals>.")[0].split(".")
    return parts[-2] if len(parts) > 1 else ""


def _bare(cls: str) -> str:
    return cls.rpartition(":")[2].rpartition(".")[2]


def _fields(
    before: Index,
    after: Index,
    functions: Mapping[str, str],
    classes: Mapping[str, str],
    votes: Counter[tuple[str, str]],
) -> dict[str, str]:
    """Fields that are gone from a class, with the new ones of it that stand in their places."""
    old, new = _by_class(before.fields), _by_class(after.fields)
    out: dict[str, str] = {}
    for cls, fields in sorted(old.items()):
        here = new.get(classes.get(cls, cls), {})
        gone = [name for name in fields if name not in here]
        made = [name for name in here if name not in fields]
        scored = sorted(
            (
                (-score, name, other)
                for name in gone
                for other in made
                if (score := _like(fields[name], here[other], functions, votes)) >= SURE
            ),
        )
        for _, name, other in scored:
            key, value = f"{cls}.{name}", f"{classes.get(cls, cls)}.{other}"
            if key not in out and value not in out.values():
                out[key] = value
    return out


def _by_class(fields: Iterable[Field]) -> dict[str, dict[str, Field]]:
    out: dict[str, dict[str, Field]] = defaultdict(dict)
    for field in fields:
        out[_bare(field.cls)].setdefault(field.field, field)
    return out


def _like(one: Field, other: Field, functions: Mapping[str, str], votes: Counter[tuple[str, str]]) -> float:
    """How sure it is that a field is another: by the names in its places, and by who writes and reads it."""
    here = votes[one.field, other.field]
    left = {("w", functions.get(a.function, a.function)) for a in one.writes}
    left |= {("r", functions.get(a.function, a.function)) for a in one.reads}
    right = {("w", a.function) for a in other.writes} | {("r", a.function) for a in other.reads}
    both = len(left & right)
    flow = both / len(left | right) if both > 2 else 0.0
    said = here > votes[one.field, one.field] and (here > 1 or both)
    return 0.5 + min(here, 5) / 10 + flow / 2 if said else 0.75 * flow
