"""What a report holds, read as its own script reads it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Kept:
    """A page: its title, its HTML with all its parts, and the parts by their anchors."""

    title: str
    html: str
    parts: dict[str, str]


def records(folder: Path) -> dict[str, Any]:
    """Everything in the shards by its name."""
    frame = (folder / "index.html").read_text(encoding="utf-8")
    table = json.loads(re.search(r'id="pages">(.*?)</script>', frame, re.DOTALL)[1])
    found: dict[str, Any] = {}
    for number, names in enumerate(table):
        inline = re.search(rf'id="shard-{number}">(.*?)</script>', frame, re.DOTALL)
        text = inline[1] if inline else (folder / f"data/{number}.js").read_text().split('","')[1].split('"')[0]
        found.update(zip(names, json.loads(zlib.decompress(base64.b64decode(text))), strict=True))
    return found


def pages(folder: Path) -> dict[str, Kept]:
    """The pages by address."""
    made = {}
    for name, record in records(folder).items():
        if name.endswith(".html"):  # the others are texts and data
            title, _, _, _, html, parts = record
            made[name] = Kept(title, html + "".join(part[4] for part in parts), {part[0]: part[4] for part in parts})
    return made


def sources(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """The pieces of source text by file."""
    return {
        name.removeprefix("source/"): [(first, text) for first, text in record]
        for name, record in records(folder).items()
        if name.startswith("source/")
    }
