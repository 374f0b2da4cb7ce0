"""Highlighting of Python source with one regular expression.

A report shows several thousand functions. Pygments takes 100 microseconds and more for a line, this takes about 5; the
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

# A word is taken whole, so that the others are tried at few places. It runs over text whose <, > and & are escaped.
_TOKEN = re.compile(
    r"""
    (?P<word>(?:def[ \t]+|class[ \t]+)?[^\W\d]\w*(?!["'\w]))
  | (?P<c>\#[^\n]*)
  | (?P<s>[rbfutRBFUT]{0,2}(?:
        \"{3}(?:[^\\"]|\\.|"(?!""))*(?:\"{3}|\Z) | '{3}(?:[^\\']|\\.|'(?!''))*(?:'{3}|\Z)
      | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'?))
  | (?P<m>\.?\d(?:[\w.]|(?<=[eE])[+-])*)
  | (?P<nd>^[ \t]*@[\w.]+)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


def highlight(lines: list[str]) -> list[str]:
    """Each of ``lines`` as inert HTML with ``span`` elements that close on their own line."""
    text = html.escape(visible("\n".join(lines)), quote=False)
    return _TOKEN.sub(_mark, text).split("\n")


def plain(lines: list[str]) -> list[str]:
    """Each of ``lines`` as inert HTML without any mark, for what is not Python."""
    return html.escape(visible("\n".join(lines)), quote=False).split("\n")


def _mark(found: re.Match[str]) -> str:
    kind, text = found.lastgroup, found[0]
    if kind == "word":
        if " " in text or "\t" in text:
            keyword, name = text.split(maxsplit=1)
            return f'{_WORDS[keyword]}{text[len(keyword) : -len(name)]}<span class="nf">{name}</span>'
        return _WORDS.get(text, text)
    if "\n" in text:
        text = text.replace("\n", f'</span>\n<span class="{kind}">')
    return f'<span class="{kind}">{text}</span>'
