"""From what a rung left behind to what struck, where, and which bridge and point it speaks of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sgltrace.model import Index
from sgltrace.whatif import model as m
from sgltrace.whatif.bridges import Bridge
from sgltrace.whatif.rung import Outcome, Strike

GAP = 1.0
"""A logit so far below the best is no rounding error, whatever the noise."""
NOISE = 4.0
"""So many times the gap of a server that takes no step off is none, either."""
LOST = 0.85
"""Acceptance counts as lost below this part of what it was."""
LEAK_WORDS = ("leak",)
HELPS = {
    "wrong tokens": ("unset", "newest", "slots", "advance", "eager", "state newest", "state lengths", "tokens"),
    "lost acceptance": ("extend", "state carried"),
}
"""Kinds of bridges that can help with what has no traceback, in the order to try them."""


def compare(outcome: Outcome, reference: Mapping[str, Sequence[int]]) -> list[dict[str, object]]:
    """The requests whose tokens are not those of a plain server, to be scored: prompt and output."""
    out: list[dict[str, object]] = []
    for prompt, tokens in outcome.requests.items():
        plain = reference.get(prompt, [])
        length = min(len(plain), len(tokens))
        if list(tokens[:length]) != list(plain[:length]):
            out.append({"prompt": [int(t) for t in prompt.split(",")], "output": list(tokens)})
    return out


def score(outcome: Outcome, gaps: Sequence[float], noise: float) -> None:
    """Count the tokens that a plain server would not have chosen."""
    bound = max(GAP, NOISE * noise)
    outcome.wrong = sum(gap > bound for gap in gaps)
    outcome.scored = sum(len(tokens) for tokens in outcome.requests.values())
    outcome.worst_gap = max(gaps, default=0.0)


def judge(outcome: Outcome, expected: int, accepted: float | None) -> Strike | None:
    """What was wrong with a rung, the worst first. ``expected``: requests that end; ``accepted``: tokens an on step."""
    if outcome.strike is not None:
        return outcome.strike
    if outcome.wrong:
        message = f"{outcome.wrong} of {outcome.scored} tokens, up to {outcome.worst_gap:.2f} below the best logit"
        return Strike(exception="wrong tokens", message=message, when="at the end")
    if len(outcome.requests) < expected:
        message = f"{len(outcome.requests)} of {expected} requests came to a token"
        return Strike(exception="lost requests", message=message, when="at the end")
    after = outcome.accept.get("after")
    if after is not None and accepted is not None and after < 1 + (accepted - 1) * LOST:
        message = f"{accepted:.2f} tokens a step before, {after:.2f} after off steps"
        return Strike(exception="lost acceptance", message=message, when="at the end")
    return None


def verdict_of(strike: Strike | None) -> tuple[str, str]:
    """The outcome that a strike is, and its detail."""
    if strike is None:
        return m.NO_EFFECT, "on and off steps mixed without it"
    named = {"wrong tokens": m.WRONG, "lost acceptance": m.ACCEPTANCE, "hang": m.HANGS, "lost requests": m.HANGS}
    if strike.exception in named:
        return named[strike.exception], strike.message
    first = strike.message.strip().splitlines()[0] if strike.message.strip() else ""
    detail = f"{strike.exception}: {first}" if first else strike.exception
    if any(word in strike.message.lower() for word in LEAK_WORDS):
        return m.LEAKS, detail
    return (m.CRASH_NOW if strike.when in ("at launch", "in this step") else m.CRASH_LATER), detail


class Places:
    """The functions of an index by their files and lines."""

    def __init__(self, index: Index) -> None:
        self._by_file: dict[str, list[tuple[int, int, str]]] = {}
        for f in index.functions:
            self._by_file.setdefault(f.file, []).append((f.line, f.end_line, f.id))
        self.index = index

    def file(self, path: str) -> str | None:
        """The file of the index that a path on the server's machine is."""
        parts = path.split("/")
        for at in range(len(parts)):
            if "/".join(parts[at:]) in self._by_file:
                return "/".join(parts[at:])
        return None

    def function(self, path: str, line: int) -> str | None:
        """The id of the innermost function at a line."""
        file = self.file(path)
        inside = [
            (end - start, ident) for start, end, ident in self._by_file.get(file or "", ()) if start <= line <= end
        ]
        return min(inside)[1] if inside else None

    def strike(self, strike: Strike, point: str | None, bridge: str | None) -> m.StrikeAt:
        """A strike for a reader: files as in the index."""
        shown = [f"{file}:{line} {name}" for p, line, name in strike.frames if (file := self.file(p)) is not None]
        return m.StrikeAt(
            cls=strike.exception,
            message=strike.message.strip()[:400],
            function=self.function(strike.file, strike.line) if strike.file and strike.line else None,
            file=self.file(strike.file) if strike.file else None,
            line=strike.line,
            step=strike.step,
            when=strike.when,
            frames=shown[-8:],
            point=point,
            bridge=bridge,
        )

    def blame(self, strike: Strike, bridges: Sequence[Bridge]) -> Bridge | None:
        """The bridge to try first: one whose field is read at a line of the traceback, or in a function of it; else the
        first in the order of a step. Whether it was the right one, the next rung tells."""
        frames = [(self.function(path, line), line) for path, line, _ in reversed(strike.frames)]
        for frame in frames:
            for bridge in bridges:
                if frame in bridge.places:
                    return bridge
        if frames and strike.when != "at launch":
            inner = frames[0][0]
            for bridge in bridges:
                if any(function == inner for function, _ in bridge.places):
                    return bridge
        kinds = HELPS.get(strike.exception)
        if kinds is None:
            return next((b for b in bridges if b.wanted), None)
        return min((b for b in bridges if b.kind in kinds), key=lambda b: kinds.index(b.kind), default=None)

    def distance(self, strike: Strike | None, bridge: Bridge) -> int:
        """How many lines after a strike its function reads what a bridge is for; a great number where it does not."""
        path, line, _ = strike.frames[-1] if strike is not None and strike.frames else ("", 0, "")
        function = self.function(path, line)
        lines = [at - line for place, at in bridge.places if place == function and at >= line]
        return min(lines, default=1 << 30)

    def point(self, strike: Strike, bridge: Bridge) -> str | None:
        """Of the points that a bridge answers, the one that names a place of the traceback; else the first."""
        frames = {(self.function(path, line), line) for path, line, _ in strike.frames}
        functions = {f for f, _ in frames}
        points = [p for p in self.index.coupling_points if p.id in bridge.points]
        for exact in (True, False):
            for point in points:
                for place in (*point.consumers, *point.producers):
                    if (place.function, place.line) in frames if exact else place.function in functions:
                        return point.id
        return bridge.points[0] if bridge.points else None


def same(left: Strike | None, right: Strike | None) -> bool:
    """Whether two rungs were struck by the same."""
    if left is None or right is None:
        return left is right
    return (left.exception, left.file, left.line) == (right.exception, right.file, right.line)
