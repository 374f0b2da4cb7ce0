"""A report in one file: the same pages, packed, with a script that shows the one that the address names.

A page's ``main`` element is kept, many to a shard that is compressed; the browser unpacks a shard when it is needed.
Links are the same but for what stands before them: ``#/points.html`` instead of ``points.html``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from sgltrace.reports.site import ASSETS, Site, script_safe
from sgltrace.reports.text import ROOT

SHARD = 600_000
"""Characters of pages in one shard, about."""
SCRIPTS = ("core", "filter", "formula", "chain", "module", "refactor", "graph", "single")

_MAIN = re.compile(r'<main id="main" tabindex="-1"(?: class="([^"]*)")?>(.*)</main>', re.DOTALL)
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_SCRIPT = re.compile(rf'<script src="{ROOT}assets/(\w+)\.js" defer>')
_CURRENT = re.compile(r'data-key="([^"]*)" aria-current="page"')


class PackedSite(Site):
    """Takes pages as a folder does, and writes them as one file at the end."""

    def __init__(self, out: Path, env: jinja2.Environment) -> None:
        super().__init__(out, env)
        self._pages: dict[str, str] = {}

    def write(self, file: str, text: str) -> None:
        """Keeps a page."""
        self._pages[file] = text

    def assets(self) -> None:
        """Nothing yet: style and scripts go into the file itself."""

    def finish(self, names: str) -> None:
        """Writes ``index.html``. ``names`` is what the box "go to" searches, as JSON."""
        shards: list[list[str]] = [[]]
        size = 0
        pages: dict[str, list[Any]] = {}
        for file, text in self._pages.items():
            style, body = _main(text)
            if size > SHARD:
                shards.append([])
                size = 0
            pages[file] = [len(shards) - 1, len(shards[-1]), *_head(text), style]
            shards[-1].append(body.replace(ROOT, "#/"))
            size += len(body)
        packed = [(f"shard-{number}", _pack(json.dumps(shard))) for number, shard in enumerate(shards)]
        packed.append(("names", _pack(names)))
        style = (ASSETS / "report.css").read_text(encoding="utf-8")
        script = "".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
        page = self.env.get_template("single.html").render(
            style=Markup(style),
            style_hash=_hash(style),
            script=Markup(script),
            script_hash=_hash(script),
            icon=base64.b64encode((ASSETS / "icon.svg").read_bytes()).decode(),
            pages=Markup(script_safe(json.dumps(pages, ensure_ascii=False, separators=(",", ":")))),
            packed=packed,
        )
        super().write("index.html", page.replace(ROOT, "#/"))


def _main(text: str) -> tuple[str, str]:
    found = _MAIN.search(text)
    assert found is not None  # base.html has it
    return found[1] or "", found[2]


def _head(text: str) -> list[Any]:
    """Title, key of the navigation, and scripts of a page."""
    title, current = _TITLE.search(text), _CURRENT.search(text)
    return [
        Markup(title[1]).unescape() if title else "",
        current[1] if current else "",
        _SCRIPT.findall(text),
    ]


def _pack(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
