"""Fixtures for the report's tests in a real browser: one Chromium, and a report of the sample index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from report_node import node_file
from sample_index import DictSource, sample_files, sample_index, sample_runs

from sgltrace.reports import ReportOptions, render

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Request

READY = "() => document.documentElement.dataset.ready === location.hash"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """The browser on this machine. Without one the tests are skipped, but for CI, which installs it."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        message = "no Chromium here; `apt-get install chromium` brings it"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    executable = chromium()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core."""
    return node_file("axe-core/axe.min.js")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sample's report, with runs."""
    folder = tmp_path_factory.mktemp("report")
    render(sample_index(), DictSource(sample_files()), folder, ReportOptions(editor="vscode", runs=sample_runs()))
    return folder


@dataclass
class Visit:
    """A page, and what went wrong on it: console errors, uncaught exceptions, requests that are not for files."""

    page: Page
    folder: Path
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, address: str) -> Page:
        """The page at ``address``, as in ``points.html#path=v1``, loaded anew and ready."""
        self.page.goto("about:blank")
        self.page.goto(f"{(self.folder / 'index.html').as_uri()}#/{address}")
        self.ready()
        return self.page

    def ready(self) -> None:
        """Waits until the page that the address names is shown and its scripts ran."""
        self.page.wait_for_function(READY)

    def rows(self) -> list[str]:
        """The first cells of the rows that a filtered table shows."""
        return self.page.locator("table.points tbody tr:visible th, table.rows tbody tr:visible th").all_inner_texts()


def watch(page: Page, folder: Path) -> Visit:
    visit = Visit(page, folder)

    def requested(request: Request) -> None:
        if not request.url.startswith((folder.as_uri(), "data:", "blob:")):
            visit.requests.append(request.url)

    page.on("console", lambda message: visit.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("request", requested)
    return visit


@pytest.fixture
def visit(browser: Browser, report: Path) -> Iterator[Visit]:
    """A fresh page on the sample's report. Nothing may go wrong on it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    visit = watch(context.new_page(), report)
    yield visit
    context.close()
    assert visit.errors == []
    assert visit.requests == []
