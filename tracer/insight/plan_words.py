"""The sentences of a plan: what each edit is called and does, how large it is, how it fails and is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sgltrace.model import CouplingPoint, Met

if TYPE_CHECKING:
    from sgltrace.insight.plan import Place, Supply

FAILURES = ("crash at once", "crash a step later", "leak", "silent", "race", "acceptance", "none")
"""What happens without an item, the first to be seen first; acceptance: fewer drafts are accepted."""

TITLES = {
    "decide": "Decide for each batch whether its step speculates",
    "state": "Leave the draft's state on the scheduler's batch",
    "batch": "Give the target the batch of a plain decode",
    "draft": "Leave a draft state from which the next step can draft",
    "result": "Return a result in the shape that the scheduler takes apart",
    "requests": "Keep the requests' own books",
    "graphs": "Run the off step on graphs of its own, or without any",
}
WHATS = {
    "decide": "In {place}, before it drafts: choose by the batch alone, and alike on every rank.",
    "state": "Change nothing on the scheduler's batch: what is listed asks its draft state in each decode step.",
    "batch": "In {place}, before the target runs: fill in what {plain} sets in a plain step, and take the draft's "
    "state off the batch that the target runs on.",
    "draft": "After the target ran: make the draft's state for each request, for the token that was sampled.",
    "result": "Return from {place} what is listed; the scheduler's own code then does the rest.",
    "requests": "Do for each request what a plain step does and an off step skips.",
    "graphs": "Capture a second set of graphs for a decode of one token a request, and choose by the step; or run "
    "eagerly.",
}
NOTHING = "Write nothing: the path's own code does what is listed, and a second time would be one too many."
"""Where nothing of an edit is left to do."""
LEFT = "Leave the requests' own books to the path's code"
LEAVE = {"untouched": "{field}: {value}", "optional": "{field}: {value}"}

TESTS = {
    "crash at once": "take one step off after one with speculation",
    "crash a step later": "take two steps off, then one on: the result of the first is processed under the second",
    "leak": "run requests to their end with steps off in between, and compare the free slots before and after "
    "(`sgltrace verify`)",
    "silent": "decode greedily with steps off in between, and compare the tokens with a plain server's",
    "race": "switch at every other step under load with overlap, a thousand times, and compare the tokens",
    "acceptance": "compare the accept length of the first step after an off step with that of steps before it",
    "none": "take steps off and on in turn, at batch sizes 1 and 8",
}


def test_of(failure: str, struck: Sequence[Met], edit: str) -> str:
    """How to see that an item is done."""
    text = TESTS[failure]
    if struck:
        first = struck[0]
        text += f"; without the item {first.function.rpartition(':')[2]} line {first.line} raises {first.exception}"
    return f"{text[0].upper()}{text[1:]}."


def size_of(supply: Sequence[Supply], functions: Sequence[Place], points: Sequence[CouplingPoint]) -> tuple[str, str]:
    """S, M or L, and the reason."""
    touched = sorted({place.function for place in functions if place.what.startswith("edit")})
    files = sorted({place.file for place in functions if place.what.startswith("edit")})
    told = f"{_count(len(supply), 'value')} in {_count(len(touched), 'function')} of {_count(len(files), 'file')}"
    early = [point for point in points if point.binding_time.startswith(("process start", "graph capture"))]
    if not supply and not touched:
        return "S", "nothing to write, but not to undo"
    if early:
        return "L", f"{told}; what it changes is fixed when the process starts"
    if len(supply) <= 2 and len(touched) <= 1:
        return "S", told
    if len(supply) <= 9 and len(touched) <= 4:
        return "M", told
    return "L", told


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
