"""The call graph page's data: places of functions, and edges by number, small enough to lie in the page."""

from __future__ import annotations

from typing import Any

from sgltrace.model import PATHS, PHASES
from sgltrace.reports.context import Context, component_of
from sgltrace.reports.graph import module
from sgltrace.reports.layout import layout
from sgltrace.reports.links import anchor


def graph_data(context: Context) -> dict[str, Any]:
    """The drawing of the functions on a path. Functions, modules, components and kinds are numbers in the edges.

    ``functions``: [name, module number, row, phase bits, path bits, file number or -1]; ``edges``: caller, callee,
    kind number, flags (1 virtual, 2 ran in a run), one after another in one list.
    """
    grouped: dict[str, dict[str, list[str]]] = {name: {} for name in context.components}
    for function in sorted(context.drawn, key=lambda function: (module(function.id), function.line, function.id)):
        by_module = grouped[component_of(function)]
        by_module.setdefault(module(function.id), []).append(function.id)
    placed = layout({name: by_module for name, by_module in grouped.items() if by_module})
    numbers: dict[str, int] = {}
    functions: list[list[Any]] = []
    files = {file: number for number, file in enumerate(context.modules)}
    file_of = {function.id: files[file] for file, functions in context.modules.items() for function in functions}
    for number, card in enumerate(placed.cards):
        for row, identifier in enumerate(card.functions):
            function = context.graph.functions[identifier]
            numbers[identifier] = len(functions)
            phases = sum(1 << bit for bit, phase in enumerate(PHASES) if phase in function.phase)
            paths = sum(1 << bit for bit, path in enumerate(PATHS) if path in function.paths)
            functions.append([anchor(identifier), number, row, phases, paths, file_of.get(identifier, -1)])
    kinds = sorted({edge.kind for edge in context.index.calls})
    kind_number = {kind: number for number, kind in enumerate(kinds)}
    ran = {(caller, callee) for run in context.runs for caller, callee, _ in run.edges}
    edges: list[int] = []
    for edge in context.index.calls:
        if edge.caller in numbers and edge.callee in numbers:
            flags = int(edge.virtual) + 2 * ((edge.caller, edge.callee) in ran)
            edges += [numbers[edge.caller], numbers[edge.callee], kind_number[edge.kind], flags]
    names = [block.component for block in placed.blocks]
    return {
        "size": [round(placed.width, 2), round(placed.height, 2)],
        "components": [
            [b.component, context.hues[b.component], *(round(v, 2) for v in (b.x, b.y, b.width, b.height))]
            for b in placed.blocks
        ],
        "modules": [
            [card.module, names.index(card.component), round(card.x, 2), round(card.y, 2), round(card.height, 2)]
            for card in placed.cards
        ],
        "functions": functions,
        "files": list(files),
        "edges": edges,
        "kinds": kinds,
        "phases": list(PHASES),
        "paths": list(PATHS),
        "ran": bool(ran),
        "entries": [
            numbers[name] for path in reversed(context.paths) if (name := context.index.entry_points[path]) in numbers
        ],
    }
