"""Selectors say what of a call is recorded: ``arg.batch``, ``self.bs``, ``return.next_token_ids``,
``return[0]``, ``arg.batch.reqs[*].kv_allocated_len``, and ``args`` for every parameter.

A selector is compiled once, for one function's parameters, into a reader of ``(args, kwargs, result)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .describe import UNREAD, read_attribute

Reader = Callable[[Sequence[Any], dict[str, Any], Any], Any]

_PART = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+|\*)\]")
_ROOT = re.compile(r"(self|return|arg\.[A-Za-z_]\w*)")
MAX_MAPPED = 1024  # elements that ``[*]`` visits


class SelectorError(ValueError):
    """A selector that cannot be read or does not fit the function."""


def compile_selector(text: str, parameters: Sequence[str]) -> Reader:
    """The reader for ``text``; raises ``SelectorError`` if it names no parameter of the function."""
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
        parts.append(name if name is not None else "[*]" if index == "*" else int(index))
        at = part.end()
    return _follow(_root_reader(root.group(), parameters), tuple(parts))


def _root_reader(root: str, parameters: Sequence[str]) -> Reader:
    if root == "return":
        return lambda args, kwargs, result: result
    if root == "self":
        return lambda args, kwargs, result: args[0] if args else UNREAD
    name = root.removeprefix("arg.")
    if name not in parameters:
        raise SelectorError(f"no parameter '{name}', there are {', '.join(parameters) or 'none'}")
    position = list(parameters).index(name)

    def argument(args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Any:
        return args[position] if position < len(args) else kwargs.get(name, UNREAD)

    return argument


def _follow(root: Reader, parts: tuple[str | int, ...]) -> Reader:
    if not parts:
        return root

    def followed(args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Any:
        return _walk(root(args, kwargs, result), parts)

    return followed


def _walk(value: Any, parts: tuple[str | int, ...]) -> Any:
    for at, part in enumerate(parts):
        if value is None or value is UNREAD:
            return value
        if part == "[*]":
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
