"""The vocabulary as one program speaks it: what it calls things is added to what releases are known to call them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from sgltrace.coupling.groups.kinds import kind_of
from sgltrace.coupling.groups.scene import Scene
from sgltrace.coupling.groups.waits import waits_for
from sgltrace.coupling.offstep.parts import Parts
from sgltrace.coupling.vocabulary import SpecVocabulary, Vocabulary
from sgltrace.index.fields import FieldFlow


def adapted(words: Vocabulary, parts: Parts, flow: FieldFlow, scenes: list[Scene]) -> Vocabulary:
    """The words of a vocabulary, and those that the parts and the off steps of a program have been found under."""
    made = dataclasses.replace(
        words,
        spec=_spec(words, parts, scenes),
        roles=_roles(words, parts, flow),
        coupling={kind: dict(table) for kind, table in words.coupling.items()},
    )
    _workers(made, parts)
    _fields(made, parts, scenes)
    return made


def _spec(words: Vocabulary, parts: Parts, scenes: list[Scene]) -> SpecVocabulary:
    spec = words.spec
    states = {cls.name for cls in parts.state_classes}
    relayed = {u.name for s in scenes for u in s.answers.unset if u.strikes}
    return dataclasses.replace(
        spec,
        algorithm_enums=spec.algorithm_enums | _names([parts.algorithm]),
        mode_enums=spec.mode_enums | _names([parts.mode]),
        info_fields=spec.info_fields | set(parts.state_fields),
        input_classes=spec.input_classes | states,
        result_fields=spec.result_fields | relayed,
    )


def _roles(words: Vocabulary, parts: Parts, flow: FieldFlow) -> dict[str, frozenset[str]]:
    out = dict(words.roles)

    def add(role: str, names: Iterable[str]) -> None:
        out[role] = out.get(role, frozenset()) | frozenset(names)

    for cls, role in flow.tracked.derived.items():
        add(role, [cls.name])
    known = {name for names in out.values() for name in names}
    add("spec_worker", (cls.name for cls in parts.workers.values() if cls.name not in known))
    carried = [c for c in parts.state_classes if flow.role(c) is None and c.name not in known]
    add("draft_input", (c.name for c in carried))
    return out


def _workers(words: Vocabulary, parts: Parts) -> None:
    table = words.coupling.setdefault("worker_dispatch", {})

    def add(key: str, names: Iterable[str]) -> None:
        table[key] = sorted({*table.get(key, ()), *names})

    for path, cls in parts.workers.items():
        table[path] = [cls.name]
    add("schedulers", [parts.scheduler.name])
    if parts.target is not None and parts.target.owner is not None:
        add("target", [parts.target.owner.name])
    add("others", (f.owner.name for f in parts.all_entries if f.owner is not None))


def _fields(words: Vocabulary, parts: Parts, scenes: list[Scene]) -> None:
    """Fields by what was found of them, not by their names."""

    def add(kind: str, key: str, names: Iterable[str]) -> None:
        found = set(names)
        if found:
            table = words.coupling.setdefault(kind, {})
            table[key] = sorted({*table.get(key, ()), *found})

    for scene in scenes:
        stale = [x for x in scene.answers.stale if x.carried]
        events = {x.uses.field for x in stale if any(map(waits_for, x.uses.reads))}
        add("stream_order", "events", events)
        add("draft_state", "fields", (x.uses.field for x in stale if x.uses.field not in events))
        unset = scene.answers.unset
        counted = {u.name for u in unset if u.strikes}
        states = set(parts.state_classes)
        relay = {
            u.name
            for u in unset
            for w in u.writes
            if w.value is not None and states & set(scene.questions.program.classes_of(w.value, w.function))
        }
        add("result", "relay", relay)
        add("result", "counts", counted - relay)
        add("result", "tokens", (u.name for u in unset if u.strided))
        lengths = [x.uses for x in scene.answers.split if x.uses.role == "request"]
        add("kv_bookkeeping", "lengths", (u.field for u in lengths if kind_of(scene, u) == "kv_bookkeeping"))


def _names(classes: Iterable) -> set[str]:  # type: ignore[type-arg]
    return {cls.name for cls in classes if cls is not None}
