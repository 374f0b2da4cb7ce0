"""What the analysis does not know: calls without a target, files not read, shapes not derived."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

from sgltrace.model import SkippedFile, Unresolved
from sgltrace.reports.context import Context
from sgltrace.reports.graph import module
from sgltrace.reports.views.common import FunctionLink, function_link

EXAMPLES = 12


@dataclass(frozen=True)
class Example:
    """One unresolved call."""

    function: FunctionLink
    line: int
    expression: str


@dataclass(frozen=True)
class Reason:
    """Why calls are unresolved: how many, in which functions the most, and some of them."""

    why: str
    on_path: int
    elsewhere: int
    worst: list[tuple[FunctionLink, int]]
    examples: list[Example]


@dataclass(frozen=True)
class UnknownsPage:
    """The page of unknowns."""

    reasons: list[Reason]
    modules: list[tuple[str, int, int]]
    """Module, unresolved calls of its functions on a path, all calls of these that are known."""
    on_path: int
    total: int
    skipped: list[SkippedFile]
    notes: list[str]


def unknowns_page(context: Context) -> UnknownsPage:
    """Counts by reason and module; every call itself stands on its function's page."""
    index, functions = context.index, context.graph.functions
    by_reason: dict[str, list[Unresolved]] = defaultdict(list)
    modules: Counter[str] = Counter()
    for call in index.unresolved:
        by_reason[reason_without_names(call)].append(call)
        if _on_path(context, call):
            modules[module(call.caller)] += 1
    known = Counter(
        module(edge.caller) for edge in index.calls if edge.caller in functions and functions[edge.caller].paths
    )
    reasons = [_reason(context, why, calls) for why, calls in by_reason.items()]
    return UnknownsPage(
        reasons=sorted(reasons, key=lambda reason: (-reason.on_path, -reason.elsewhere, reason.why)),
        modules=sorted(
            ((name, count, known[name]) for name, count in modules.items()), key=lambda row: (-row[1], row[0])
        ),
        on_path=sum(modules.values()),
        total=len(index.unresolved),
        skipped=index.skipped,
        notes=index.notes,
    )


def reason_without_names(call: Unresolved) -> str:
    """Why, with ``‹name›`` for what the call itself names, so that like reasons are counted together."""
    parts = set(re.findall(r"\w+", call.expression))
    words = ["‹name›" if parts & set(re.findall(r"\w+", word)) else word for word in call.why.split()]
    return re.sub(r"‹name›( ‹name›)+", "‹name›", " ".join(words))


def _on_path(context: Context, call: Unresolved) -> bool:
    function = context.graph.functions.get(call.caller)
    return function is not None and bool(function.paths)


def _reason(context: Context, why: str, calls: list[Unresolved]) -> Reason:
    shown = [call for call in calls if _on_path(context, call)]
    worst = Counter(call.caller for call in shown).most_common()
    worst.sort(key=lambda pair: (-pair[1], pair[0]))
    return Reason(
        why=why,
        on_path=len(shown),
        elsewhere=len(calls) - len(shown),
        worst=[(function_link(context, name), count) for name, count in worst[:EXAMPLES]],
        examples=[
            Example(function_link(context, call.caller, call.line), call.line, call.expression)
            for call in shown[:EXAMPLES]
        ],
    )
