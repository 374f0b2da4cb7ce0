"""A comparison of two sources as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from sgltrace.insight.changes.model import Change, Changes
from sgltrace.insight.changes.text import TOP, headline, sections, shortened, top
from sgltrace.insight.impact.model import Impact
from sgltrace.insight.impact.text import buckets, edited_line
from sgltrace.reports.exports.markdown import escaped


def markdown(found: Changes, everything: bool = False) -> bytes:
    """The headline and the changes that matter most, or all of them. Names out of a source are escaped."""
    lines = [f"## Speculative decoding: {escaped(found.before.name)} → {escaped(found.after.name)}", ""]
    lines += [*headline(found), ""]
    chosen = found.changes if everything else top(found.changes)
    lines += change_lines(chosen)
    left = sum(change.change != "moved" for change in found.changes) - len(chosen)
    if left > 0:
        lines += ["", f"{left} smaller differences are left out."]
    moved = len(found.renamed)
    if moved:
        lines += ["", f"{moved} functions, classes and fields have another name or place, and are the same."]
    lines += [f"- {escaped(note)}" for note in found.notes]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def change_lines(changes: Sequence[Change]) -> list[str]:
    """A table for each sort of change."""
    lines: list[str] = []
    for section in sections(changes):
        lines += [
            "",
            f"### {section.title}",
            "",
            "| Change | What | Before | After | Why |",
            "| --- | --- | --- | --- | --- |",
        ]
        for change in section.changes:
            what = f"**{escaped(change.title)}**" + (f" ({escaped(change.where)})" if change.where else "")
            cells = (change.change, what, escaped(change.before or "–"), escaped(change.after or "–"), _why(change))
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def impact_markdown(found: Impact) -> bytes:
    """The impact of a diff: the answer, and what it resolves, adds and edits."""
    lines = ["## What this does to switching speculation off per batch", "", escaped(found.why)]
    for title, changes in buckets(found):
        lines += ["", f"### {title}", ""]
        for change in changes[:TOP]:
            where = f" ({escaped(change.where)})" if change.where else ""
            lines.append(f"- **{escaped(change.title)}**{where}: {_why(change)}")
            if change.before or change.after:
                lines.append(f"  {escaped(change.before or 'nothing')} → {escaped(change.after or 'nothing')}")
        if len(changes) > TOP:
            lines.append(f"- and {len(changes) - TOP} more")
    near = [entry for entry in found.edited if entry.paths]
    if near:
        lines += ["", "### What it edits", ""]
        lines += [f"- {escaped(edited_line(entry))}" for entry in near[:TOP]]
    lines += [f"- {escaped(note)}" for note in found.notes]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _why(change: Change) -> str:
    return escaped(shortened(change.why, 400))
