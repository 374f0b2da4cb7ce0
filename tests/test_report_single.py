"""The report in one file: the same pages behind one address, offline, with scripts and style under their hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect
from report_browser import Visit, watch
from sample_index import DictSource, sample_files, sample_index, sample_runs

from sgltrace.reports import ReportOptions, render


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("single")
    options = ReportOptions(single_file=True, runs=sample_runs())
    result = render(sample_index(), DictSource(sample_files()), folder, options)
    assert result.files == 1 and [path.name for path in folder.iterdir()] == ["index.html"]
    return folder


@pytest.fixture
def one(browser, single):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    visit = watch(context.new_page(), single)
    yield visit
    context.close()
    assert visit.errors == []
    assert visit.requests == []


def open_at(one: Visit, address: str):
    return one.go(address.removeprefix("#/"))


def test_every_link_of_every_page_leads_to_a_page(one):
    page = one.go("index.html")
    pages = page.evaluate("JSON.parse(document.getElementById('pages').textContent).flat()")
    assert len(pages) > 25
    broken = []
    for address in pages:
        if address.startswith("source/"):
            continue
        page.evaluate("address => { location.hash = '#/' + address }", address)
        one.ready()
        links = page.eval_on_selector_all("main a[href^='#/']", "all => all.map(a => a.getAttribute('href'))")
        broken += [link for link in links if re.split("#", link)[1][1:] not in pages]
    assert broken == []


def test_it_is_the_same_report(one):
    page = one.go("index.html")
    expect(page.get_by_role("heading", level=1)).to_have_text("Can speculative decoding be switched off per batch?")
    page.locator('.answer a[href*="path=v2&design=A&severity=hard"]').click()
    expect(page.locator("[data-filter] output")).to_have_text("4 of 6 rows")
    expect(page.locator("nav a[aria-current]")).to_have_text("Coupling points")
    page.get_by_label("Kind").select_option("metrics")
    assert page.url.endswith("#/points.html#path=v2&design=A&severity=hard&kind=metrics")
    page.get_by_label("Severity").select_option("soft")
    page.get_by_role("link", name="accept length divides").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("accept length divides")
    page.go_back()
    expect(page.locator("[data-filter] output")).to_have_text("1 of 6 rows")


def test_a_function_is_shown_alone_and_a_line_marked(one):
    page = open_at(one, "#/functions/sglang.srt.managers.scheduler.html#Scheduler.process_batch_result")
    expect(page.locator("article:visible")).to_have_count(1)
    page.locator("article:visible .links a.at").first.click()
    expect(page.locator("li.target")).to_have_count(1)
    page.locator("[data-whole] summary").click()
    expect(page.locator("[data-whole] a.fn").nth(1)).to_be_visible()


def test_scripts_of_pages_run_whenever_they_are_shown(one):
    page = open_at(one, "#/tensors.html")
    expect(page.locator("[data-formula] + output").first).to_contain_text("=")
    page.evaluate("location.hash = '#/graph.html'")
    expect(page.locator("#g-side")).to_contain_text("EAGLEWorkerV2.forward_batch_generation")
    page.evaluate("location.hash = '#/tensors.html#bs=5'")
    expect(page.locator("[data-formula='(bs,)'] + output").first).to_have_text("= (5,)")
    page.keyboard.press("Control+k")
    page.keyboard.type("verify_v2")
    page.locator("#jump-list a").first.wait_for()
    page.keyboard.press("Enter")
    expect(page.locator("article:visible h2")).to_have_text("EAGLEWorkerV2.verify_v2")


def test_functions_that_nothing_refers_to_are_left_out_and_counted(one):
    page = open_at(one, "#/functions.html")
    expect(page.locator("main")).to_contain_text("leaves out")


def test_the_same_input_gives_the_same_bytes(single, tmp_path):
    render(
        sample_index(),
        DictSource(sample_files()),
        tmp_path,
        ReportOptions(single_file=True, runs=sample_runs(), jobs=1),
    )
    assert (tmp_path / "index.html").read_bytes() == (single / "index.html").read_bytes()
