"""CUDA-graph runners as the rules see them: whose they are, what of them captures, and who replays them."""

from __future__ import annotations

from sgltrace.coupling.facts import annotation_class
from sgltrace.coupling.query import callers, calls_on, targets
from sgltrace.coupling.universe import TARGET, WORKER, Fn, Universe
from sgltrace.index.facts import syntax as s

_WORKERS = ("spec_worker", "draft_worker")


class Graphs:
    """The runners of a tree."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        runners = universe.of_class("cuda_graph")
        self._by_draft: dict[str, bool] = {}
        self.draft = [fn for fn in runners if self.of_draft(fn.cls)]
        self.target = [fn for fn in runners if not self.of_draft(fn.cls)]
        self._captures = frozenset().union(*(self._closure(cls) for cls in sorted({fn.cls or "" for fn in runners})))

    def of_draft(self, cls: str | None) -> bool:
        """Whether the runners of a class are a draft's: a worker of speculation hands itself to them."""
        if cls is None:
            return False
        known = self._by_draft.get(cls)
        if known is None:
            self._by_draft[cls] = False  # stops a circle
            inits = [f for f in self._universe.fns.values() if f.cls == cls and f.name == "__init__"]
            known = any(self._takes_worker(f) for f in inits) or any(
                self.of_draft(base) for base in self._universe.bases.get(cls, ()) if not inits
            )
            self._by_draft[cls] = known
        return known

    def _takes_worker(self, init: Fn) -> bool:
        role = self._universe.role
        if any(role(annotation_class(p.annotation)) in _WORKERS for p in init.params):
            return True
        made = [
            call
            for caller in callers(self._universe, init)
            if role(caller.cls) in _WORKERS
            for call in self._universe.facts[caller.id].calls
            if call.name == init.cls
        ]
        return any(isinstance(a.value, s.Name) and a.value.id == "self" for call in made for a in call.node.args)

    def captures(self, fn: Fn) -> bool:
        """Whether a runner's function runs when it captures: its constructor reaches it through its own methods."""
        return fn.id in self._captures

    def _closure(self, cls: str) -> set[str]:
        lineage = self._universe.lineage(cls)
        own = {f.id for f in self._universe.fns.values() if f.cls in lineage}
        todo = [f for f in sorted(own) if self._universe.fns[f].name == "__init__"]
        closure = set(todo)
        while todo:
            for callee in sorted(self._universe.callees.get(todo.pop(), ())):
                if callee in own and callee not in closure:
                    closure.add(callee)
                    todo.append(callee)
        return closure

    def users(self, runners: list[Fn]) -> list[tuple[Fn, int]]:
        """Functions of the model runner and of the workers that ask a runner and replay, with a line of theirs."""
        ids = {fn.id for fn in runners}
        out: dict[str, tuple[Fn, int]] = {}
        for call in calls_on(self._universe, self._universe.vocabulary.names("cuda_graph", "runners")):
            fn = self._universe.fn(call)
            if fn.id in ids or not fn.per_step or fn.side not in (TARGET, WORKER):
                continue
            if any(t.id in ids for t in targets(self._universe, call)):
                out.setdefault(fn.id, (fn, call.line))
        return [out[k] for k in sorted(out)]

    def used(self, runners: list[Fn]) -> list[Fn]:
        """The runners' own functions that the model runner and the workers call."""
        ids = {fn.id for fn in runners}
        found = {
            t.id: t
            for call in calls_on(self._universe, self._universe.vocabulary.names("cuda_graph", "runners"))
            if self._universe.fn(call).per_step
            for t in targets(self._universe, call)
            if t.id in ids
        }
        return [found[k] for k in sorted(found)]
