"""Where things are: pages within the report, lines in an editor, lines of the release on its forge."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote as _quote

from markupsafe import Markup

from sgltrace.errors import UsageError
from sgltrace.model import Source
from sgltrace.reports.text import ROOT, file_name, visible

quote = lru_cache(maxsize=100_000)(_quote)
"""Quoting for addresses; the same files and names come again and again."""
EDITORS = {
    "vscode": "vscode://file/{path}:{line}",
    "cursor": "cursor://file/{path}:{line}",
    "zed": "zed://file/{path}:{line}",
    "idea": "idea://open?file={path}&line={line}",
    "pycharm": "pycharm://open?file={path}&line={line}",
    "sublime": "subl://open?url=file://{path}&line={line}",
    "textmate": "txmt://open?url=file://{path}&line={line}",
    "emacs": "emacs://open?url=file://{path}&line={line}",
}
_TEMPLATE = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):")
_REFUSED = ("javascript", "data", "vbscript", "blob")
_FORGE = "https://github.com/sgl-project/sglang/blob/v{version}/python/{file}#L{line}"
_RELEASE = re.compile(r"\d+(\.\d+)+((a|b|rc|\.?post|\.?dev)\d+)?")


class Links:
    """Page addresses for the functions and coupling points that have a page; the same for the same names.

    A function's page is its part of its module's page, which shows that part alone when it is the one addressed.
    """

    def __init__(self, source: Source, functions: dict[str, str], points: Iterable[str]) -> None:
        """``functions`` gives the module page (a file relative to the report) of each function with a page."""
        quoted = {page: page_link(page) for page in set(functions.values())}
        self._pages = {name: quoted[page] for name, page in functions.items()}
        self._functions = {name: Markup(f"{page}#{quote(anchor(name))}") for name, page in self._pages.items()}
        self._points = dict(addresses("points", points))
        self._release = source.version if source.version and _RELEASE.fullmatch(source.version) else None
        self._named = source.name == "sglang"

    def point_file(self, identifier: str) -> str | None:
        """The coupling point's page, relative to the report; None where there is no such point."""
        return self._points.get(identifier)

    def function(self, identifier: str) -> Markup | None:
        """A link to the function's page; None where it has none."""
        return self._functions.get(identifier)

    def page(self, identifier: str) -> Markup | None:
        """A link to the module page on which the function is."""
        return self._pages.get(identifier)

    def line(self, identifier: str, line: int) -> Markup | None:
        """A link to a line of the function's page."""
        page = self._pages.get(identifier)
        return None if page is None else Markup(f"{page}#L{int(line)}")

    def point(self, identifier: str) -> Markup | None:
        """A link to a coupling point's page."""
        file = self._points.get(identifier)
        return None if file is None else page_link(file)

    def forge(self, file: str, line: int) -> str | None:
        """The line in the release on its forge, for a release that is published there."""
        if self._release is None or not self._named:
            return None
        return _FORGE.format(version=quote(self._release), file=quote(file), line=int(line))


class EditorLinks:
    """Links that open a file in the reader's editor; none where no editor was chosen."""

    def __init__(self, editor: str | None, source_path: Path | None) -> None:
        template = EDITORS.get(editor or "", editor)
        if template is not None:
            scheme = _TEMPLATE.match(template)
            if scheme is None or "{line}" not in template or scheme["scheme"] in _REFUSED:
                names = ", ".join(sorted(EDITORS))
                raise UsageError(
                    f"--editor {editor!r}: neither an editor known here ({names}) nor an address with "
                    "{path} and {line}"
                )
        self._template = template
        self._folder = source_path.resolve().as_posix() if source_path else ""

    def to(self, file: str, line: int) -> str | None:
        """The address of a line."""
        if self._template is None:
            return None
        path = f"{self._folder}/{file}" if self._folder else file
        fill = {"path": quote(path), "file": quote(file), "line": str(int(line))}
        return re.sub(r"\{(path|file|line)\}", lambda found: fill[found[1]], self._template)


def page_link(file: str, fragment: str = "") -> Markup:
    """A link to a page of the report, fit for an attribute: quoting leaves nothing that HTML would read."""
    return Markup(f"{ROOT}{quote(file)}{f'#{quote(fragment)}' if fragment else ''}")


def anchor(identifier: str) -> str:
    """The fragment of a function on its module's page: ``EAGLEWorkerV2.verify``."""
    return visible(identifier.partition(":")[2] or identifier).replace(" ", "_")


def addresses(folder: str, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    """A file for each name, told apart also where a file system does not tell ``a`` from ``A``."""
    taken: set[str] = set()
    for name in sorted(set(names)):
        address = f"{folder}/{file_name(name) or '_'}"
        if address.lower() in taken:
            address = f"{folder}/{file_name(name + chr(0))}"
        taken.add(address.lower())
        yield name, address + ".html"
