"""``--config eagle3,topk=1,tp=8,no-dp``: a configuration in a few words."""

from __future__ import annotations

from collections.abc import Mapping

from sgltrace.configuration.model import Value
from sgltrace.errors import UsageError


def parse_words(
    text: str, words: Mapping[str, str], algorithm: str, algorithms: frozenset[str], options: frozenset[str]
) -> dict[str, Value]:
    """The arguments that the words set.

    A word is an algorithm, an option with or without a value (``lora``, ``tp=8``, ``page-size=16``), or ``no-`` and an
    option. ``words`` are short names of options; one that begins with ``!`` is the option's opposite. ``options`` are
    those of the release. Raises UsageError.
    """
    found: dict[str, Value] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, given = word.partition("=")
        negative = name.startswith("no-")
        name = name.removeprefix("no-")
        if name.upper() in algorithms and not equals and not negative:
            found[algorithm] = name.upper()
            continue
        field = words.get(name, name.replace("-", "_"))
        opposite = field.startswith("!")
        field = field.removeprefix("!")
        if field not in options:
            near = ", ".join(sorted([*words, *(a.lower() for a in algorithms)]))
            raise UsageError(f"--config {word}: no such option in this release; an option's name, or one of {near}")
        value: Value = _value(given) if equals else True
        if negative:
            value = 1 if words.get(name, "").endswith("_size") else False
        found[field] = (not value) if opposite and isinstance(value, bool) else value
    return found


def _value(text: str) -> Value:
    words: dict[str, Value] = {"true": True, "false": False, "none": None, "yes": True, "no": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
