"""What every view is made from: the index, its graph, the source, the links and the runs."""

from __future__ import annotations

from functools import cached_property

from sgltrace.insight.observed import Run
from sgltrace.model import PATHS, Field, Function, Index, Place
from sgltrace.reports.graph import CallGraph, module, short
from sgltrace.reports.links import EditorLinks, Links, addresses
from sgltrace.reports.options import ReportOptions
from sgltrace.reports.source import LONGEST, Source, SourceReader

UNNAMED = "other"
COLOURED = (
    "scheduler", "speculative worker", "target worker", "draft worker", "speculative inputs", "memory pool",
    "attention", "model runner", "graph runner", "models", "layers", UNNAMED, "speculative graph runner", "sampling",
    "overlap", "distributed", "disaggregation", "grammar", "metrics", "configuration",
)  # fmt: skip
"""Components in the order of the style sheet's colours: a component has the same colour in every report."""
HUES = 24
"""Colours that the style sheet has. Components that are not named above share what is left."""

SYMBOLS = ("topk", "num_steps", "num_draft_tokens", "page_size")
"""Symbols of formulas that a server's configuration fixes."""
NEAR = 4
"""Lines of context around a marked line."""


class Context:
    """One report's inputs, and the lists that several pages share."""

    def __init__(self, index: Index, source: Source | None, options: ReportOptions) -> None:
        self.index = index
        self.graph = CallGraph(index)
        self.reader = SourceReader(source)
        self.editor = EditorLinks(options.editor, options.source_path)
        self.runs: list[Run] = sorted(options.runs, key=lambda run: run.name)
        self.experiments = options.experiments
        self.paths: list[str] = [path for path in PATHS if index.entry_points.get(path)]
        self.shown = sorted(self._with_page(every=not options.single_file), key=lambda function: function.id)
        self.drawn = self._drawn(every=not options.single_file)
        self.fields = self._fields(every=not options.single_file)
        self.modules = self._modules()
        pages = {function.id: file for file, functions in self.modules.items() for function in functions}
        self.links = Links(index.source, pages, [point.id for point in index.coupling_points])

    def _with_page(self, every: bool) -> list[Function]:
        """``every`` function on a path, and those at an end of something that another page shows.

        Else, for one file of bearable size, the workers and what stands at an end of a coupling point.
        """
        index = self.index
        named = {place.function for point in index.coupling_points for place in (*point.producers, *point.consumers)}
        named.update(worker.function for worker in index.off_steps)
        named.update(filter(None, index.entry_points.values()))
        if every:
            named.update(function.id for function in index.functions if function.paths)
            named.update(place.function for place in self._places())
        return [self.graph.functions[name] for name in named if name in self.graph.functions]

    def _drawn(self, every: bool) -> list[Function]:
        """The functions of the call graph's drawing: ``every`` one on a path, or those with a page and next to one."""
        shown = {function.id for function in self.shown}
        near = shown | {edge.callee for name in shown for edge in self.graph.calls.get(name, [])}
        near |= {edge.caller for name in shown for edge in self.graph.callers.get(name, [])}
        return [function for function in self.index.functions if function.paths and (every or function.id in near)]

    def _fields(self, every: bool) -> list[Field]:
        """``every`` field, or those alone through which a coupling point crosses."""
        crossing = {name for point in self.index.coupling_points for name in point.fields}
        return [
            field
            for field in self.index.fields
            if every or not crossing.isdisjoint({f"{field.cls}.{field.field}", f"{short(field.cls)}.{field.field}"})
        ]

    def _modules(self) -> dict[str, list[Function]]:
        """The functions of each module page by its file, in source order."""
        by_module: dict[str, list[Function]] = {}
        for function in self.shown:
            by_module.setdefault(module(function.id), []).append(function)
        files = dict(addresses("functions", by_module))
        return {
            files[name]: sorted(functions, key=lambda function: (function.line, function.id))
            for name, functions in by_module.items()
        }

    def _places(self) -> list[Place]:
        index = self.index
        places = [p for tensor in index.tensors for p in (tensor.producer, *tensor.consumers)]
        places += [p for row in index.contract for p in (*row.writers, *row.readers)]
        places += [p for off_step in index.off_steps for p in off_step.gates]
        return places

    def texts(self) -> dict[str, list[tuple[int, int]]]:
        """The lines of each file that some page shows: its functions, and what is around an end outside of them."""
        found: dict[str, list[tuple[int, int]]] = {}
        for function in self.shown:
            last = min(function.end_line, function.line + LONGEST - 1)
            found.setdefault(function.file, []).append((function.line, last))
        for point in self.index.coupling_points:
            for place in (*point.producers, *point.consumers):
                if file := self.place_file(place):
                    found.setdefault(file, []).append((max(1, place.line - 2 * NEAR), place.line + 2 * NEAR))
        return found

    def component(self, identifier: str) -> str:
        """The component of a function, ``other`` where the index names none."""
        function = self.graph.functions.get(identifier)
        return component_of(function) if function else UNNAMED

    @cached_property
    def components(self) -> list[str]:
        """Components in the order of a step: by the mean depth of their functions below the event loop."""
        total: dict[str, list[int]] = {}
        depths: dict[str, int] = {}
        for path in reversed(self.paths):
            depths |= self.graph.depth(path)
        for function in self.index.functions:
            if function.id in depths:
                total.setdefault(component_of(function), []).append(depths[function.id])
        names = {component_of(function) for function in self.index.functions} | {UNNAMED}
        far = 1 + max((d for d in depths.values()), default=0)

        def key(name: str) -> tuple[float, str]:
            found = total.get(name)
            return (sum(found) / len(found) if found else far, name)

        return sorted(names, key=key)

    @cached_property
    def hues(self) -> dict[str, int]:
        """The colour number of each component."""
        rest = [name for name in sorted(self.components) if name not in COLOURED]
        found = {name: number for number, name in enumerate(COLOURED)}
        left = HUES - len(COLOURED)
        return found | {name: len(COLOURED) + number % left for number, name in enumerate(rest)}

    @cached_property
    def given(self) -> dict[str, int]:
        """Numbers to evaluate formulas with at first: the configuration of the first run that says one.

        A formula's symbol is an option's name without what comes before it: ``topk`` of ``speculative_eagle_topk``.
        """
        for run in self.runs:
            numbers = {name: value for name, value in run.config.items() if type(value) is int}
            found = {
                symbol: numbers[prefix + symbol]
                for symbol in SYMBOLS
                for prefix in ("", "speculative_", "speculative_eagle_")
                if prefix + symbol in numbers
            }
            if found:
                return found
        return {}

    def place_file(self, place: Place) -> str:
        """The file of a place: its own, or that of its function; empty where neither is known."""
        function = self.graph.functions.get(place.function)
        return place.file or (function.file if function else "")


def component_of(function: Function) -> str:
    """A function's component, ``other`` where the index names none."""
    return function.component or UNNAMED
