"""Which functions run under a configuration: the call graph, with the conditions that the configuration decides."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

from sgltrace.configuration import Configuration
from sgltrace.configuration.truth import parsed
from sgltrace.model import Conditions, Guard, Index

ASKED = ("if", "return", "assert")
"""The kinds of guards that state a condition."""
ARGUMENTS = "server_args"
"""The role of the class of the server's arguments."""
MODEL_KIND = "model_type"
"""What a model's config.json says of its kind."""


class Reach:
    """The functions that run under a configuration; without one, under any.

    ``may`` has all that cannot be ruled out, ``must`` those before which no undecided condition on the configuration
    stands.
    """

    def __init__(self, index: Index, configuration: Configuration | None = None) -> None:
        self._conditions = index.conditions
        self._holds: dict[tuple[str, bool], bool | None] = {}
        self._configuration = configuration or Configuration(meanings=index.conditions.meanings)
        self._names = decided(index.conditions)
        arguments = frozenset(index.conditions.arguments)
        self._rewritten: dict[str, set[str]] = defaultdict(set)
        """By function: the arguments that it sets, of which its conditions ask what they were before."""
        for uses in index.fields:
            if uses.field in arguments and uses.role == ARGUMENTS:
                for access in uses.writes:
                    self._rewritten[access.function].add(uses.field)
        self._calls: dict[str, list[tuple[str, list[list[Guard]]]]] = defaultdict(list)
        self.callers: dict[str, list[tuple[str, list[list[Guard]]]]] = defaultdict(list)
        called = set()
        for edge in index.calls:
            sites = [site.guards for site in edge.sites]
            self._calls[edge.caller].append((edge.callee, sites))
            self.callers[edge.callee].append((edge.caller, sites))
            called.add(edge.callee)
        self._made: dict[str, list[tuple[str, list[Guard]]]] = defaultdict(list)
        for cls, places in index.conditions.made.items():
            for place in places:
                self._made[place.function].append((cls, place.guards))
        self._roots = [f.id for f in index.functions if f.id not in called]
        self._roots += index.processes
        if configuration is None:  # some loop runs in every one
            self._roots += index.event_loops
        self.may = self._run(certain=False)
        self.must = self._run(certain=True)

    def open(self, function: str, guards: Iterable[Guard]) -> bool | None:
        """Whether conditions in a function let one through: None where the configuration decides it, and does not
        say."""
        found: bool | None = True
        before = self._rewritten.get(function)
        for guard in guards:
            if guard.kind not in ASKED:
                continue
            if before and not before.isdisjoint(leaves_of(guard.text)):
                continue
            holds = self.holds(guard)
            if holds is False:
                return False
            if holds is None:
                found = None
        return found

    def holds(self, guard: Guard) -> bool | None:
        """Whether a condition is met, as far as the configuration decides it; True where it does not."""
        key = guard.text, guard.holds
        if key not in self._holds:
            truth = self._configuration.holds(guard.text)
            if truth is None:
                leaves = leaves_of(guard.text)
                self._holds[key] = None if leaves and leaves <= self._names else True
            else:
                self._holds[key] = truth is guard.holds
        return self._holds[key]

    def doubts(self, function: str, guards: Iterable[Guard] = ()) -> list[str]:
        """The conditions before a place that are not decided: at the place itself, else on the ways to its function."""
        found = [guard.text for guard in guards if guard.kind in ASKED and self.holds(guard) is None]
        seen, todo = {function}, [function]
        while todo and not found:
            at = todo.pop(0)
            for caller, sites in self.callers.get(at, ()):
                if caller in self.may:
                    found += [g.text for guards in sites for g in guards if g.kind in ASKED and self.holds(g) is None]
                    if caller not in seen:
                        seen.add(caller)
                        todo.append(caller)
        return list(dict.fromkeys(found))[:2]

    def _run(self, certain: bool) -> set[str]:
        reached: set[str] = set()
        alive: set[str] = set()
        waiting: dict[str, list[str]] = defaultdict(list)
        todo = list(dict.fromkeys(self._roots))
        shut = (False, None) if certain else (False,)
        while todo:
            function = todo.pop()
            if function in reached:
                continue
            cls = function.rpartition(".")[0]
            if cls in self._conditions.made and cls not in alive:
                waiting[cls].append(function)
                continue
            reached.add(function)
            for callee, sites in self._calls.get(function, ()):
                if callee not in reached and any(self.open(function, guards) not in shut for guards in sites):
                    todo.append(callee)
            for made, guards in self._made.get(function, ()):
                if made not in alive and self.open(function, guards) not in shut:
                    alive.add(made)
                    todo += waiting.pop(made, [])
        return reached


@lru_cache(maxsize=20_000)
def leaves_of(condition: str) -> frozenset[str]:
    """The names whose values a condition asks for, without the objects that they are asked of."""
    node = parsed(condition)
    return frozenset() if node is None else frozenset(_leaves(node))


def _leaves(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call):
        yield f"{getattr(node.func, 'attr', getattr(node.func, 'id', ''))}()"
    else:
        for inner in ast.iter_child_nodes(node):
            yield from _leaves(inner)


def decided(conditions: Conditions) -> frozenset[str]:
    """The names whose value follows from arguments and the model's kind alone."""
    found = {*conditions.arguments, MODEL_KIND}
    while True:
        more = {
            name
            for name, texts in conditions.meanings.items()
            if name not in found and all(leaves_of(text) and leaves_of(text) <= found for text in texts)
        }
        if not more:
            return frozenset(found)
        found |= more
