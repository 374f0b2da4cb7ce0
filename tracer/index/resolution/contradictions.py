"""Where the program speaks against an annotation: a value that is known beats what is written about it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import partial
from typing import TYPE_CHECKING

from sgltrace.index.resolution.attributes import load_from
from sgltrace.index.resolution.entities import ClassInfo
from sgltrace.index.resolution.values import Instance, Node

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine

MAX_CONTRADICTING = 3
"""More instances than this at one argument come from calls that were mixed, not from a wrong annotation."""

MAX_PLACES = 400
"""A value that goes to more places than this is data that everything passes around."""


def contradicted(engine: Engine) -> bool:
    """Where nothing that is passed fits the annotation, the annotation is wrong, not the caller."""
    moved = False
    refused, engine.solver.refused = engine.solver.refused, {}
    for target, instances in refused.items():
        if target not in engine.annotated:
            continue  # what `isinstance` refuses is not there
        engine.doubted.setdefault(target, {}).update(instances)
        transform = target.transform
        for source in list(engine.checked.get(target, ())):
            passed = [v for v in source.values if isinstance(v, Instance)]
            if transform is None or not 0 < len(passed) <= MAX_CONTRADICTING:
                continue
            if all(v not in target.values and transform(v) is None for v in passed):
                for value in passed:
                    engine.solver.force(target, value)
                moved = True
    return moved


def quacking(engine: Engine) -> bool:
    """Where an object of another family has all that it is asked for, it was meant, and the annotation is too narrow.

    Of one family the annotation tells the members apart: a value that may be any of them is one of those here.
    """
    moved = False
    for target, instances in engine.doubted.items():
        if not instances:
            continue
        accepted = [value.cls for value in target.values if isinstance(value, Instance)]
        asked: set[str] | None = None
        for value in list(instances):
            if value in target.values:
                del instances[value]
                continue
            if _is_family(engine, value.cls, accepted):
                continue
            if asked is None:
                asked = _asked_of(target, frozenset()) or _asked_of(target, engine.annotated)
            if asked and all(_has(engine, value.cls, name) for name in asked):
                del instances[value]
                engine.solver.force(target, value)
                moved = True
    return moved


def _is_family(engine: Engine, cls: ClassInfo, others: list[ClassInfo]) -> bool:
    """Whether a class shares a base with one of the others, or its name: two classes of one name are two versions."""
    if any(cls.name == other.name for other in others):
        return True
    own = set(engine.classes.mro(cls))
    return any(not own.isdisjoint(engine.classes.mro(other)) for other in others)


def _asked_of(node: Node, through: Set[Node]) -> set[str]:
    """The attributes that are read of what is in a node, here and where it goes unasked, or by one of ``through``."""
    names: set[str] = set()
    seen, pending = {node}, [node]
    while pending:
        at = pending.pop()
        names.update(_loaded(at))
        for target in at.targets or ():
            if (target.transform is None or target in through) and target not in seen:
                seen.add(target)
                pending.append(target)
        if len(seen) > MAX_PLACES:
            return set()
    return names


def _loaded(node: Node) -> Iterator[str]:
    for watcher in node.watchers or ():
        if isinstance(watcher, partial) and watcher.func is load_from:
            _, name, use, _ = watcher.args
            made_up = {id(expression) for expression in use.function.kept}
            if not any(id(expression) in made_up for expression in use.expressions):  # getattr may have a default
                yield name


def _has(engine: Engine, cls: ClassInfo, name: str) -> bool:
    """Whether objects of a class have an attribute that the tree gives them."""
    for owner in engine.classes.mro(cls):
        written = owner.fields.get(name)
        if name in owner.scope.names or name in owner.annotations or (written is not None and written.values):
            return True
    return False
