"""The part of the vocabulary that coupling reads: what SGLang calls the things of speculation."""

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

from sgltrace.index.program.vocabulary import Named, first_match


@dataclass(frozen=True)
class SpecVocabulary:
    """Section ``[spec]``: the names by which a condition or a value is known to belong to speculation."""

    algorithm_enums: frozenset[str]
    plain_members: frozenset[str]
    algorithm_fields: frozenset[str]
    config: re.Pattern[str]
    info_fields: frozenset[str]
    worker_fields: frozenset[str]
    draft_flags: frozenset[str]
    mode_enums: frozenset[str]
    spec_modes: frozenset[str]
    widths: frozenset[str]
    overlap_fields: frozenset[str]
    no_overlap_fields: frozenset[str]
    adaptive_config: frozenset[str]
    args_classes: frozenset[str]

    def is_config(self, name: str) -> bool:
        """Whether a name is a speculative configuration value."""
        return self.config.fullmatch(name) is not None


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Everything that coupling reads. ``subjects`` are kinds with patterns of classes and of modules."""

    spec: SpecVocabulary
    subjects: tuple[Named, ...] = ()
    platform: dict[str, bool | int] = field(default_factory=dict)
    """What functions answer that ask for the platform or the number of processes."""

    decode: str = "DECODE"
    """The forward mode of a decode step."""
    fixed: dict[str, bool] = field(default_factory=dict)
    """What a server of a language model is, whatever its arguments."""

    @functools.cache  # noqa: B019 (there is one vocabulary)
    def subject(self, module: str, cls: str | None) -> str:
        """The kind of coupling that a place is of, by its class and its module; empty where no pattern fits."""
        return first_match(self.subjects, module, cls)


def from_table(table: dict[str, Any]) -> Vocabulary:
    """The vocabulary in a parsed TOML document."""
    spec = dict(table["spec"])
    config = re.compile("|".join(spec.pop("config")))
    return Vocabulary(
        SpecVocabulary(config=config, **{key: frozenset(value) for key, value in spec.items()}),
        tuple((e["kind"], tuple(e.get("classes", ())), tuple(e.get("modules", ()))) for e in table.get("subjects", ())),
        {name: value for name, value in table.get("shapes", {}).get("platform", {}).items() if isinstance(value, bool)},
        table.get("shapes", {}).get("step", {}).get("decode", "DECODE"),
        {name: value for name, value in table.get("shapes", {}).get("fixed", {}).items() if isinstance(value, bool)},
    )


@functools.cache
def load() -> Vocabulary:
    """The vocabulary that comes with the package."""
    text = importlib.resources.files("sgltrace").joinpath("vocabulary.toml").read_text(encoding="utf-8")
    return from_table(tomllib.loads(text))
