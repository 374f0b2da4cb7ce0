"""Highlighting of Python source: split by strings and comments, then the code between them by words.

A report shows several thousand functions. Pygments takes 70 microseconds and more for a line, this takes about 3; the
classes are Pygments' short names, and the tests hold the two against each other.
"""

from __future__ import annotations

import html
import re

from sgltrace.reports.text import visible

_KEYWORDS = (
    "and as assert async await break class continue def del elif else except finally for from global if import in is "
    "lambda nonlocal not or pass raise return try while with yield"
)
_WORDS = {word: f'<span class="k">{word}</span>' for word in _KEYWORDS.split()}
_WORDS |= {word: f'<span class="kc">{word}</span>' for word in ("None", "True", "False")}
_WORDS |= {word: f'<span class="bp">{word}</span>' for word in ("self", "cls")}

# These run over text whose <, > and & are escaped; every other piece of a split is what the group holds.
_LITERAL = re.compile(
    r"""
    ( \"{3}(?:[^\\"]|\\.|"(?!""))*(?:\"{3}|\Z) | '{3}(?:[^\\']|\\.|'(?!''))*(?:'{3}|\Z)
    | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'? | \#[^\n]* )
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"([A-Za-z0-9_]+)")
_PREFIXES = frozenset("rbfutRBFUT")
_PREFIX = re.compile(r"\b[rbfutRBFUT]{1,2}\Z")
_DECORATOR = re.compile(r"(?<=\n)[ \t]*@[\w.]+")


def highlight(lines: list[str]) -> list[str]:
    """Each of ``lines`` as inert HTML with ``span`` elements that close on their own line."""
    text = html.escape(visible("\n".join(["", *lines])), quote=False)
    pieces = _LITERAL.split(text)
    for at in range(1, len(pieces), 2):
        prefix = _PREFIX.search(pieces[at - 1]) if pieces[at - 1][-1:] in _PREFIXES else None
        if prefix and pieces[at][0] != "#":
            pieces[at - 1] = pieces[at - 1][: prefix.start()]
            pieces[at] = prefix[0] + pieces[at]
        pieces[at] = _literal(pieces[at])
    for at in range(0, len(pieces), 2):
        pieces[at] = _code(pieces[at])
    return "".join(pieces).split("\n")[1:]


def plain(lines: list[str]) -> list[str]:
    """Each of ``lines`` as inert HTML without any mark, for what is not Python."""
    return html.escape(visible("\n".join(lines)), quote=False).split("\n")


def _literal(text: str) -> str:
    kind = "c" if text[0] == "#" else "s"
    if "\n" in text:
        text = text.replace("\n", f'</span>\n<span class="{kind}">')
    return f'<span class="{kind}">{text}</span>'


def _code(text: str) -> str:
    parts = _WORD.split(text)
    for at in range(1, len(parts), 2):
        word = parts[at]
        marked = _WORDS.get(word)
        if marked is not None:
            parts[at] = marked
            if word in ("def", "class") and parts[at + 1].isspace() and at + 2 < len(parts):
                parts[at + 2] = f'<span class="nf">{parts[at + 2]}</span>'
        elif "0" <= word[:1] <= "9":
            _number(parts, at)
    made = "".join(parts)
    return _DECORATOR.sub(r'<span class="nd">\g<0></span>', made) if "@" in text else made


def _number(parts: list[str], at: int) -> None:
    """Marks a number, which a point or the sign of its exponent divides into several words."""
    word = parts[at]
    while at + 2 < len(parts) and (
        (parts[at + 1] == "." and parts[at + 2][:1].isdigit())
        or (parts[at + 1] in ("+", "-") and word[-1] in "eE" and not word.startswith(("0x", "0X")))
    ):
        word += parts[at + 1] + parts[at + 2]
        parts[at] = parts[at + 1] = ""
        at += 2
    parts[at] = f'<span class="m">{word}</span>'
