"""The part of the vocabulary that the coupling rules read: what SGLang calls the things of speculation."""

from __future__ import annotations

import functools
import importlib.resources
import re
import sys
from dataclasses import dataclass, field
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class SpecVocabulary:
    """Section ``[spec]``: the names by which a condition or a value is known to belong to speculation."""

    algorithm_enums: frozenset[str]
    plain_members: frozenset[str]
    path_members: frozenset[str]
    algorithm_fields: frozenset[str]
    config: re.Pattern[str]
    info_fields: frozenset[str]
    result_fields: frozenset[str]
    worker_fields: frozenset[str]
    draft_flags: frozenset[str]
    mode_enums: frozenset[str]
    spec_modes: frozenset[str]
    hidden_enums: frozenset[str]
    input_classes: frozenset[str]
    widths: frozenset[str]
    overlap_fields: frozenset[str]
    no_overlap_fields: frozenset[str]
    adaptive_config: frozenset[str]
    args_classes: frozenset[str]

    def is_config(self, name: str) -> bool:
        """Whether a name is a speculative configuration value."""
        return self.config.fullmatch(name) is not None


@dataclass(frozen=True)
class Vocabulary:
    """Everything the rules read. ``coupling`` maps a kind to its table."""

    spec: SpecVocabulary
    coupling: dict[str, dict[str, Any]]
    roles: dict[str, frozenset[str]]
    """Role of a tracked class to the names of its classes."""
    lasting: frozenset[str] = frozenset()
    """The roles whose objects are made when a process starts."""

    platform: dict[str, bool | int] = field(default_factory=dict)
    """What functions answer that ask for the platform or the number of processes."""

    decode: str = "DECODE"
    """The forward mode of a decode step."""
    fixed: dict[str, bool] = field(default_factory=dict)
    """What a server of a language model is, whatever its arguments."""

    def names(self, kind: str, key: str) -> frozenset[str]:
        """A list of names of a kind's table; empty where the table has none."""
        return frozenset(self.coupling.get(kind, {}).get(key, ()))


def from_table(table: dict[str, Any]) -> Vocabulary:
    """The vocabulary in a parsed TOML document."""
    spec = dict(table["spec"])
    config = re.compile("|".join(spec.pop("config")))
    return Vocabulary(
        SpecVocabulary(config=config, **{key: frozenset(value) for key, value in spec.items()}),
        table.get("coupling", {}),
        {role: frozenset(entry["classes"]) for role, entry in table.get("tracked", {}).items()},
        frozenset(role for role, entry in table.get("tracked", {}).items() if entry.get("carries") == "process"),
        {name: value for name, value in table.get("shapes", {}).get("platform", {}).items() if isinstance(value, bool)},
        table.get("shapes", {}).get("step", {}).get("decode", "DECODE"),
        {name: value for name, value in table.get("shapes", {}).get("fixed", {}).items() if isinstance(value, bool)},
    )


@functools.cache
def load() -> Vocabulary:
    """The vocabulary that comes with the package."""
    text = importlib.resources.files("sgltrace").joinpath("vocabulary.toml").read_text(encoding="utf-8")
    return from_table(tomllib.loads(text))
