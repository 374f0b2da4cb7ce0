"""Selectors say what of a call is recorded: ``arg.batch``, ``self.bs``, ``return.next_token_ids``,
``return[0]``, ``arg.batch.reqs[*].kv_allocated_len``, and ``args`` for every parameter.

A selector is compiled once, for one function's parameters.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from .describe import UNREAD, read_attribute

_PART = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+|\*)\]")
_ROOT = re.compile(r"(self|return|arg\.[A-Za-z_]\w*)")
MAX_MAPPED = 1024  # elements that ``[*]`` visits


class SelectorError(ValueError):
    """A selector that cannot be read or does not fit the function."""


SELF_OR_ARGUMENT, RETURN = 1, 2
EVERY = "[*]"
STEP = "step:"


class Selector:
    """Reads one value of a call: from where (``root``, an argument's ``position`` and ``name``), then along ``parts``.

    A part is an attribute's name, an index, or ``EVERY``. With ``is_step`` the step that produced the value is meant.
    """

    __slots__ = ("is_step", "name", "parts", "position", "root")

    def __init__(
        self,
        root: int,
        position: int = 0,
        name: str | None = None,
        parts: tuple[str | int, ...] = (),
        is_step: bool = False,
    ) -> None:
        self.root = root
        self.position = position
        self.name = name
        self.parts = parts
        self.is_step = is_step

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Any:
        """The value; ``UNREAD`` where there is none."""
        if self.root == RETURN:
            value = result
        elif self.position < len(args):
            value = args[self.position]
        else:
            value = UNREAD if self.name is None else kwargs.get(self.name, UNREAD)
        return _walk(value, self.parts) if self.parts else value


def compile_selector(text: str, parameters: Sequence[str]) -> Selector:
    """The reader for ``text``; raises ``SelectorError`` if it names no parameter of the function."""
    if text.startswith(STEP):
        selector = compile_selector(text.removeprefix(STEP), parameters)
        selector.is_step = True
        return selector
    root = _ROOT.match(text)
    if root is None:
        raise SelectorError(f"'{text}' does not begin with self, arg.NAME or return")
    parts: list[str | int] = []
    at = root.end()
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise SelectorError(f"'{text}' cannot be read from '{text[at:]}' on")
        name, index = part.groups()
        parts.append(sys.intern(name) if name is not None else EVERY if index == "*" else int(index))
        at = part.end()
    if root.group() == "return":
        return Selector(RETURN, parts=tuple(parts))
    if root.group() == "self":
        return Selector(SELF_OR_ARGUMENT, parts=tuple(parts))
    argument = root.group().removeprefix("arg.")
    if argument not in parameters:
        raise SelectorError(f"no parameter '{argument}', there are {', '.join(parameters) or 'none'}")
    return Selector(SELF_OR_ARGUMENT, list(parameters).index(argument), argument, tuple(parts))


def _walk(value: Any, parts: tuple[str | int, ...]) -> Any:
    for at, part in enumerate(parts):
        if value is None or value is UNREAD:
            return value
        if part is EVERY:
            if type(value) not in (list, tuple) or len(value) > MAX_MAPPED:
                return UNREAD
            rest = parts[at + 1 :]
            return [_walk(element, rest) for element in value]
        if isinstance(part, int):
            if type(value) not in (list, tuple) or part >= len(value):
                return UNREAD
            value = value[part]
        else:
            value = read_attribute(value, part)
    return value
