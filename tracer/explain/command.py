"""A launch command as it is typed: its environment, and the arguments that reach SGLang's parser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from sgltrace.errors import UsageError

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)[0-9.]*$")


@dataclass(frozen=True)
class Command:
    """``NAME=VALUE ... program arguments``."""

    environment: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()
    """The words before the arguments."""
    arguments: tuple[str, ...] = ()

    def text(self) -> str:
        """The command as a shell reads it."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, shlex.join([*self.program, *self.arguments])])


def parse_command(words: Sequence[str]) -> Command:
    """Take a command apart. Raises UsageError where there is none.

    >>> parse_command(["A=1", "python", "-m", "sglang.launch_server", "--tp", "8"]).arguments
    ('--tp', '8')
    """
    rest = list(words)
    if len(rest) == 1 and " " in rest[0]:  # the whole command in quotes
        rest = shlex.split(rest[0])
    environment: dict[str, str] = {}
    while rest and (_VARIABLE.match(rest[0]) or rest[0] in ("env", "exec", "nohup", "export")):
        word = rest.pop(0)
        if "=" in word:
            name, _, value = word.partition("=")
            environment[name] = value
    if not rest:
        raise UsageError("no launch command: sgltrace explain SRC -- python -m sglang.launch_server ...")
    program = _program(rest)
    return Command(environment, tuple(rest[:program]), tuple(rest[program:]))


def _program(words: list[str]) -> int:
    """How many words come before SGLang's own arguments."""
    if words[0].startswith("-"):
        return 0
    for at, word in enumerate(words):
        if word == "-m" and at + 1 < len(words):
            return at + 2
        if word.endswith(".py"):
            return at + 1
        if word == "serve" and at:
            return at + 1
        if at and word.startswith("--") and not any(_PYTHON.match(w) for w in words[:at]):
            return at
    return len(words)
