"""From a source tree to the index: one place that wires the parts together."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sgltrace.files import user_cache_dir
from sgltrace.index import syntax as s
from sgltrace.index.engine import Engine, Site
from sgltrace.index.entities import FunctionInfo
from sgltrace.index.facts import Facts
from sgltrace.index.program import Program, line_of
from sgltrace.index.text import text
from sgltrace.model import CallEdge, CallSite, Function, Index, SkippedFile, Unresolved
from sgltrace.progress import Progress
from sgltrace.sources import SourceTree


@dataclass(frozen=True)
class IndexOptions:
    """How much to read, and where facts are kept. ``whole``: prefixes of modules to read besides what is needed."""

    whole: tuple[str, ...] = ()
    cache_dir: Path | None = field(default_factory=user_cache_dir)
    jobs: int | None = None


def analyse(tree: SourceTree, options: IndexOptions, progress: Progress) -> Program:
    """Resolve the program from its entry points. Raises InputError where the tree has no speculative worker."""
    with Facts(tree, options.cache_dir, options.jobs) as facts, _no_collection():
        progress.stage("Resolving")
        engine = Engine(tree, facts)
        module = engine.modules.load(f"{tree.package}.srt.managers.scheduler")
        assert module is not None
        engine.entry(module.functions["run_scheduler_process"])
        engine.run()
    return Program(engine)


def build(tree: SourceTree, options: IndexOptions, progress: Progress) -> Index:
    """The index of a tree: entry points, functions with phases and paths, calls, and what was not resolved."""
    return to_index(analyse(tree, options, progress))


def to_index(program: Program) -> Index:
    """The index of a resolved program."""
    engine = program.engine
    return Index(
        source=engine.tree.source,
        entry_points={"v1": None, "v2": None},
        functions=[_function(f) for _, f in sorted(program.functions.items())],
        calls=_calls(program),
        unresolved=_unresolved(program),
        skipped=[SkippedFile(path, why) for path, why in sorted(engine.modules.skipped.items())],
    )


def _function(function: FunctionInfo) -> Function:
    return Function(
        id=function.id,
        file=function.module.path,
        line=function.line,
        end_line=function.end_line,
        phase=[],
        paths=[],
    )


_CONFIDENCE = {"callback": 0.6, "attr_method": 0.9, "property": 0.9, "special_method": 0.8}


def _calls(program: Program) -> list[CallEdge]:
    merged: dict[tuple[str, str, str], dict[int, CallSite]] = defaultdict(dict)
    fixed: dict[tuple[str, str, str], bool] = defaultdict(bool)
    for (caller, callee, kind), uses in program.engine.edges.items():
        key = (caller.id, callee.id, kind)
        guards = program.guards(caller)
        for use in uses:
            fixed[key] |= not use.dispatch or len(use.targets) == 1
            for expression in use.expressions:
                line = line_of(expression)
                merged[key].setdefault(line, CallSite(line, [c.guard for c in guards.at(expression)]))
    out = []
    for key, sites in sorted(merged.items()):
        caller_id, callee_id, kind = key
        virtual = not fixed[key]
        confidence = 0.5 if virtual else _CONFIDENCE.get(kind, 1.0)
        out.append(
            CallEdge(
                caller=caller_id,
                callee=callee_id,
                kind=kind,
                confidence=confidence,
                virtual=virtual,
                sites=[site for _, site in sorted(sites.items())],
            )
        )
    return out


def _unresolved(program: Program) -> list[Unresolved]:
    out = set()
    for site in program.engine.sites:
        expression = site.expressions[0]
        if site.callee.values or site.callee.fixed or not isinstance(expression, s.Call):
            continue
        out.add((site.function.id, expression.line, text(expression.func), _why(site)))
    return [Unresolved(caller=c, line=n, expression=e, why=w) for c, n, e, w in sorted(out)]


def _why(site: Site) -> str:
    expression = site.expressions[0]
    if isinstance(expression, s.Call) and isinstance(expression.func, s.Attr):
        base = expression.func.value
        node = site.function.nodes.get(id(base))
        if node is not None and node.values:
            return f"no attribute {expression.func.attr} on what {text(base)} is known to be"
        return f"nothing is known of {text(base)}"
    return "nothing is known of the callee"


@contextmanager
def _no_collection() -> Iterator[None]:
    """The analysis makes millions of small objects and drops none: searching them for cycles is wasted."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
