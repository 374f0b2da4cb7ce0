"""Writing pages: the template environment, the way back to the root, and the files."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

import sgltrace.templates
from sgltrace.reports.graph import module, short
from sgltrace.reports.source import HERE, Excerpt
from sgltrace.reports.text import ROOT, evidence, evidence_of_many, finalize, plural, spelled, visible

TEMPLATES = Path(sgltrace.templates.__file__).parent
ASSETS = TEMPLATES / "assets"


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
        numbered=numbered,
        prose=prose,
    )
    made.globals["ARROW"] = Markup('<span class="arrow" aria-hidden="true">→</span>')
    made.globals["ROOT"] = Markup(ROOT)
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


def numbered(excerpt: Excerpt, anchors: bool = True) -> Markup:
    """The lines of an excerpt as list items. Their HTML is inert, and a loop here costs a tenth of a template's."""
    items = []
    for line in excerpt.lines:
        anchor = f' id="L{line.number}"' if anchors else ""
        mark = ' class="hit"' if line.note else ""
        note = f'<span class="note">{escape(visible(line.note))}</span>' if line.note and line.note != HERE else ""
        items.append(f"<li{anchor}{mark}>{line.html}{note}</li>")
    return Markup("\n".join(items))


def page_json(value: Any) -> Markup:
    """``value`` as JSON for a ``script`` element of type ``application/json``: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return Markup(script_safe(text))


def script_safe(text: str) -> str:
    """JSON text in which hidden characters are written out and no ``<`` is left."""
    if "\\u00" in text:  # json writes control characters below 0x20 itself
        text = re.sub(r"(?<!\\)((?:\\\\)*)\\u(00[01][0-9a-f])", lambda m: f"{m[1]}⟦U+{m[2].upper()}⟧", text)
    return visible(text).replace("<", "\\u003c")


class Site:
    """A folder of pages, and how much was written into it."""

    def __init__(self, out: Path, env: jinja2.Environment) -> None:
        self.out = out
        self.env = env
        self.files = 0
        self.bytes = 0
        self._folders: set[Path] = set()

    def page(self, file: str, template: str, **context: Any) -> None:
        """Renders ``template`` to ``file``, a path relative to the report with ``/``."""
        self.write(file, self.env.get_template(template).render(context))

    def write(self, file: str, text: str) -> None:
        """Writes a page with its links made relative."""
        back = "../" * file.count("/")
        self.write_bytes(file, text.replace(ROOT, back).encode())

    def write_bytes(self, file: str, data: bytes) -> None:
        """Writes a file and its folders."""
        path = self.out / file
        if path.parent not in self._folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(path.parent)
        path.write_bytes(data)
        self.files += 1
        self.bytes += len(data)

    def assets(self) -> None:
        """Copies the style sheet and the scripts."""
        for asset in sorted(ASSETS.iterdir()):
            if asset.suffix in (".css", ".js", ".svg"):
                self.write_bytes(f"assets/{asset.name}", asset.read_bytes())
