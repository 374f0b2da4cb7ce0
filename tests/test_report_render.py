"""The report as files: what is there, that every link leads somewhere, and that the same input gives the same bytes."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import msgspec
import pytest
from report_pages import pages as pages_of
from report_pages import sources
from sample_index import DictSource, sample_files, sample_index, sample_runs

from sgltrace.errors import InputError, UsageError
from sgltrace.model import Function, Index, Source
from sgltrace.reports import ReportOptions, render


class Links(HTMLParser):
    """The addresses and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: list[str] = []
        self.lines: list[tuple[int, int]] = []
        self.feed(text)

    def has_line(self, line: int) -> bool:
        return any(first <= line <= last for first, last in self.lines)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "data-anchors" in given:
            self.lines.append((int(given["data-first"]), int(given["data-last"])))
        for name, value in attributes:
            if name in ("href", "src") and not (tag == "link" and value.startswith("data:")):
                self.targets.append(value or "")
            if name == "id":
                self.ids.append(value or "")


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    result = render(
        sample_index(), DictSource(sample_files()), folder, ReportOptions(editor="vscode", runs=sample_runs())
    )
    assert result.index == folder / "index.html"
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert (result.files, result.bytes) == (len(written), sum(path.stat().st_size for path in written))
    return folder


@pytest.fixture(scope="module")
def pages(report):
    return {name: page.html for name, page in pages_of(report).items()}


def test_every_link_within_the_report_leads_to_a_page_and_a_place_on_it(pages):
    links = {name: Links(text) for name, text in pages.items()}
    broken = []
    for name, found in links.items():
        for target in found.targets:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, fragment = (target[2:] if target.startswith("#/") else name + target).partition("#")
            file, fragment = unquote(file), unquote(fragment)
            there = links.get(file)
            state = "=" in fragment  # the state of a table or drawing, not a place
            line = re.fullmatch(r"L(\d+)", fragment)
            if (
                there is None
                or (line and not there.has_line(int(line[1])))
                or (fragment and not state and not line and fragment not in there.ids)
            ):
                broken.append((name, target))
    assert broken == []


def test_ids_are_unique_on_each_page(report):
    for name, page in pages_of(report).items():
        for part in page.parts.values() or [page.html]:
            ids = Links(part).ids
            assert len(ids) == len(set(ids)), name


def test_nothing_is_fetched_from_elsewhere_and_the_frame_forbids_it(report, pages):
    frame = (report / "index.html").read_text()
    assert "default-src 'none'" in frame
    assert not re.search(r"<script(?![^>]+(?:src=|application/json))", frame)
    for name, text in {**pages, "frame": frame}.items():
        assert not re.search(r'(?:src|srcset|data)="https?:', text), name
        assert not re.search(r'<link[^>]+href="https?:', text), name
        assert " style=" not in text and " onclick=" not in text, name


def test_each_function_on_a_path_has_its_source_callers_and_callees(report):
    page = pages_of(report)["functions/sglang.srt.speculative.eagle_worker_v2.html"]
    part = page.parts["EAGLEWorkerV2.verify_v2"]
    first = int(re.search(r'data-first="(\d+)"', part)[1])
    text = sources(report)["sglang/srt/speculative/eagle_worker_v2.py"]
    lines = {start + at: line for start, piece in text for at, line in enumerate(piece.split("\n"))}
    assert "def verify_v2" in lines[first]
    assert "forward_batch_plain" in part and "accept_tokens" in part
    assert part.count('class="way"') == 1  # v2 only
    everything = "".join(page.html for page in pages_of(report).values())
    missing = [f.id for f in sample_index().functions if f.paths and f'data-id="{f.id}"' not in everything]
    assert missing == []


def test_source_text_is_kept_once(report):
    for file, pieces in sources(report).items():
        ends = [(first, first + text.count("\n")) for first, text in pieces]
        assert all(last < first for (_, last), (first, _) in itertools.pairwise(ends)), file


