"""CUDA graphs and states of attention backends that an off step needs in addition to those that are there."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from sgltrace.index.program.vocabulary import roles

if TYPE_CHECKING:
    from sgltrace.insight.plan_facts import Facts

STAGE = "graph buffers"
CAPTURE = "graph capture"
WIDTH = re.compile(r"\bnum_draft_tokens\b")
BYTES = {"int64": 8, "int32": 4, "float32": 4, "bool": 1, "bfloat16": 2, "float16": 2, "int": 8}
BACKEND = "attention"


class GraphState(msgspec.Struct, frozen=True, kw_only=True):
    """A graph, or a state of a backend, by what it is for."""

    runner: str
    has: str
    """What it is captured for today."""
    mode: str
    width: str
    """Tokens of each request."""
    batch_sizes: str
    memory: str
    """Bytes of its buffers, as a formula; the graph's own pool comes on top."""
    function: str
    line: int


def graph_states(facts: Facts, design: str) -> list[GraphState]:
    """The rows of the table; none where the path captures no graph of the target's step."""
    decode = roles().decode_modes[0]
    width = "1"
    mode = decode if design != "C" else "the verify of width 1"
    runners = _target_runners(facts)
    out = []
    for cls, (function, line, has, sizes) in sorted(runners.items()):
        memory = _memory(facts, cls)
        out.append(
            GraphState(runner=cls, has=has, mode=mode, width=width, batch_sizes=sizes, memory=memory,
                       function=function, line=line)
        )  # fmt: skip
    if runners:
        out += _backends(facts, set(runners), mode, width)
    return out


def _target_runners(facts: Facts) -> dict[str, tuple[str, int, str, str]]:
    """The runners whose mode is one of several, of which one is a decode's and another is speculation's."""
    modes = roles().mode_classes
    member = re.compile(rf"(?:{'|'.join(map(re.escape, modes))})\.(\w+)$")
    found: dict[str, tuple[str, int, str, str]] = {}
    for uses in facts.index.fields:
        if uses.role != "graph_runner":
            continue
        named = [(w, m[1]) for w in uses.writes if (m := member.search(w.expression)) is not None]
        kinds = [name for _, name in named]
        if roles().decode_modes[0] not in kinds or len(set(kinds)) < 2:
            continue
        cls = uses.cls.rpartition(":")[2]
        wide = next((w for w, name in named if name != roles().decode_modes[0]), named[0][0])
        known = facts.functions.get(wide.function)
        if known is None or facts.path not in known.paths:
            continue
        has = next(name for w, name in named if w is wide)
        found[cls] = (wide.function, wide.line, has, _sizes(facts, uses.cls))
    return found


def _sizes(facts: Facts, cls: str) -> str:
    """The batch sizes that are captured: the configuration's, else the expression that gives them."""
    for uses in facts.index.fields:
        if uses.cls == cls and uses.role == "graph_runner":
            for write in uses.writes:
                if "batch_sizes" in write.expression:
                    option = _option(facts)
                    return option or f"those of {write.expression} for a width of 1"
    return "as captured today"


def _option(facts: Facts) -> str | None:
    if facts.configured is None:
        return None
    for name in facts.index.conditions.arguments:
        values = facts.configured.configuration.known(name)
        if "graph" in name and values and len(values) == 1 and isinstance(values[0], list) and "bs" in name:
            sizes = values[0]
            return f"{len(sizes)} of 1 to {max(sizes)} ({name})" if sizes else None
    return None


def _memory(facts: Facts, cls: str) -> str:
    """The bytes of a runner's buffers for one token a request, as a formula of the largest batch size."""
    makers = {e.callee for e in facts.index.calls if e.caller.rpartition(":")[2] == f"{cls}.__init__"}
    makers |= {f"{f.id}" for f in facts.index.functions if f.id.rpartition(":")[2].startswith(f"{cls}.")}
    terms: dict[str, int] = defaultdict(int)
    unknown = 0
    for tensor in facts.index.tensors:
        if tensor.path != facts.path or tensor.stage != STAGE or tensor.producer.function not in makers:
            continue
        size = BYTES.get(tensor.dtype or "")
        if tensor.shape is None or size is None or "?" in tensor.shape or "fill" in tensor.shape:
            unknown += 1
            continue
        sides = [side.strip() for side in WIDTH.sub("1", tensor.shape).strip("()").split(",") if side.strip()]
        terms["*".join(_factors(sides)) or "1"] += size * _number(sides)
    if not terms:
        return "not derived"
    parts = [f"{size}*{term}" if term != "1" else str(size) for term, size in sorted(terms.items(), reverse=True)]
    more = f" and {unknown} buffers of unknown size" if unknown else ""
    return " + ".join(parts) + " bytes" + more


def _factors(sides: list[str]) -> list[str]:
    return sorted(part for side in sides for part in side.split("*") if not part.strip().isdigit())


def _number(sides: list[str]) -> int:
    total = 1
    for side in sides:
        for part in side.split("*"):
            if part.strip().isdigit():
                total *= int(part)
    return total


def _backends(facts: Facts, runners: set[str], mode: str, width: str) -> list[GraphState]:
    """The backends that prepare a state when graphs are captured, of those that the configuration runs."""
    found: dict[str, tuple[str, int]] = {}
    captures = {f.id for f in facts.index.functions if CAPTURE in f.phase}
    for edge in facts.index.calls:
        known = facts.functions.get(edge.callee)
        if known is None or edge.caller not in captures or known.component != BACKEND or not edge.virtual:
            continue
        if edge.caller.rpartition(":")[2].partition(".")[0] not in runners:
            continue
        if facts.path not in known.paths or (facts.configured and edge.callee not in facts.configured.reach.may):
            continue
        cls = edge.callee.rpartition(":")[2].rpartition(".")[0]
        if cls and "." not in cls:
            found.setdefault(cls, (edge.callee, known.line))
    made = {cls: _made(facts, function) for cls, (function, _) in found.items()}
    found = {
        cls: place
        for cls, place in found.items()
        if not any(made[other] < made[cls] for other in found)  # a base of the others
    }
    return [
        GraphState(
            runner=cls,
            has="the states of today's graphs",
            mode=mode,
            width=width,
            batch_sizes="as the graphs",
            memory="its own metadata for each captured batch size",
            function=function,
            line=line,
        )
        for cls, (function, line) in sorted(found.items())
    ]


def _made(facts: Facts, function: str) -> set[tuple[str, int]]:
    """Where objects are made of the class of a method."""
    return {(p.function, p.line) for p in facts.index.conditions.made.get(function.rpartition(".")[0], ())}
