"""Parts that were not found, and files that could not be read: where one may stand in the other, nobody knows.

"This release has none" is said only where every file that may hold it was read.
"""

from __future__ import annotations

import re

from sgltrace.errors import InputError
from sgltrace.index.program.vocabulary import Roles
from sgltrace.index.resolution.engine import Engine

_SHOWN = 3


def unread_parts(engine: Engine, roles: Roles) -> list[str]:
    """The files that were asked for, could not be read, and name a role: ``path (line 7: why)``, sorted."""
    modules = {path: name for name, path in engine.tree.modules.items()}
    named = _role_names(roles)
    return [
        f"{path} ({why})"
        for path, why in sorted(engine.modules.skipped.items())
        if named.search(source := engine.modules.source(modules[path])) or not source
    ]


def why_missing(engine: Engine, roles: Roles, what: str, otherwise: str) -> InputError:
    """``what`` was not found: because of a file that could not be read, or (``otherwise``) because it is not there."""
    requested = engine.tree.source.requested
    unread = unread_parts(engine, roles)
    if unread:
        return InputError(f"{requested}: {what}, {in_unread(unread)}; mend that, and index again")
    return InputError(f"{requested}: {what}{otherwise}")


def in_unread(unread: list[str]) -> str:
    """``which may be in a.py (line 7: why), which cannot be read``."""
    more = f" and {len(unread) - _SHOWN} more files" if len(unread) > _SHOWN else ""
    return f"and what may hold it cannot be read: {', '.join(unread[:_SHOWN])}{more}"


def _role_names(roles: Roles) -> re.Pattern[bytes]:
    patterns = (*roles.process, *roles.scheduler, *roles.event_loops, *roles.worker_fields, *roles.step_methods)
    words = [re.escape(pattern).replace(r"\*", r"\w*") for pattern in patterns]
    return re.compile(rf"\b(?:{'|'.join(words)})\b|(?i:{re.escape(roles.main_algorithm)})".encode())
