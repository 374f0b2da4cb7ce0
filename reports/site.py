"""Pages as a report keeps them: the template environment, and shards of pages packed for a browser to unpack.

A page is kept without what all pages share. Its links name pages of the report behind ``#/``, as in
``#/points.html#kind=metrics``, and ``templates/assets/router.js`` shows the one that the address names.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

import sgltrace.templates
from sgltrace.reports.graph import module, short
from sgltrace.reports.text import ROOT, evidence, evidence_of_many, finalize, plural, spelled, visible

TEMPLATES = Path(sgltrace.templates.__file__).parent
ASSETS = TEMPLATES / "assets"
BETWEEN = "\x1e"
"""Between the pieces of a rendered page. No input can write it: what is hidden is written out (``visible``)."""

_SCRIPT = re.compile(r"assets/(\w+)\.js")


def environment() -> jinja2.Environment:
    """Jinja2 with autoescape on, undefined names as errors, and hidden characters made visible."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        short=short,
        module=module,
        plural=plural,
        spelled=spelled,
        evidence=evidence,
        evidence_of_many=evidence_of_many,
        page_json=page_json,
        breakable=breakable,
        prose=prose,
    )
    made.globals["ARROW"] = Markup('<span class="arrow" aria-hidden="true">→</span>')
    made.globals["ROOT"] = Markup(ROOT)
    made.globals["BETWEEN"] = Markup(BETWEEN)
    return made


@lru_cache(maxsize=50_000)
def breakable(name: str) -> Markup:
    """A dotted name that may wrap after its dots."""
    return Markup(escape(visible(name)).replace(".", Markup(".<wbr>")))


def prose(text: str) -> Markup:
    """A sentence in which what stands in backticks is code. A backtick without its fellow stands for itself."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts[-2:] = ["`".join(parts[-2:])]
    return Markup("").join(
        Markup("<code>{}</code>").format(visible(part)) if number % 2 else escape(visible(part))
        for number, part in enumerate(parts)
    )


def page_json(value: Any) -> Markup:
    """``value`` as JSON for a ``script`` element of type ``application/json``: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return Markup(script_safe(text))


def script_safe(text: str) -> str:
    """JSON text in which hidden characters are written out and no ``<`` is left."""
    if "\\u00" in text:  # json writes control characters below 0x20 itself
        text = re.sub(r"(?<!\\)((?:\\\\)*)\\u(00[01][0-9a-f])", lambda m: f"{m[1]}⟦U+{m[2].upper()}⟧", text)
    return visible(text).replace("<", "\\u003c")


class Part(NamedTuple):
    """A piece of a page that is shown alone: when the address names its anchor, or a line within its bounds."""

    anchor: str
    first: int
    last: int
    title: str
    html: str


class Page(NamedTuple):
    """A page without its frame. ``key`` is its place in the navigation, ``style`` the class of its ``main``."""

    title: str
    key: str
    scripts: list[str]
    style: str
    html: str
    parts: list[Part]


@dataclass(frozen=True)
class Shard:
    """Some pages and texts by name, packed together: deflated JSON, as base64."""

    names: list[str]
    data: str

    def record(self, name: str) -> Any:
        """What is kept under a name."""
        return json.loads(zlib.decompress(base64.b64decode(self.data)))[self.names.index(name)]


def packed(records: dict[str, Any]) -> Shard:
    """A shard of ``records``."""
    text = json.dumps(list(records.values()), ensure_ascii=False, separators=(",", ":"))
    # What UTF-8 cannot write was made visible, but in the address of a file that nobody could name otherwise.
    return Shard(list(records), base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode())


class Site:
    """Takes the pages of one piece of work."""

    def __init__(self, env: jinja2.Environment) -> None:
        self.env = env
        self.records: dict[str, Any] = {}

    def page(self, file: str, template: str, parts: Iterable[Part] = (), **context: Any) -> None:
        """Renders ``template`` as the page ``file``, with the ``parts`` that it shows one at a time."""
        pieces = self.render(template, **context).split(BETWEEN)
        title, key, scripts, style, html = pieces
        self.records[file] = Page(
            Markup(title).unescape(), key, _SCRIPT.findall(scripts), style.strip(), html, list(parts)
        )

    def render(self, template: str, **context: Any) -> str:
        """The text of ``template``."""
        return self.env.get_template(template).render(context)

    def packed(self) -> Shard:
        """All of it as one shard."""
        return packed(self.records)
