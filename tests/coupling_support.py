"""A universe from a few lines of source: what each part of the engine runs is said, not resolved."""

from __future__ import annotations

import textwrap
from collections import defaultdict

from sgltrace.coupling import universe as u
from sgltrace.coupling.discover import derive_predicates, predicates_of
from sgltrace.coupling.facts import Facts, class_defaults
from sgltrace.coupling.regime import last_name
from sgltrace.coupling.rule import Example
from sgltrace.coupling.scan import scan
from sgltrace.coupling.vocabulary import load
from sgltrace.coupling.widths import find_width_fields, width_calls
from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.parse import parse_source

ALGORITHM = """
class SpeculativeAlgorithm(Enum):
    NONE = auto()
    EAGLE = auto()

    def is_none(self):
        return self == SpeculativeAlgorithm.NONE

    def is_eagle(self):
        return self == SpeculativeAlgorithm.EAGLE


class ForwardMode(IntEnum):
    EXTEND = auto()
    DECODE = auto()
    TARGET_VERIFY = auto()
    DRAFT_EXTEND = auto()

    def is_target_verify(self):
        return self == ForwardMode.TARGET_VERIFY
"""

SIDES = {
    "start": u.OUTSIDE,
    "scheduler": u.SCHEDULER,
    "target": u.TARGET,
    "worker": u.WORKER,
    "before": u.WORKER,  # speculation's own code that the scheduler runs
    "disaggregation": u.SCHEDULER,
    "v1": u.WORKER,
    "v2": u.WORKER,
}
FIELD_CLASSES = {"reqs": "Req", "spec_info": "EagleDraftInput"}


def universe(example: Example) -> u.Universe:
    """What the rules ask, of an example's parts."""
    fns: dict[str, u.Fn] = {}
    nodes: dict[str, s.Func] = {}
    classes: dict[str, s.Class] = {}
    for part, text in {"vocabulary": ALGORITHM, **example.parts}.items():
        read = parse_source(textwrap.dedent(text))
        assert read.error is None, (part, read.error)
        for statement in read.body:
            if isinstance(statement, s.Class):
                classes[statement.name] = statement
                for inner in statement.body:
                    if isinstance(inner, s.Func):
                        _add(fns, nodes, part, inner, statement.name)
            elif isinstance(statement, s.Func):
                _add(fns, nodes, part, statement, None)
    vocabulary = load()
    predicates = predicates_of(fns.values(), classes, vocabulary)
    derive_predicates([fns[i] for i in sorted(fns)], predicates)
    bases = {name: tuple(last_name(base) or "" for base in node.bases) for name, node in classes.items()}
    made = u.Universe(vocabulary, predicates, fns, bases, {}, {})
    made.defaults = {name: class_defaults(node) for name, node in classes.items()}
    for function in sorted(fns):
        fn = fns[function]
        made.add(scan(function, fn.params, fn.body(), fn.cls, predicates, None, FIELD_CLASSES))
    made.generators = frozenset(i for i, node in nodes.items() if node.is_generator)
    made.scheduler_classes = tuple(sorted(vocabulary.names("worker_dispatch", "schedulers")))
    made.entries = frozenset(i for i, fn in fns.items() if fn.name == "forward_batch_generation")
    _join(made)
    find_width_fields(made)
    width_calls(made)
    return made


def _add(fns: dict[str, u.Fn], nodes: dict[str, s.Func], part: str, node: s.Func, cls: str | None) -> None:
    name = f"{cls}.{node.name}" if cls else node.name
    body = node.statements()
    module = "managers.scheduler" if part == "scheduler" else part
    fn = u.Fn(f"{part}:{name}", node.name, cls, module, f"{part}.py", node.line, node.params, lambda: body)
    start = part in ("start", "vocabulary") or node.name == "__init__"
    fn.phases = frozenset(["process start" if start else "every step"])
    fn.side = SIDES.get(part, u.OUTSIDE)
    fn.in_worker = part in ("worker", "v1", "v2")
    fn.paths = frozenset([part]) if part in ("v1", "v2") else frozenset(["v1", "v2"])
    fns[fn.id] = fn
    nodes[fn.id] = node


def _join(made: u.Universe) -> None:
    """A call may run every function of its name: of its own class where there is one, or a class's constructor."""
    by_name: dict[str, list[u.Fn]] = defaultdict(list)
    for fn in made.fns.values():
        by_name[fn.cls if fn.name == "__init__" and fn.cls else fn.name].append(fn)
    callers: dict[str, set[str]] = defaultdict(set)
    callees: dict[str, set[str]] = defaultdict(set)
    for facts in made.facts.values():
        for caller, fn in _calls(made, facts, by_name):
            callees[caller].add(fn)
            callers[fn].add(caller)
    made.callers = {k: sorted(v) for k, v in callers.items()}
    made.callees = {k: sorted(v) for k, v in callees.items()}


def _calls(made: u.Universe, facts: Facts, by_name: dict[str, list[u.Fn]]) -> list[tuple[str, str]]:
    out = []
    for call in facts.calls:
        found = by_name.get(call.name, [])
        if call.owner == "self" and any(f.cls == made.fns[facts.function].cls for f in found):
            found = [f for f in found if f.cls == made.fns[facts.function].cls]
        elif call.cls is not None:
            of_class = [f for f in found if call.cls in made.lineage(f.cls) or f.cls in made.lineage(call.cls)]
            found = of_class or found
        out += [(facts.function, fn.id) for fn in found]
    return out
