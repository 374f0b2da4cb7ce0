"""The rules: one file for each kind of coupling."""

from __future__ import annotations

import importlib
import pkgutil

from sgltrace.coupling.rule import Rule


def all_rules() -> list[Rule]:
    """One of each rule, by the name of its file."""
    found: list[Rule] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        namespace = vars(importlib.import_module(f"{__name__}.{module.name}"))
        found += [
            value()
            for value in namespace.values()
            if isinstance(value, type) and issubclass(value, Rule) and value.__module__.endswith(f".{module.name}")
        ]
    return found
