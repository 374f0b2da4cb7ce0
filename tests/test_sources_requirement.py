"""Requirements, fetched by the real pip out of a folder of wheels of our own."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from trees import MODULES, write_sdist, write_wheel

from sgltrace.errors import InputError
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source, pip
from sgltrace.sources.requirement import parse_requirement

OTHERS_PYTHON = "cp312" if sys.version_info[:2] != (3, 12) else "cp313"


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A registry that is a folder: nothing else is asked."""
    folder = tmp_path / "registry"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    settings = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def fetched(tmp_path):
    return lambda requested: open_source(requested, cache_dir=tmp_path / "cache", progress=SilentProgress())


def test_pinned_release_is_fetched_once(registry, fetched):
    wheel = write_wheel(registry)
    tree = fetched("sglang==1.2.3")
    assert (tree.source.kind, tree.source.version, tree.source.root) == ("requirement", "1.2.3", wheel.name)
    wheel.unlink()
    assert fetched("sglang == 1.2.3").fingerprint() == tree.fingerprint()


@pytest.mark.parametrize(
    "tags", [f"{OTHERS_PYTHON}-{OTHERS_PYTHON}-manylinux_2_34_x86_64", f"{OTHERS_PYTHON}-abi3-manylinux2014_aarch64"]
)
def test_wheel_for_another_python_and_platform(registry, fetched, tags):
    write_wheel(registry, f"sglang-1.2.3-{tags}.whl")
    assert fetched("sglang==1.2.3").source.version == "1.2.3"


def test_newest_is_taken_whatever_its_platform(registry, fetched):
    write_wheel(registry)
    write_wheel(registry, f"sglang-1.3.0-{OTHERS_PYTHON}-{OTHERS_PYTHON}-manylinux_2_34_x86_64.whl")
    write_wheel(registry, "sglang-1.4.0rc1-py3-none-any.whl")
    assert fetched("sglang").source.version == "1.3.0"
    assert fetched("sglang<1.3").source.version == "1.2.3"
    assert fetched("sglang==1.4.0rc1").source.version == "1.4.0rc1"


def test_unknown_releases_are_one_line(registry, fetched):
    write_wheel(registry)
    with pytest.raises(InputError, match="finds no wheel of sglang==9"):
        fetched("sglang==9")
    with pytest.raises(InputError, match=r"the newest is 1\.2\.3"):
        fetched("sglang>9")


def test_out_of_reach_the_newest_that_was_fetched_will_do(registry, fetched, monkeypatch):
    write_wheel(registry)
    fetched("sglang==1.2.3")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens at the discard port
    monkeypatch.setattr(pip, "_PYTHONS", ())
    assert fetched("sglang").source.version == "1.2.3"
    with pytest.raises(InputError, match="cannot reach its package registry"):
        fetched("sglang==1.5")
    with pytest.raises(InputError, match="cannot reach its package registry"):
        fetched("sglang>1.5")


def test_two_runs_at_once_fetch_one_release(registry, fetched):
    write_wheel(registry)
    with ThreadPoolExecutor(3) as pool:
        trees = list(pool.map(fetched, ["sglang==1.2.3"] * 3))
    assert len({tree.fingerprint() for tree in trees}) == 1


def test_without_pip(registry, fetched, monkeypatch):
    monkeypatch.setattr(pip.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="ensurepip"):
        fetched("sglang==1.2.3")


SETUP = (
    "import os, pathlib\npathlib.Path(os.environ['RAN']).touch()\nfrom setuptools import setup\nsetup(name='sglang')\n"
)


def test_nothing_of_an_sdist_is_run(registry, fetched, tmp_path, monkeypatch):
    monkeypatch.setenv("RAN", str(tmp_path / "ran"))
    write_sdist(registry / "sglang-1.2.3.tar.gz", {**MODULES, "setup.py": SETUP.encode()})
    with pytest.raises(
        InputError, match=r"no wheel of sglang==1\.2\.3; .* an sdist can be named as a file \(pip says: "
    ):
        fetched("sglang==1.2.3")
    assert fetched(str(registry / "sglang-1.2.3.tar.gz")).source.version == "1.2.3"
    assert not (tmp_path / "ran").exists()


def test_nothing_of_the_working_folder_is_run(registry, fetched, tmp_path, monkeypatch):
    write_wheel(registry)
    (tmp_path / "here").mkdir()
    for name in ("pip", "runpy", "importlib", "subprocess"):
        (tmp_path / f"here/{name}.py").write_text(f"import sys; sys.exit('{name} of the working folder')\n")
    monkeypatch.chdir(tmp_path / "here")
    assert fetched("sglang==1.2.3").source.version == "1.2.3"


def test_only_sglang_and_a_fork_that_was_named_are_fetched(registry, fetched, tmp_path):
    write_wheel(registry, "sglnag-1.2.3-py3-none-any.whl")
    with pytest.raises(InputError, match=r"sglnag==1\.2\.3 is not SGLang, and is not fetched; .* --package sglnag"):
        fetched("sglnag==1.2.3")
    assert not list((tmp_path / "cache").rglob("*.whl"))
    tree = open_source("sglnag==1.2.3", cache_dir=tmp_path / "cache", progress=SilentProgress(), package="sglnag")
    assert tree.source.name == "sglang"  # what the fork's wheel has in it


def test_a_marker_that_does_not_hold_is_told_and_extras_are_too(registry, fetched):
    write_wheel(registry)
    with pytest.raises(InputError, match=r"its marker does not hold for this Python; leave it out: sglang==1\.2\.3"):
        fetched("sglang==1.2.3; python_version < '3'")
    assert fetched("sglang==1.2.3; python_version > '3'").source.version == "1.2.3"
    assert "its extras (all, srt) are other packages, and not read" in fetched("sglang[srt,all]==1.2.3").took


def test_a_misspelt_name_is_not_looked_up():
    assert parse_requirement("sglnag") is None
    assert parse_requirement("sglang[all]>=0.5") is not None
    assert parse_requirement("a fork==1") is None


def test_urls_are_refused(fetched):
    with pytest.raises(InputError, match="names a URL"):
        fetched("sglang @ git+ssh:example")


def test_pip_that_fails_otherwise_gives_its_own_line(registry, fetched, monkeypatch):
    said = subprocess.CompletedProcess([], 1, stdout="", stderr="WARNING: x\nERROR: the disk is full\nmore\n")
    monkeypatch.setattr(pip.subprocess, "run", lambda *arguments, **options: said)
    with pytest.raises(InputError, match="pip cannot fetch sglang==1: the disk is full"):
        fetched("sglang==1")


def test_a_damaged_file_in_the_cache_is_fetched_again(registry, fetched, tmp_path):
    write_wheel(registry)
    fetched("sglang==1.2.3")
    (kept,) = (tmp_path / "cache").rglob("*.whl")
    kept.write_bytes(b"half")
    assert fetched("sglang==1.2.3").source.version == "1.2.3"


def test_unusable_cache_folder_says_how_to_choose_another(registry, fetched, tmp_path):
    write_wheel(registry)
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InputError, match="SGLTRACE_CACHE_DIR names another"):
        fetched("sglang==1.2.3")
