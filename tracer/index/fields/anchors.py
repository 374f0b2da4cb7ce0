"""Which class plays a role whose names the vocabulary does not have: told from what is handed to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgltrace.index.resolution.values import Container, FunctionRef, Instance, Node

if TYPE_CHECKING:
    from sgltrace.index.program.program import Program
    from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo


class Anchors:
    """The roles that follow from the parts found: the scheduler, its workers, and what passes between them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.classes = program.engine.classes
        self.cast = program.cast

    def find(self) -> dict[ClassInfo, str]:
        """Class to role, for every role that can be told; a class has one role."""
        out: dict[ClassInfo, str] = {}

        def take(role: str, found: Iterator[ClassInfo]) -> list[ClassInfo]:
            taken = [cls for cls in found if out.setdefault(cls, role) == role]
            return list(dict.fromkeys(taken))

        take("scheduler", iter([self.cast.scheduler]))
        workers = take("spec_worker", iter(self.cast.worker_classes.values()))
        targets = take("target_worker", self._targets(workers))
        entries = [self.program.functions[i] for i in self.cast.entry_points.values() if i is not None]
        names = {entry.name for entry in entries}
        steps = [f for cls in targets for f in self._methods(cls) if f.name in names]
        launchers = [
            caller
            for (caller, callee, _) in self.program.engine.edges
            if callee in entries and caller.owner in self.classes.mro(self.cast.scheduler)
        ]
        batches = take("scheduler_batch", (c for f in launchers for c in self._params(f)))
        take("worker_batch", (c for f in (*entries, *steps) for c in self._params(f)))
        take("result", (v.cls for f in (*entries, *steps) for v in f.result.values if isinstance(v, Instance)))
        take("request", self._elements(batches))
        take("draft_input", self._states(workers, targets))
        runners = take("model_runner", (c for f in steps for c in self._asked(f)))
        take("forward_batch", (c for r in runners for f in steps for c in self._handed(f, r)))
        return out

    def _targets(self, workers: list[ClassInfo]) -> Iterator[ClassInfo]:
        """What workers are handed when they are made, and run like a worker themselves."""
        entries = {i.rpartition(".")[2] for i in self.cast.entry_points.values() if i is not None}
        for worker in workers:
            for function in self._methods(worker):
                if function.name != "__init__":
                    continue
                for node in function.params.values():
                    for cls in _instances(node):
                        if cls not in workers and any(f.name in entries for f in self._methods(cls)):
                            yield cls

    def _methods(self, cls: ClassInfo) -> list[FunctionInfo]:
        return [
            f
            for base in self.classes.mro(cls)
            for functions in base.functions.values()
            for f in functions
            if isinstance(f.ref, FunctionRef)
        ]

    @staticmethod
    def _params(function: FunctionInfo) -> Iterator[ClassInfo]:
        """The classes of the first argument of a method."""
        params = function.parameters
        node = function.params.get(params[1].name) if len(params) > 1 else None
        if node is not None:
            yield from _instances(node)

    def _elements(self, batches: list[ClassInfo]) -> Iterator[ClassInfo]:
        """What a batch keeps a list of: of several classes the one with the most fields."""
        found = {
            cls
            for batch in batches
            for node in batch.fields.values()
            for value in node.values
            if isinstance(value, Container) and value.kind == "list"
            for cls in _instances(value.whole)
            if cls not in batches
        }
        yield from sorted(found, key=lambda c: (-len(c.fields), c.id))[:1]

    def _states(self, workers: list[ClassInfo], targets: list[ClassInfo]) -> Iterator[ClassInfo]:
        """What speculative workers make in each step."""
        order = {base for worker in workers for base in self.classes.mro(worker)}
        order -= {base for target in targets for base in self.classes.mro(target)}
        steps = self.program.phases.of["any"]["every step"]
        made = {
            cls
            for function, constructed in self.program.engine.constructed.items()
            if function.owner in order and function in steps
            for cls, _ in constructed
            if (cls.fields or cls.annotations) and not cls.is_enum
        }
        yield from sorted(made, key=lambda c: c.id)

    def _asked(self, step: FunctionInfo) -> Iterator[ClassInfo]:
        """The objects of a target worker that its step hands a batch to."""
        assert step.owner is not None
        own = self.classes.mro(step.owner)
        for caller, callee, _ in self.program.engine.edges:
            owner = callee.owner
            if caller is not step or owner is None or owner in own or len(callee.parameters) < 2:
                continue
            if callee.name in ("forward", "sample"):
                yield owner

    def _handed(self, step: FunctionInfo, runner: ClassInfo) -> Iterator[ClassInfo]:
        for caller, callee, _ in self.program.engine.edges:
            if caller is step and callee.owner is runner:
                yield from self._params(callee)


def _instances(node: Node) -> Iterator[ClassInfo]:
    for value in node.values:
        if isinstance(value, Instance) and not value.cls.is_enum:
            yield value.cls
