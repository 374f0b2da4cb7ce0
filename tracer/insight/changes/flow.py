"""What changed in who writes and reads a field: the facts that explain a changed verdict."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sgltrace.insight.changes.names import Names
from sgltrace.insight.changes.sides import Side, listed, short
from sgltrace.model import Access, Field

MOST = 4
"""The most sentences on the fields of one point."""


@dataclass(frozen=True)
class Lost:
    """Functions that the index after lacks."""

    unreached: list[str]
    """Those that the source still has."""
    gone: list[str]
    all: bool
    """Whether none of the functions asked for is left."""


class Flow:
    """Compares accesses of fields."""

    def __init__(self, before: Side, after: Side, names: Names) -> None:
        self.before = before
        self.after = after
        self.names = names

    def lost(self, functions: Sequence[str]) -> Lost:
        """Which of the functions (of the source before) no process of the source after reaches."""
        missing = [f for f in dict.fromkeys(functions) if self.names.function(f) is None]
        unreached = [f for f in missing if self.after.defined(f, self.before.functions[f].file)]
        left = [f for f in dict.fromkeys(functions) if self.names.function(f) is not None]
        return Lost(unreached, [f for f in missing if f not in unreached], not left and bool(missing))

    def told(self, fields: Iterable[str], paths: Sequence[str], ends: Collection[str]) -> list[str]:
        """Sentences on the fields (as named before): writers and readers that came, went, or stand under a condition.

        Only of functions among ``ends``, as they are called after: of a point's fields much may differ that it is not
        about.
        """
        out: list[str] = []
        for name in fields:
            now = self.names.field(name)
            for old in self.before.fields.get(name, [])[:1]:
                found = self.after.fields.get(now)
                out += self._between(now, old, found[0], paths, ends) if found else [f"`{name}` is gone."]
        return out[:MOST]

    def told_after(self, fields: Iterable[str], paths: Sequence[str], ends: Collection[str]) -> list[str]:
        """Sentences on the fields (as named after)."""
        back = {self.names.field(name): name for name in self.before.fields}
        out: list[str] = []
        for name in fields:
            if name not in self.after.fields:
                continue
            if name not in back:
                out.append(f"`{name}` is new.")
            else:
                old = self.before.fields[back[name]][0]
                out += self._between(name, old, self.after.fields[name][0], paths, ends)
        return out[:MOST]

    def _between(self, name: str, old: Field, new: Field, paths: Sequence[str], ends: Collection[str]) -> list[str]:
        out = []
        for verb, before, after in (("set", old.writes, new.writes), ("read", old.reads, new.reads)):
            was = _by_function(before, paths, self.names)
            now = _by_function(after, paths, None)
            was, now = ({f: a for f, a in found.items() if f in ends} for found in (was, now))
            if came := [f for f in now if f not in was]:
                out.append(f"{listed(map(short, came))} {verb if len(came) > 1 else _third(verb)} `{name}` now.")
            if went := [f for f in was if f not in now]:
                out.append(f"{listed(map(short, went))} no longer {verb if len(went) > 1 else _third(verb)} `{name}`.")
            for function, accesses in now.items():
                if function in was:
                    guards = _guards(accesses) - {self.names.text(g) for g in _guards(was[function])}
                    everywhere = [g for g in sorted(guards) if all(g in _guards([a]) for a in accesses)]
                    if everywhere:
                        out.append(f"{short(function)} {_third(verb)} `{name}` only where {listed(everywhere, 2)}.")
        return out


def _third(verb: str) -> str:
    return f"{verb}s"


def _by_function(accesses: Iterable[Access], paths: Sequence[str], names: Names | None) -> dict[str, list[Access]]:
    out: dict[str, list[Access]] = {}
    for access in accesses:
        if access.kind == "default" or (paths and access.paths and not set(paths) & set(access.paths)):
            continue
        function = access.function if names is None else names.function(access.function) or access.function
        out.setdefault(function, []).append(access)
    return out


def _guards(accesses: Iterable[Access]) -> set[str]:
    return {
        f"`{guard.text}`" if guard.holds else f"not `{guard.text}`"
        for access in accesses
        for guard in access.guards
        if guard.kind in ("if", "return")
    }
