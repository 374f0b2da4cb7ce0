"""Scores tokens on a server without speculation: how far each one's logit is below the best, with the tokens before it
given. A right token of another server is at most a rounding error below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .objects import fields, is_tensor


class Scorer:
    """The tokens to score, by prompt, and how far each request has come."""

    def __init__(self, plan: dict[str, Any], note: Callable[[dict[str, Any]], None]) -> None:
        self.learned: dict[str, Any] = plan.get("learned", {})
        self.note = note
        self.wanted = [{tuple(r["prompt"]): r["output"] for r in part} for part in plan.get("score", [])]
        self.at: dict[int, int] = {}
        self.seen: dict[tuple[int, ...], int] = {}
        self.passes: dict[int, int] = {}
        self.held: list[Any] = []

    def score(self, batch: Any, result: Any) -> None:
        """Score the tokens of one step, and put the ones to be scored in their place."""
        tokens: Any = getattr(result, self.learned["tokens"], None)
        if not self.wanted or not is_tensor(tokens):
            return
        logits = self._logits(result, len(tokens))
        changed = tokens.tolist()
        for i, req in enumerate(getattr(batch, self.learned["requests"])):
            at = self.at.get(id(req), 0)
            prompt = tuple(getattr(req, self.learned["prompt"]))
            if not at:
                self.held.append(req)  # so that no other request gets its id
                self.passes[id(req)] = self.seen.get(prompt, 0)
                self.seen[prompt] = self.passes[id(req)] + 1
            self.at[id(req)] = at + 1
            number = self.passes[id(req)]
            wanted = self.wanted[number].get(prompt, []) if number < len(self.wanted) else []
            if at >= len(wanted):
                continue
            changed[i] = wanted[at]
            if logits is not None:
                gap = float(logits[i].max()) - float(logits[i, wanted[at]])
                self.note({"gap": gap, "pass": number, "at": at})
        tokens.copy_(tokens.new_tensor(changed))

    @staticmethod
    def _logits(result: Any, rows: int) -> Any:
        """The logits of a step: in an object of the result, the widest tensor with a row for each token."""
        found = [
            tensor
            for part in fields(result).values()
            for tensor in fields(part).values()
            if is_tensor(tensor) and tensor.is_floating_point() and tensor.dim() == 2 and len(tensor) == rows
        ]
        return max(found, key=lambda tensor: int(tensor.shape[1]), default=None)
