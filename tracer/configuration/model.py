"""The configuration as data, and conditions over it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec

from sgltrace.configuration.truth import Evaluator

Value = str | int | float | bool | None | list[Any] | dict[str, Any]


class Open(msgspec.Struct, frozen=True):
    """A value that is not decided: what it may be (empty for anything), and the facts that decide."""

    one_of: list[Value] = []
    by: list[str] = []


class Configuration(msgspec.Struct, kw_only=True, dict=True):
    """What a command makes of a server.

    ``values`` are arguments after handling; ``open`` those that facts outside the command decide. What is in
    neither is not known. ``worker``, ``path`` and ``overlap`` are None where they are not decided, too.
    """

    values: dict[str, Value] = {}
    open: dict[str, Open] = {}
    worker: str | None = None
    path: str | None = None
    overlap: bool | None = None
    predicates: dict[str, bool] = {}
    """What methods of the algorithm answer, by the end of the dotted name: ``spec_algorithm.is_eagle``."""
    meanings: dict[str, list[str]] = {}
    """What other names stand for, as expressions (``model.Conditions.meanings``)."""
    name: str = ""
    """How the user gave it."""

    def holds(self, condition: str) -> bool | None:
        """Whether a condition of the source holds here; None where that is not known.

        Names are looked up by the end of the dotted name: ``self.server_args.tp_size > 1``, ``tp_size > 1`` and
        ``get_parallel().tp_size > 1`` mean the same. What is not Python is not known.

        >>> Configuration(values={"tp_size": 8}).holds("self.server_args.tp_size > 1 and not enable_lora") is None
        True
        >>> Configuration(values={"tp_size": 1}).holds("self.server_args.tp_size > 1 and not enable_lora")
        False
        """
        return self._evaluator.truth(condition)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.known, self.meanings, self.predicates)

    def known(self, name: str) -> list[Value] | None:
        """The values that an argument may have; None where nothing is known of it."""
        if name in self.values:
            return [self.values[name]]
        if name == "enable_overlap" and self.overlap is not None:
            return [self.overlap]
        if name in self.open and self.open[name].one_of:
            return list(self.open[name].one_of)
        return None
