"""The verdict: whether speculative decoding can be switched off per batch, when, and what turns it on."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from sgltrace.insight.answer import NO, NOT_KNOWN, SLOWER, YES, Answer
from sgltrace.model import OffStep, Place
from sgltrace.reports.context import Context
from sgltrace.reports.views.common import FunctionLink, PlaceLink, function_link, place_link

REFUSED = "refused where "
_WHAT = re.compile(r"runs without draft steps where (.*?)(?:; more depends at line|$)")
_MORE = re.compile(r"; more depends at line (\d+) on (.*?)(?=; more depends at line|$)")
_ATTRIBUTE = re.compile(r"\b([A-Za-z_]\w*)\.\w+(?!\w*\()")
FARTHEST = 6
"""Calls above a gate in which its switch is looked for."""


@dataclass(frozen=True)
class Gate:
    """A condition under which the release refuses its own off step, and the reason that it gives."""

    place: PlaceLink
    condition: str
    reason: str


@dataclass(frozen=True)
class Switch:
    """The server argument that asks for an off step, and where it is asked for."""

    argument: str
    place: PlaceLink

    @property
    def option(self) -> str:
        """As it is written on the command line."""
        return "--" + self.argument.replace("_", "-")


@dataclass(frozen=True)
class Own:
    """An off step that the release has itself."""

    path: str
    condition: str
    """Where the release runs a step without drafts; empty where its words are not known here."""
    function: FunctionLink
    line: int
    more: list[tuple[str, int]]
    """Further conditions on which part of that step depends, with their lines."""
    switch: Switch | None
    gates: list[Gate]


@dataclass(frozen=True)
class Verdict:
    """One word, what colours it, and what it rests on."""

    word: str
    tone: str
    """``yes``, ``slower``, ``no`` or ``unknown``."""
    nearest: list[Answer]
    """On each path the design with the fewest hard blockers, and of those with the fewest soft ones."""
    own: list[Own]


def verdict(context: Context, answers: list[Answer]) -> Verdict:
    """The verdict from the answers for each path and design, and from the off steps that the release has itself."""
    by_path = {answer.path: [a for a in answers if a.path == answer.path] for answer in answers}
    nearest = [min(found, key=lambda a: (a.hard, a.unknown, a.soft, a.design)) for found in by_path.values()]
    own = [_own(context, off_step) for off_step in context.index.off_steps]
    return Verdict(*_word(context, nearest, own), nearest, own)


def _word(context: Context, nearest: list[Answer], own: list[Own]) -> tuple[str, str]:
    index = context.index
    best = {answer.verdict for answer in nearest}
    if own:
        return ("Yes, under conditions" if any(step.gates for step in own) else "Yes"), "yes"
    if not index.coupling_points:
        return "Not derived", "unknown"
    if YES in best:
        return "Yes", "yes"
    if SLOWER in best:
        return "Yes, at a cost", "slower"
    if NOT_KNOWN in best or (not nearest and index.unknown_paths):
        return "Unknown", "unknown"
    if NO in best:
        return "Not as the code is", "no"
    return "No speculative worker found", "unknown"


def _own(context: Context, step: OffStep) -> Own:
    return Own(
        path=step.path,
        condition=found[1] if (found := _WHAT.match(step.what)) else "",
        function=function_link(context, step.function, step.line),
        line=step.line,
        more=[(text, int(line)) for line, text in _MORE.findall(step.what)],
        switch=_switch(context, step.gates),
        gates=[_gate(context, gate) for gate in step.gates],
    )


def _gate(context: Context, gate: Place) -> Gate:
    condition, _, reason = gate.what.removeprefix(REFUSED).partition(": ")
    return Gate(place_link(context, gate), condition, reason)


def _switch(context: Context, gates: list[Place]) -> Switch | None:
    """The argument that the nearest call above the gates asks for before it asks them.

    An argument is an attribute of what the gates' own conditions ask.
    """
    asked = {name for gate in gates for name in _ATTRIBUTE.findall(_gate(context, gate).condition)}
    queue = deque((gate, 0) for gate in dict.fromkeys(gate.function for gate in gates))
    seen = {gate.function for gate in gates}
    while queue:
        function, depth = queue.popleft()
        for edge in context.graph.callers.get(function, []):
            for site in edge.sites:
                for guard in reversed(site.guards):
                    holder, _, name = guard.text.rpartition(".")
                    if guard.holds and holder in asked and name.isidentifier():
                        return Switch(name, place_link(context, Place(function=edge.caller, line=guard.line, what="")))
            if edge.caller not in seen and depth < FARTHEST:
                seen.add(edge.caller)
                queue.append((edge.caller, depth + 1))
    return None
