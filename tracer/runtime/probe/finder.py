"""Tells when a module has been imported. Light: it is loaded by every Python process."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from typing import Any


class ImportHook:
    """Calls ``imported`` once a module in ``names`` has run; otherwise imports go as they would."""

    def __init__(self, names: frozenset[str], imported: Callable[[types.ModuleType], None]) -> None:
        self.names = names
        self.imported = imported
        self._inside: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with a loader that reports."""
        if fullname not in self.names or fullname in self._inside:
            return None
        self._inside.add(fullname)
        try:
            spec = _find_spec_elsewhere(self, fullname, path, target)
        finally:
            self._inside.discard(fullname)
        if spec is not None and hasattr(spec.loader, "exec_module") and not isinstance(spec.loader, type):
            _report_after_exec(spec.loader, self.imported)
        return spec


def _find_spec_elsewhere(
    hook: ImportHook, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not hook and hasattr(finder, "find_spec"):
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
    return None


def _report_after_exec(loader: Any, imported: Callable[[types.ModuleType], None]) -> None:
    """The loader keeps its class, so that whoever looks at it sees what it expects."""
    run = loader.exec_module

    def exec_module(module: types.ModuleType) -> None:
        run(module)
        imported(module)

    loader.exec_module = exec_module
