"""A report as files: a frame with the first screen in it, and shards that the browser loads and unpacks when needed.

In a folder the shards are scripts, which a page may load also from ``file://``; in one file they lie within it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from sgltrace.reports.site import ASSETS, Shard, script_safe

FIRST, LAST = "core", "router"
"""Scripts before and after all others."""


class Files:
    """A folder, and how much was written into it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.count = 0
        self.bytes = 0

    def write(self, file: str, data: bytes) -> None:
        """Writes a file and its folders."""
        path = self.out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.count += 1
        self.bytes += len(data)


def write_folder(files: Files, env: jinja2.Environment, shards: Sequence[Shard], names: Shard) -> None:
    """Writes ``index.html``, its style, its script, and a file for each shard."""
    files.write("assets/report.css", (ASSETS / "report.css").read_bytes())
    files.write("assets/icon.svg", (ASSETS / "icon.svg").read_bytes())
    files.write("assets/report.js", script().encode())
    for name, shard in _named(shards, names):
        files.write(f"data/{name}.js", f'sgl.shard("{name}","{shard.data}");\n'.encode())
    files.write("index.html", _frame(env, shards, inline=None).encode())


def write_one_file(files: Files, env: jinja2.Environment, shards: Sequence[Shard], names: Shard) -> None:
    """Writes ``index.html`` with everything in it."""
    files.write("index.html", _frame(env, shards, inline=_named(shards, names)).encode())


def script() -> str:
    """All scripts as one."""
    between = sorted(path.stem for path in ASSETS.glob("*.js") if path.stem not in (FIRST, LAST))
    return "".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in (FIRST, *between, LAST))


def _named(shards: Sequence[Shard], names: Shard) -> list[tuple[str, Shard]]:
    return [*((str(number), shard) for number, shard in enumerate(shards)), ("names", names)]


def _frame(env: jinja2.Environment, shards: Sequence[Shard], inline: list[tuple[str, Shard]] | None) -> str:
    style, code = (ASSETS / "report.css").read_text(encoding="utf-8"), script()
    title, _, _, _, first, _ = next(shard.record("index.html") for shard in shards if "index.html" in shard.names)
    table = json.dumps([shard.names for shard in shards], ensure_ascii=False, separators=(",", ":"))
    return env.get_template("frame.html").render(
        inline=inline,
        title=title,
        first=Markup(first),
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(code),
        script_hash=_hash(code),
        icon=base64.b64encode((ASSETS / "icon.svg").read_bytes()).decode(),
        pages=Markup(script_safe(table)),
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
