"""Decisions by the process that no other point names: shared code that sends an off step another way than a plain step.

They are shown as uncategorised, so that nothing that was found is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sgltrace.coupling.groups.draft import NONE, SOFT, Draft, Spot, merged
from sgltrace.coupling.groups.scene import Scene, name, shown, slug
from sgltrace.coupling.offstep.domain import PROCESS
from sgltrace.coupling.offstep.questions import Taken
from sgltrace.model import CouplingPoint


def decisions(scenes: list[Scene], points: list[CouplingPoint]) -> list[Draft]:
    """One point for each function that decides, where no point stands in it."""
    named = {place.function for point in points for place in (*point.producers, *point.consumers)}
    return merged([draft for scene in scenes for draft in _of(scene, named)])


def _of(scene: Scene, named: set[str]) -> Iterator[Draft]:
    groups: dict[str, list[Taken]] = defaultdict(list)
    for found in scene.answers.taken:
        if any(f.scope == PROCESS for f in found.facts) and found.function.id not in named:
            groups[found.function.id].append(found)
    for _, members in sorted(groups.items()):
        function = members[0].function
        facts = sorted({f.name for m in members for f in m.facts})
        reason = f"{name(function)} takes the way of a process that speculates"
        yield Draft(
            kind="uncategorised",
            slug=slug("decides", function.qualname),
            title=f"{function.name} decides by the process whether steps speculate",
            producers=[Spot(function, m.line, f"decides by {shown(m.test)}") for m in members],
            consumers=[
                Spot(function, m.line, f"goes on where it {'holds' if m.truth else 'does not hold'}") for m in members
            ],
            binding_time="process start",
            verdicts=scene.verdicts((SOFT, reason), (SOFT, reason), (NONE, "the step is one with speculation")),
            why=[
                f"{name(function)} line {m.line} asks `{shown(m.test)}`: an off step goes the other way."
                for m in members
            ],
            refactor=[
                f"See whether what follows suits an off step; it follows from {', '.join(f'`{f}`' for f in facts)}."
            ],
            fields=[f for f in facts if "." in f],
            weight=1,
        )
