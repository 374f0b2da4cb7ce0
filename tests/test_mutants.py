"""Mutants of each kind of input: no traceback, no hang, and nothing else suffers.

Budgets are small and seeds fixed. A long run: ``SGLTRACE_MUTANTS=100`` has a hundred times as many, and
``benchmarks/mutants.py`` puts mutants of sources into whole releases.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutants import edited, mutant
from sample_index import DictSource, sample_files, sample_index
from trees import opener, write_sdist, write_wheel

from sgltrace.errors import InputError, SgltraceError, UsageError
from sgltrace.index import IndexOptions, build
from sgltrace.index.facts import syntax
from sgltrace.index.facts.parse import parse_source
from sgltrace.insight.assemble import make_index
from sgltrace.insight.query import CallGraph
from sgltrace.progress import SilentProgress
from sgltrace.reports import ReportOptions, render
from sgltrace.runtime import read_trace
from sgltrace.runtime.plan import sites_from_file
from sgltrace.sources import SourceTree, decode_source, open_source, pip
from sgltrace.sources.layout import _project_version
from sgltrace.workspace import encode_index, load_index

ROOT = Path(__file__).parent.parent
TOY = ROOT / "fixtures/toysgl"
LONGEST_S = 60
TIMES = int(os.environ.get("SGLTRACE_MUTANTS", "1"))

few = settings(max_examples=40 * TIMES, deadline=None, derandomize=True, database=None)


@contextmanager
def bounded() -> Iterator[None]:
    """A test that hangs fails."""

    def late(number: int, frame: object) -> None:
        raise AssertionError(f"still busy after {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def toy() -> SourceTree:
    return open_source(str(TOY), cache_dir=TOY, progress=SilentProgress())


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def read_by_an_index(toy, cache) -> list[str]:
    """The paths of the files that an index has functions of."""
    made = build(toy, IndexOptions(cache_dir=cache, jobs=1), SilentProgress())
    return sorted({function.file for function in made.functions})


@pytest.mark.parametrize("seed", range(120 * TIMES))
def test_a_mutant_is_read_or_told_why_not(seed, toy):
    paths = sorted(toy.modules.values())
    source = toy.read(paths[seed % len(paths)])
    with bounded():
        try:
            text = decode_source(mutant(source, seed))
        except InputError:
            return
        facts = parse_source(text)
        assert (facts.error is None) or facts.body == []
        assert syntax.encode(syntax.decode(syntax.encode(facts))) == syntax.encode(facts)


@pytest.mark.parametrize("seed", range(12 * TIMES))
def test_a_mutant_in_a_tree_ends_no_index_and_takes_no_other_file_with_it(seed, toy, cache, read_by_an_index):
    path = read_by_an_index[seed % len(read_by_an_index)]
    tree = edited(toy, {path: mutant(toy.read(path), seed)})
    make = make_index if seed % 6 == 0 else build
    with bounded():
        try:
            made = make(tree, IndexOptions(cache_dir=cache, jobs=1), SilentProgress())
        except InputError as error:
            assert "\n" not in str(error)
            return
        assert {skipped.file for skipped in made.skipped} <= {path}
        assert msgspec.json.decode(encode_index(made), type=type(made)) == made


@few
@given(st.data())
def test_a_damaged_archive_is_read_or_refused(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("archive")
    path = data.draw(st.sampled_from([write_wheel, write_sdist]), label="kind")
    path = write_wheel(folder) if path is write_wheel else write_sdist(folder / "sglang-1.2.3.tar.gz")
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4), label="edits")):
        content[data.draw(st.integers(0, len(content) - 1), label="at")] = data.draw(st.integers(0, 255), label="byte")
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)), label="length")])
    try:
        tree = opener(folder / "cache")(path)
        for module in tree.modules:
            tree.read_module(module)
    except InputError as error:
        assert "\n" not in str(error)
    assert {entry.name for entry in folder.iterdir()} <= {path.name, "cache"}
    shutil.rmtree(folder)


@few
@given(st.lists(st.tuples(st.text(max_size=12), st.binary(max_size=40)), max_size=8))
def test_any_zip_is_read_or_refused(tmp_path_factory, members):
    folder = tmp_path_factory.mktemp("zip")
    with zipfile.ZipFile(folder / "a.whl", "w") as archive:
        for name, content in dict(members).items():
            try:
                archive.writestr(f"sglang/srt/{name}", content)
            except (ValueError, UnicodeError):
                continue  # no zip has such a name
    try:
        opener(folder / "cache")(folder / "a.whl")
    except InputError as error:
        assert "\n" not in str(error)
    shutil.rmtree(folder)


WORDS = st.sampled_from(
    ["sglang", "SGLang", "sgl", "[all]", "==", ">=", "<", "~=", "!=", "===", "0.5.9", "1.*", "1!2", "@", "git+ssh://",
     "file:", ";", "python_version", "extra", "'3'", " ", ",", "/", "..", "~", "\0", "\n", "-", "--", "é", "\ud800"]
)  # fmt: skip


@few
@given(st.one_of(st.lists(WORDS, max_size=7).map("".join), st.text(max_size=20)))
def test_any_source_that_a_user_may_name_is_opened_or_refused_in_one_line(tmp_path_factory, requested):
    def nothing_there(*arguments: str) -> str:
        raise pip.NoSuchRelease("no such release")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pip, "_pip", nothing_there)
        folder = tmp_path_factory.mktemp("cwd")
        patch.chdir(folder)
        with suppress(InputError):
            opener(folder / "cache")(requested)


def replaced(plain: object, dice: random.Random) -> object:
    """JSON with one value in the place of another, anywhere in it."""
    if isinstance(plain, (dict, list)) and plain and dice.random() < 0.93:
        key = dice.choice(list(plain)) if isinstance(plain, dict) else dice.randrange(len(plain))
        if dice.random() < 0.1:
            del plain[key]
        else:
            plain[key] = replaced(plain[key], dice)
        return plain
    return dice.choice(
        [None, True, -1, 2**70, 0.5, "", "x", "v3", "hard", "a:b.c", "1/0", "\u202e", [], {}, [[]], {"a": 1}]
    )


@pytest.mark.parametrize("seed", range(40 * TIMES))
def test_an_index_with_anything_in_it_is_used_or_refused(seed, tmp_path):
    dice = random.Random(seed)
    plain = json.loads(encode_index(sample_index(modules=1, functions=3)))
    for _ in range(dice.choice([1, 1, 5])):
        plain = replaced(plain, dice)
    (tmp_path / "index.json").write_text(json.dumps(plain))
    with bounded():
        try:
            index = load_index(tmp_path / "index.json")
        except InputError as error:
            assert "\n" not in str(error)
            return
        try:
            graph = CallGraph(index)
            for function in index.functions[:1]:
                graph.calls(function.id)
            render(index, DictSource(sample_files(1, 3)), tmp_path / "report", ReportOptions())
        except SgltraceError as error:
            assert "\n" not in str(error)


@few
@given(st.data())
def test_a_damaged_trace_is_read_as_far_as_it_goes(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("trace") / "trace"
    shutil.copytree(ROOT / "fixtures/traces/base", folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md")
    path = files[data.draw(st.integers(0, len(files) - 1), label="file")]
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 5), label="edits")):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)), label="at")
        content[at : at + 4] = data.draw(st.binary(max_size=8), label="bytes")
    path.write_bytes(content)
    with bounded():
        try:
            trace = read_trace(folder)
            for process in trace.recording():
                for record in process.records():
                    record.values()
        except SgltraceError as error:
            assert "\n" not in str(error)
    shutil.rmtree(folder.parent)


TOML = st.one_of(
    st.text(max_size=40),
    st.lists(
        st.sampled_from(
            ["[[site]]\n", "[project]\n", "function = ", "version = ", "fields = ", "'m:f'", "'args,return'", "1", "[]",
             "{}", "'", "\n", "= ", "[project.version]\n", "inf", "1979-05-27", '"\\u0000"']
        ),
        max_size=8,
    ).map("".join),
)  # fmt: skip


@few
@given(TOML)
def test_any_toml_is_read_or_refused(tmp_path_factory, text):
    data = text.encode("utf-8", "surrogatepass")
    assert _project_version(data) is None or isinstance(_project_version(data), str)
    path = tmp_path_factory.mktemp("toml") / "sites.toml"
    path.write_bytes(data)
    try:
        sites_from_file(path)
    except (InputError, UsageError) as error:
        assert "\n" not in str(error)
