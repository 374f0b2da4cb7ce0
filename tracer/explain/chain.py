"""What happens while the arguments are handled, kept as it happens: values rewritten, words logged, variables set."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from sgltrace.evaluate.frame import Frame
from sgltrace.evaluate.functions import Function, Opaque
from sgltrace.evaluate.machine import Machine, Watcher
from sgltrace.evaluate.unknown import ABSENT, Maybe, Unknown, same


@dataclass
class Link:
    """One thing that happened: where, under which condition, and what."""

    function: str
    line: int
    condition: str
    effect: str
    kind: str
    """``value``, ``log``, ``environment``, ``worker``, ``overlap`` or ``error``."""
    argument: str = ""
    path: str = ""
    certain: bool = True
    """Whether it happens whatever is not known."""


class Running(BaseException):
    """The scheduler's loop begins: all that a configuration decides is decided."""


class Recorder(Watcher):
    """Keeps the chain. ``opaque`` says which classes are not looked into; ``record`` is the object that is watched."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.machine: Machine | None = None
        self.record: Any = None
        self.fields: frozenset[str] = frozenset()
        self.opaque_names: tuple[str, ...] = ()
        self.scheduler: type | None = None
        self.phase = "arguments"
        self.known_modules: frozenset[str] = frozenset()
        """What had run when the scheduler's process began: its classes are looked into."""
        self.made: list[tuple[type, dict[str, Any], Any]] = []
        """Instances that the scheduler makes: class, keyword arguments, and what stands for the instance."""
        self.loops: list[str] = []
        self.written: dict[str, Any] = {}
        """What the scheduler's own fields hold."""
        self.raw: dict[str, Any] = {}

    def add(self, kind: str, effect: str, frame: Frame | None, argument: str = "") -> None:
        """Keep one link, once."""
        if frame is None:
            return
        certain = self.machine is None or not self.machine.journal.is_trying
        link = Link(frame.id, frame.line, conditions_of(frame), effect, kind, argument, frame.module.path, certain)
        if self.links and self.links[-1] == link:
            return
        self.links.append(link)

    def wrote(self, holder: Any, name: str, old: Any, value: Any, frame: Frame) -> None:
        """A field of the record or of the scheduler was set."""
        if self.scheduler is not None and isinstance(holder, self.scheduler):
            self.written[name] = value
            return
        if (
            (
                holder is self.record
                or (self.record is None and self.fields and type(holder).__name__ == self._record_name)
            )
            and name in self.fields
            and not same(old, value)
        ):
            shown = "" if old is ABSENT else f"{_shown(old)} -> "
            self.add("value", f"{name}: {shown}{_shown(value)}", frame, name)

    _record_name = ""

    def called(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any], frame: Frame) -> None:
        """A function that takes the record and, by keyword, fields of it declares their values."""
        if self.record is None and args and type(args[0]).__name__ == self._record_name:
            self.record = args[0]
        if self.phase == "scheduler" and function.__name__.startswith("event_loop"):
            self.loops.append(function.__name__)
            raise Running
        if not keywords or not args or args[0] is not self.record or self.record is None:
            return
        for name, value in keywords.items():
            if name in self.fields and function.node.args.kwarg is not None:
                self.add("value", f"{name}: -> {_shown(value)}", frame, name)

    def logged(self, level: str, text: str, frame: Frame | None) -> None:
        """The source logged something."""
        if level in ("warning", "error", "critical", "info") and self.phase == "arguments":
            self.add("log", f"logs: {text[:300]}", frame)

    def environment(self, name: str, value: Any, frame: Frame | None) -> None:
        """The source set a variable."""
        self.add("environment", f"sets {name}={_shown(value)}", frame)

    def construct(self, made: type, args: tuple[Any, ...], keywords: dict[str, Any], frame: Frame) -> bool:
        """Classes made of a model's files, and in the scheduler all but plain data."""
        if made.__name__ in self.opaque_names and self.phase == "arguments":
            return True
        if self.phase != "scheduler" or made is self.scheduler or not _is_of_source(made):
            return False
        if made.__module__ in self.known_modules and ".speculative." not in made.__module__:
            return False
        return not _is_plain(made)


def _is_of_source(made: type) -> bool:
    return any(isinstance(value, Function) for value in vars(made).values()) or "." in made.__module__


def _is_plain(made: type) -> bool:
    import enum

    return (
        issubclass(made, (BaseException, enum.Enum))
        or hasattr(made, "__dataclass_fields__")
        or hasattr(made, "__struct_fields__")
        or issubclass(made, tuple)
    )


def conditions_of(frame: Frame) -> str:
    """The conditions that led to where a frame stands, its callers' last one first."""
    parts: list[str] = []
    at: Frame | None = frame
    while at is not None and len(parts) < 4:
        for node, word, _ in at.conditions[-3:]:  # type: ignore[misc]
            text = ast.unparse(node) if isinstance(node, ast.AST) else str(node)
            parts.append(f"not ({text})" if word else text)
        at = at.caller if at.function is not None and not at.conditions else None
    return " and ".join(dict.fromkeys(parts))


def _shown(value: Any) -> str:
    if isinstance(value, Maybe):
        value = value.value
    if isinstance(value, Unknown):
        if value.options:
            return "one of " + ", ".join(_shown(option) for option in value.options)
        return "not known"
    if isinstance(value, Opaque):
        return type(value).__name__
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


__all__ = ["Link", "Machine", "Recorder", "conditions_of"]