def test_the_first_screen_counts_blockers_by_path_and_design(pages):
    rows = re.findall(r"path=(v\d)&amp;design=(\w)&amp;severity=hard\"><b>(\d+)</b>", pages["index.html"])
    assert {(path, design): int(count) for path, design, count in rows} == {
        ("v1", "A"): 3, ("v1", "B"): 3, ("v1", "C"): 1, ("v2", "A"): 4, ("v2", "B"): 4, ("v2", "C"): 2,
    }  # fmt: skip


def test_the_step_is_written_in_the_order_of_the_source(pages):
    text = pages["step-v2.html"]
    names = [
        "get_next_batch_to_run",
        "run_batch",
        "EAGLEWorkerV2.<wbr>forward_batch_generation",
        "process_batch_result",
    ]
    places = [text.index(name) for name in names]
    assert places[0] < places[1] < places[3]
    assert "EAGLEWorker.<wbr>draft<" not in text


def test_an_index_of_calls_alone_gives_a_whole_report(tmp_path):
    index = sample_index()
    bare = msgspec.structs.replace(
        index, coupling_points=[], fields=[], tensors=[], contract=[], off_steps=[], workers=[], notes=[], skipped=[]
    )
    render(bare, DictSource(sample_files()), tmp_path, ReportOptions())
    assert "were not derived" in (tmp_path / "index.html").read_text()


def test_a_release_without_a_path_says_so(tmp_path):
    index = msgspec.structs.replace(sample_index(), entry_points={"v1": None, "v2": sample_index().entry_points["v2"]})
    render(index, DictSource(sample_files()), tmp_path, ReportOptions())
    assert "This release has no v1 worker" in (tmp_path / "index.html").read_text()
    assert "step-v1.html" not in pages_of(tmp_path)


def test_an_empty_index_gives_a_report(tmp_path):
    source = Source(name="sglang", version=None, root=".", kind="folder", requested=".")
    index = Index(source=source, entry_points={"v1": None, "v2": None}, functions=[], calls=[], unresolved=[])
    assert render(index, None, tmp_path, ReportOptions()).files > 5


class Unreadable:
    def read(self, path, /):
        raise InputError(f"{path}: gone")


@pytest.mark.parametrize("source", [None, Unreadable(), DictSource({})])
def test_source_that_cannot_be_read_is_said_to_be_so(source, tmp_path):
    render(sample_index(modules=1, functions=2), source, tmp_path, ReportOptions())
    assert "could not be read" in pages_of(tmp_path)["functions/sglang.srt.managers.scheduler.html"].html


def test_functions_that_a_file_system_cannot_tell_apart_get_pages_of_their_own(tmp_path):
    index = sample_index(modules=1, functions=2)
    for module in ("sglang.Aux", "sglang.aux", "sglang.../x", "sglang." + "long" * 90):
        index.functions.append(
            Function(id=f"{module}:f", file="a.py", line=1, end_line=1, phase=[], paths=["v1"], component="")
        )
    render(index, None, tmp_path / "out", ReportOptions())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    names = [name.lower() for name in pages_of(tmp_path / "out") if name.startswith("functions/")]
    assert len(names) == len(set(names)) and max(map(len, names)) < 150


@pytest.mark.parametrize("editor", ["emcas", "javascript:alert({line})", "vscode://file/{path}"])
def test_an_editor_that_is_none_is_refused(editor, tmp_path):
    with pytest.raises(UsageError, match="--editor"):
        render(sample_index(modules=1, functions=2), None, tmp_path, ReportOptions(editor=editor))


def test_editor_links_name_the_file_and_the_line(tmp_path):
    options = ReportOptions(editor="myedit://{file}?at={line}", source_path=None)
    render(sample_index(modules=1, functions=2), DictSource(sample_files()), tmp_path, options)
    page = pages_of(tmp_path)["functions/sglang.srt.managers.scheduler.html"].html
    assert 'href="myedit://sglang/srt/managers/scheduler.py?at=39"' in page
