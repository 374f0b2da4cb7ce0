"""Two sources set side by side: what of speculation's coupling, contract, tensors, calls and gates differs.

What belongs together is told by structure: the bodies of functions, who writes and reads a field, what a point is
about. Names and files decide only where nothing has changed them.
"""

from __future__ import annotations

from collections.abc import Callable

from sgltrace.insight.changes.compare import compare_sources, names_of, ranked
from sgltrace.insight.changes.defaults import compare_defaults
from sgltrace.insight.changes.model import Change, Changes
from sgltrace.insight.changes.sides import Side

__all__ = ["Change", "Changes", "Side", "compare_everything", "compare_sources"]


def compare_everything(before: Side, after: Side, said: Callable[[str], None] = lambda text: None) -> Changes:
    """What differs between two indexed sources, and between what launch commands get from them."""
    said("Comparing")
    names = names_of(before, after)
    found = compare_sources(before, after, names)
    defaults, notes = compare_defaults(before, after, names, said)
    found.changes = ranked([*found.changes, *defaults])
    found.notes += notes
    return found
