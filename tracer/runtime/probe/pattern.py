"""Which decode steps are taken off: a few words, read by the command and by the server alike."""

from __future__ import annotations

import re

FORMS = ("alternate", "always", "never", "off after N", "off N then on", "N on M off", "random PERCENT", "batch >= N")
_COUNTS = {
    "after": re.compile(r"off after (\d+)"),
    "then": re.compile(r"off (\d+) then on"),
    "turns": re.compile(r"(\d+) on (\d+) off"),
    "random": re.compile(r"random (\d+)%?"),
    "batch": re.compile(r"batch ?>= ?(\d+)"),
}


class Pattern:
    """A pattern. Decode steps count from 1. Raises ``ValueError`` for words it does not know."""

    def __init__(self, text: str) -> None:
        words = " ".join(text.split()) or "never"
        self.kind = words
        self.numbers: list[int] = [0, 0]
        if words in ("alternate", "always", "never"):
            return
        for kind, form in _COUNTS.items():
            found = form.fullmatch(words)
            if found:
                self.kind, self.numbers = kind, [int(n) for n in found.groups()]
                if kind != "turns" or any(self.numbers):
                    return
        raise ValueError(f"{text!r} is no pattern; there are {', '.join(FORMS)}")

    def is_off(self, step: int, batch: int) -> bool:
        """Whether a decode step is taken off. The same on every rank."""
        first = self.numbers[0]
        if self.kind == "turns":
            return (step - 1) % sum(self.numbers) >= first
        return {
            "alternate": step % 2 == 0,
            "always": True,
            "never": False,
            "after": step > first,
            "then": step <= first,
            "random": (step * 2654435761 >> 7) % 100 < first,
            "batch": batch >= first,
        }[self.kind]
