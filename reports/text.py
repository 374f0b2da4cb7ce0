"""Making text of an input safe and readable: characters that hide or reorder, file names, plurals."""

from __future__ import annotations

import hashlib
import re

from markupsafe import Markup

ROOT = "#/"
"""What stands before the name of a page in an address: all pages are shown by one file."""

# Control characters but tab and newline, the soft hyphen, everything that has no width or turns the direction of
# writing, line separators, tags, and surrogates that UTF-8 cannot write.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """``text`` with every hidden character written out, as in ``⟦U+202E⟧``."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda found: f"⟦U+{ord(found[0]):04X}⟧", text)


def finalize(value: object) -> object:
    """What Jinja2 does with every value before it escapes it; markup made by our own templates passes."""
    kind = type(value)
    if kind is Markup or kind is int:
        return value
    if value is None:
        return ""
    return visible(value) if isinstance(value, str) else value


def file_name(text: str, limit: int = 96) -> str:
    """A file name for ``text`` on any system; what had to be changed or cut gets a mark of its hash."""
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip(".-")[:limit]
    if safe == text:
        return safe
    return f"{safe}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


_WORDS = {
    "alloc": "allocation", "attn": "attention", "comm": "communication", "cuda": "CUDA", "dp": "DP", "ids": "ids",
    "kv": "KV", "lens": "length", "logprob": "log-probabilities", "mem": "memory", "seq": "sequence",
    "tbo": "two-batch overlap", "tp": "TP",
}  # fmt: skip
"""What the names of kinds shorten."""


def spelled(kind: str) -> str:
    """A kind of coupling point as a reader says it: ``KV allocation`` of ``kv_alloc``."""
    return " ".join(_WORDS.get(word, word) for word in kind.split("_"))


_EVIDENCE = {
    "confirmed": "shape agrees with the formula",
    "refuted": "shape differs from the formula",
}


def evidence(verdict: str) -> str:
    """A verdict as a reader says it: that a shape agrees with a formula demonstrates no blocker."""
    return _EVIDENCE.get(verdict, verdict)


_OF_MANY = {
    "confirmed": "with shapes that agree with a formula",
    "refuted": "with shapes that differ from one",
    "seen, not judged": "seen and not judged",
}


def evidence_of_many(verdict: str) -> str:
    """What a verdict says of a number of coupling points, put behind the number."""
    return _OF_MANY.get(verdict, verdict)


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 call``, ``2 calls``, ``1,200 calls``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
