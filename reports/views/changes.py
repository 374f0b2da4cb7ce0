"""Two sources compared, or a change's impact, on a page of its own."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from sgltrace.insight.changes.model import Change, Changes, Step
from sgltrace.insight.changes.text import TOP, Section, headline, sections, top
from sgltrace.insight.impact.model import Impact
from sgltrace.insight.impact.text import buckets
from sgltrace.reports.site import ASSETS, environment


@dataclass(frozen=True)
class Shown:
    """What the page shows of a comparison."""

    found: Changes
    headline: list[str]
    top: list[Change]
    sections: list[Section]
    moved: int
    most: int = TOP


def view(found: Changes) -> Shown:
    """What a page shows of a comparison."""
    return Shown(
        found=found,
        headline=headline(found),
        top=top(found.changes),
        sections=sections([c for c in found.changes if c.change != "moved"]),
        moved=sum(c.change == "moved" for c in found.changes),
    )


def page(found: Changes) -> bytes:
    """The page, in one file."""
    return render("changes.html", view=view(found))


def impact_page(found: Impact, diff: str) -> bytes:
    """The page of a diff's impact, in one file."""
    return render("impact.html", found=found, diff=diff, buckets=buckets(found))


def render(template: str, **context: object) -> bytes:
    """A page in one file, with the report's style in it."""
    env = environment()
    env.filters["by_path"] = by_path
    style = Markup((ASSETS / "report.css").read_text(encoding="utf-8"))
    return env.get_template(template).render(style=style, **context).encode()


def by_path(change: Change) -> dict[str, list[Step]]:
    """The severities of a point by path."""
    out: dict[str, list[Step]] = {}
    for step in change.severities:
        out.setdefault(step.path, []).append(step)
    return out
