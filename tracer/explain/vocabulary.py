"""The part of the vocabulary that explaining a command reads."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Hints:
    """Section ``[explain]``, and the roles that it shares with the index; the file says what each means."""

    launch: tuple[str, ...]
    views: tuple[str, ...]
    overlap_fields: tuple[str, ...]
    model_classes: tuple[str, ...]
    second_schema: str
    adaptive: str
    adaptive_table: str
    algorithm: str
    words: dict[str, str]
    installed: frozenset[str]
    machine: dict[str, Any]
    gpus: dict[str, tuple[int, int, int]]
    scheduler_modules: tuple[str, ...]
    process: tuple[str, ...]
    scheduler: tuple[str, ...]
    event_loops: tuple[str, ...]
    worker_fields: tuple[str, ...]
    target_fields: tuple[str, ...]
    main_algorithm: str
    overlap_word: str


@functools.cache
def hints() -> Hints:
    """The hints as the program ships them."""
    table = tomllib.loads((files("sgltrace") / "vocabulary.toml").read_text(encoding="utf-8"))
    own, roles = table["explain"], table["roles"]
    return Hints(
        launch=tuple(own["launch"]),
        views=tuple(own["views"]),
        overlap_fields=tuple(own["overlap_fields"]),
        model_classes=tuple(own["model_classes"]),
        second_schema=own["second_schema"],
        adaptive=own["adaptive"],
        adaptive_table=own["adaptive_table"],
        algorithm=own["algorithm"],
        words=own["words"],
        installed=frozenset(own["installed"]["names"]),
        machine={**own["machine"], **dict.fromkeys(own["absent"]["names"])},
        gpus={name: tuple(value) for name, value in own["gpus"].items()},
        scheduler_modules=tuple(roles["modules"]),
        process=tuple(roles["process"]),
        scheduler=tuple(roles["scheduler"]),
        event_loops=tuple(roles["event_loops"]),
        worker_fields=tuple(roles["worker_fields"]),
        target_fields=tuple(roles["target_fields"]),
        main_algorithm=roles["main_algorithm"],
        overlap_word=roles["overlap_word"],
    )
