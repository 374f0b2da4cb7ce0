"""Source trees in folders, text as Python reads it, and what is not SGLang."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest
from trees import MODULES, SCHEDULER, assert_is_the_tree, opener, refusal, write_tree

from sgltrace.errors import InputError
from sgltrace.files import user_cache_dir
from sgltrace.progress import SilentProgress
from sgltrace.sources import UndecodableSource, UnreadableFile, decode_source, open_source


@pytest.fixture
def opened(tmp_path):
    return opener(tmp_path / "cache")


@pytest.mark.parametrize("named", ["", "python", "python/sglang", "python/sglang/srt"])
def test_checkout_by_any_of_its_folders(tmp_path, opened, named):
    write_tree(tmp_path / "repo" / "python")
    tree = opened(tmp_path / "repo" / named)
    assert_is_the_tree(tree)
    assert tree.source.kind == "folder"
    assert (tree.source.root, tree.source.below) == (f"{tmp_path}/repo/python", "python")
    assert tree.locate("sglang/version.py") == tmp_path / "repo/python/sglang/version.py"
    assert tree.root_on_disk == tmp_path / "repo/python"


def test_relative_folder_keeps_the_users_name(tmp_path, opened, monkeypatch):
    write_tree(tmp_path / "repo" / "python")
    monkeypatch.chdir(tmp_path)
    assert opened("repo").source.root == "repo/python"
    monkeypatch.chdir(tmp_path / "repo/python/sglang")
    assert opened(".").source.root == ".."


def test_installed_package_takes_the_version_of_its_metadata(tmp_path, opened):
    write_tree(tmp_path / "site-packages")
    write_tree(tmp_path / "site-packages", {"sglang-9.0.dist-info/METADATA": b"Name: sglang\nVersion: 9.0\n"})
    tree = opened(tmp_path / "site-packages/sglang")
    assert (tree.source.version, tree.source.below) == ("9.0", "")
    assert "sglang-9.0.dist-info/METADATA" in tree.took


def test_copy_under_another_folder_name_is_what_it_imports(tmp_path, opened):
    write_tree(tmp_path)
    (tmp_path / "sglang").rename(tmp_path / "my copy")
    tree = opened(tmp_path / "my copy")
    assert_is_the_tree(tree)
    assert tree.root_on_disk is None


def test_fork_under_another_package_name(tmp_path, opened):
    write_tree(tmp_path, {"fork/srt/a.py": b"from fork.srt.b import c\n", "fork/srt/b.py": b"c = 1\n"})
    tree = opened(tmp_path)
    assert list(tree.modules) == ["fork.srt.a", "fork.srt.b"]
    assert tree.source.version is None and "version unknown" in tree.took


def test_a_fork_that_was_named_is_taken_before_sglang(tmp_path):
    write_tree(tmp_path, {**MODULES, "fork/srt/a.py": b"from fork.srt.b import c\n", "fork/srt/b.py": b"c = 1\n"})

    def opened(package):
        return open_source(str(tmp_path), cache_dir=tmp_path, progress=SilentProgress(), package=package)

    assert opened(None).package == "sglang"
    assert list(opened("fork").modules) == ["fork.srt.a", "fork.srt.b"]
    with pytest.raises(InputError, match="has no package spoon with a folder srt; it has fork"):
        opened("spoon")


def test_cache_folder_is_its_owners_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SGLTRACE_CACHE_DIR", str(tmp_path / "a/chosen"))
    assert stat.S_IMODE(user_cache_dir().stat().st_mode) == 0o700
    monkeypatch.delenv("SGLTRACE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    monkeypatch.setattr("sys.platform", "linux")
    (tmp_path / "b/sgltrace").mkdir(mode=0o755, parents=True)
    assert stat.S_IMODE(user_cache_dir().stat().st_mode) == 0o700


def test_fallback_version_is_not_taken(tmp_path, opened):
    write_tree(tmp_path)
    (tmp_path / "sglang/_version.py").unlink()
    assert opened(tmp_path).source.version is None
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "sglang"\nversion = "4.5"\n')
    assert opened(tmp_path).source.version == "4.5"


def test_what_no_import_can_name_is_no_module(tmp_path, opened):
    odd = dict.fromkeys(("sglang/a-b.py", "sglang/a.b.py", "sglang/.x/c.py", "sglang/x-y/d.py", "sglang/e.txt"), b"")
    write_tree(tmp_path)
    write_tree(tmp_path, odd)
    assert_is_the_tree(opened(tmp_path))


def test_package_wins_over_module_of_its_name(tmp_path, opened):
    write_tree(tmp_path, {**MODULES, "sglang/srt/x.py": b"", "sglang/srt/x/__init__.py": b"y = 1\n"})
    assert opened(tmp_path).modules["sglang.srt.x"] == "sglang/srt/x/__init__.py"


def test_folder_with_a_loop_of_links_and_a_pipe(tmp_path, opened):
    write_tree(tmp_path)
    (tmp_path / "sglang/loop").symlink_to(tmp_path / "sglang")
    (tmp_path / "sglang/gone.py").symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(tmp_path / "sglang/pipe.py")
    assert_is_the_tree(opened(tmp_path))


def test_odd_entries_are_passed_over_and_listed(tmp_path, opened, monkeypatch):
    write_tree(tmp_path)
    package = tmp_path / "sglang"
    (package / "itself.py").symlink_to(package / "itself.py")
    (package / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (package / "loop").symlink_to(package)
    os.mkfifo(package / "pipe.py")
    write_tree(package, {"secret/a.py": b"", "srt/b.py": b""})
    deep = package / "deep"
    deep.mkdir()
    before = Path.cwd()
    try:
        os.chdir(deep)
        for _ in range(1000):
            Path("d").mkdir()
            os.chdir("d")
        Path("a.py").touch()
    finally:
        os.chdir(before)
    scandir = os.scandir

    def refuse(place):
        if str(place).endswith("secret"):
            raise PermissionError(errno.EACCES, "Permission denied", str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)
    tree = opened(tmp_path)
    assert "sglang.srt.b" in tree.modules and SCHEDULER in tree.modules
    folders = [path for path in tree.unread if path.startswith("sglang/deep/")]
    assert len(folders) == 1 and "more than 100 folders inside one another" in tree.unread[folders[0]]
    assert {path: why for path, why in tree.unread.items() if path not in folders} == {
        "sglang/gone.py": "a link to nothing",
        "sglang/itself.py": "Too many levels of symbolic links",
        "sglang/loop/": "a link to a folder; links are not followed",
        "sglang/pipe.py": "not a regular file",
        "sglang/secret/": "Permission denied",
    }
    subprocess.run(["rm", "-rf", deep], check=True)  # Python's own way would nest as deeply


def test_unreadable_file_does_not_stop_the_tree(tmp_path, opened):
    write_tree(tmp_path)
    tree = opened(tmp_path)
    (tmp_path / "sglang/srt/managers/scheduler.py").unlink()
    with pytest.raises(UnreadableFile, match="cannot read"):
        tree.read_module(SCHEDULER)


def test_fingerprint_changes_with_a_file_and_not_without(tmp_path, opened):
    write_tree(tmp_path)
    first = opened(tmp_path).fingerprint()
    assert opened(tmp_path).fingerprint() == first
    (tmp_path / "sglang/srt/server_args.py").write_bytes(b"x = 1\n")
    assert opened(tmp_path).fingerprint() != first


def test_not_sglang(tmp_path, opened):
    assert "there is no" in refusal(opened, tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert "empty folder" in refusal(opened, tmp_path / "empty")
    write_tree(tmp_path / "other", {"pkg/__init__.py": b"", "readme.txt": b""})
    assert "is not SGLang" in refusal(opened, tmp_path / "other")
    assert "name a folder" in refusal(opened, "nothing-of-this-name")
    (tmp_path / "a.txt").write_text("text")
    assert "neither a wheel" in refusal(opened, tmp_path / "a.txt")
    write_tree(tmp_path / "repo")
    assert f"name the package itself: {tmp_path}/repo/sglang" in refusal(opened, tmp_path / "repo/sglang/srt/managers")
    assert "no source named" in refusal(opened, " ")
    assert "there is no ~nobody-of-this-name/x: " in refusal(opened, "~nobody-of-this-name/x")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"# coding: latin-1\ns = '\xe9'\n", "# coding: latin-1\ns = 'é'\n"),
        (b"a\r\nb\rc\n", "a\nb\nc\n"),
        (b"a\n\x0cb\n", "a\n\x0cb\n"),
        (b"", ""),
    ],
)
def test_text_is_what_python_reads(data, text):
    assert decode_source(data) == text


@pytest.mark.parametrize("data", [b"# coding: nothing\n", b"s = '\xff'\n", b"# coding: hex\nx\n"])
def test_undecodable(data):
    with pytest.raises(UndecodableSource, match="not text"):
        decode_source(data)
