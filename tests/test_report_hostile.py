"""A source tree and a trace full of HTML, scripts, template syntax and characters that hide: everything stays inert."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from report_browser import watch
from report_pages import pages as pages_of
from report_pages import sources
from sample_index import DictSource, sample_files, sample_index, sample_runs

from sgltrace.insight.observed import Run
from sgltrace.model import CallSite, Guard, Index, Place, SkippedFile, Unresolved
from sgltrace.reports import ReportOptions, render

EVIL = [
    "<script>window.evil = 1</script>",
    "<img src=x onerror=window.evil=2>",
    '"><svg onload=window.evil=3>',
    "' autofocus onfocus='window.evil=4",
    "{{ 7 * 191 }}{% raw %}{# gone #}",
    "</script><script>window.evil=5</script>",
    "</title></style></textarea><!--",
    "javascript:window.evil=6",
    "a\u202eb\u2066c\u200d\ufeff\x00\x1b[31m\x85",
    "https://evil.example/x.png",
    "=cmd|' /C calc'!A0",
    "../../../../etc/passwd",
    "]]><blink>&lt;b&gt;&amp;",
]
ALL = " ".join(EVIL)


def poison(value: object, skip: tuple[str, ...] = ()) -> object:
    """Every text of a structure with everything evil appended, but for keys that carry meaning."""
    if isinstance(value, dict):
        return {
            key if key in ("v1", "v2") or key.isidentifier() else key + ALL: inner if key in MEANING else poison(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [poison(inner) for inner in value]
    return value + ALL if isinstance(value, str) else value


MEANING = (
    "paths", "path", "severity", "designs", "design", "phase", "entry_points", "schema", "kind_of", "verdict", "root",
)  # fmt: skip


@pytest.fixture(scope="module")
def index() -> Index:
    plain = json.loads(msgspec.json.encode(sample_index(modules=1, functions=3)))
    evil = poison(plain)
    evil["entry_points"] = {path: name and name + ALL for path, name in plain["entry_points"].items()}
    made = msgspec.convert(evil, Index)
    first = made.functions[0]
    made.skipped.append(SkippedFile(ALL, ALL))
    made.unresolved.append(Unresolved(caller=first.id, line=1, expression=ALL, why=ALL))
    made.calls[0].sites.append(CallSite(line=1, guards=[Guard(text=ALL, holds=False, line=1)]))
    made.coupling_points[0].producers.append(Place(function="gone" + ALL, line=3, what=ALL, file=ALL))
    return made


@pytest.fixture(scope="module")
def evil_report(index, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("evil") / "out"
    files = {path + ALL: data + f"\n# {ALL}\n'''{ALL}'''\n".encode() for path, data in sample_files(1, 3).items()}
    runs = msgspec.convert(poison(json.loads(msgspec.json.encode(sample_runs()))), list[Run])
    render(
        index, DictSource(files), folder, ReportOptions(editor="vscode", source_path=Path("/tmp/<blink>"), runs=runs)
    )
    assert [path.name for path in folder.parent.iterdir()] == ["out"]
    return folder


def test_no_text_of_the_input_is_markup(evil_report):
    texts = {name: page.html for name, page in pages_of(evil_report).items()}
    texts["frame"] = (evil_report / "index.html").read_text(encoding="utf-8")
    for name, text in texts.items():
        body = re.sub(r'<script type="application/json"[^>]*>.*?</script>', "", text, flags=re.DOTALL)
        assert not re.search(r"<(script(?! src=)|img|svg onload|style|textarea|blink)", body), name
        assert not re.search(r"<[^>]+\son\w+=", re.sub(r'"[^"]*"', '""', body)), name
        assert 'href="javascript:' not in text, name
        assert "1337" not in text, name
        assert not HIDDEN.search(text), name
    for file, pieces in sources(evil_report).items():
        assert not any(HIDDEN.search(text) for _, text in pieces), file


HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")


def test_hidden_characters_can_be_seen(evil_report):
    page = pages_of(evil_report)["unknowns.html"].html
    assert "⟦U+202E⟧" in page and "⟦U+001B⟧" in page and "⟦U+0000⟧" in page


def test_file_names_are_harmless(evil_report):
    for name in [*(path.name for path in evil_report.rglob("*")), *pages_of(evil_report)]:
        assert re.fullmatch(r"[A-Za-z0-9_.~/-]+", name), name
        assert len(name) < 150


def test_nothing_runs_and_nothing_is_requested_in_a_browser(evil_report, browser):
    context = browser.new_context()
    visit = watch(context.new_page(), evil_report)
    for name, kept in pages_of(evil_report).items():
        for address in [name, *(f"{name}#{quote(anchor)}" for anchor in kept.parts)]:
            page = visit.go(address)
            page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
            assert page.evaluate("window.evil") is None, address
            assert page.title() != "", address
    page = visit.go("graph.html")
    page.get_by_label("Function", exact=True).fill("run_batch")
    page.keyboard.press("Enter")
    assert page.locator("#g-side a").count() > 1
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Control+k")
    page.keyboard.type("evil")
    page.locator("#jump-list a").first.wait_for()
    assert page.evaluate("window.evil") is None
    context.close()
    assert visit.errors == []
    assert visit.requests == []
