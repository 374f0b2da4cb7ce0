"""The part of the vocabulary that says what the words of conditions ask of a configuration."""

from __future__ import annotations

import functools
import sys
from importlib.resources import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@functools.cache
def condition_words() -> dict[str, tuple[str, ...]]:
    """Section ``[conditions]``: expressions of which one must hold; none where requests decide."""
    table = tomllib.loads((files("sgltrace") / "vocabulary.toml").read_text(encoding="utf-8"))
    return {words: tuple(expressions) for words, expressions in table["conditions"].items()}
