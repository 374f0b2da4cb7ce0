"""What a user may name as SRC: folders, archives, revisions; and what is refused."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from trees import MODULES, write_sdist, write_tree, write_wheel

from sgltrace.errors import InputError
from sgltrace.progress import SilentProgress
from sgltrace.sources import SourceTree, UndecodableSource, UnreadableFile, decode_source, limits, open_source


@pytest.fixture
def opened(tmp_path):
    def open_it(requested: Path | str) -> SourceTree:
        return open_source(str(requested), cache_dir=tmp_path / "cache", progress=SilentProgress())

    return open_it


def refusal(opened, requested) -> str:
    with pytest.raises(InputError) as caught:
        opened(requested)
    assert "\n" not in str(caught.value)
    return str(caught.value)


SCHEDULER = "sglang.srt.managers.scheduler"


def assert_is_the_tree(tree: SourceTree) -> None:
    assert list(tree.modules) == ["sglang", "sglang._version", SCHEDULER, "sglang.srt.server_args", "sglang.version"]
    assert tree.modules[SCHEDULER] == "sglang/srt/managers/scheduler.py"
    assert tree.read_module(SCHEDULER) == MODULES["sglang/srt/managers/scheduler.py"]
    assert (tree.source.name, tree.source.version) == ("sglang", "1.2.3")


@pytest.mark.parametrize("named", ["", "python", "python/sglang", "python/sglang/srt"])
def test_checkout_by_any_of_its_folders(tmp_path, opened, named):
    write_tree(tmp_path / "repo" / "python")
    tree = opened(tmp_path / "repo" / named)
    assert_is_the_tree(tree)
    assert tree.source.kind == "folder"
    assert tree.source.root == f"{tmp_path}/repo/python"
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
    assert tree.source.version == "9.0"
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


def test_unreadable_file_does_not_stop_the_tree(tmp_path, opened):
    write_tree(tmp_path)
    tree = opened(tmp_path)
    (tmp_path / "sglang/srt/managers/scheduler.py").unlink()
    with pytest.raises(UnreadableFile, match="cannot read"):
        tree.read_module(SCHEDULER)


@pytest.mark.parametrize("path", ["sglang/nothing.py", "../outside.py", "sglang/../../outside.py", "/etc/passwd"])
def test_nothing_outside_the_tree_is_read(tmp_path, checkout, opened, path):
    write_tree(tmp_path / "in")
    (tmp_path / "outside.py").write_text("secret")
    for tree in (opened(tmp_path / "in"), opened(write_wheel(tmp_path)), opened(f"{checkout}@HEAD")):
        with pytest.raises(UnreadableFile, match="there is no file"):
            tree.read(path)


def test_fingerprint_changes_with_a_file_and_not_without(tmp_path, opened):
    write_tree(tmp_path)
    first = opened(tmp_path).fingerprint()
    assert opened(tmp_path).fingerprint() == first
    (tmp_path / "sglang/srt/server_args.py").write_bytes(b"x = 1\n")
    assert opened(tmp_path).fingerprint() != first


def test_wheel(tmp_path, opened):
    path = write_wheel(tmp_path)
    tree = opened(path)
    assert_is_the_tree(tree)
    assert (tree.source.kind, tree.source.root, tree.locate("sglang/version.py")) == ("wheel", path.name, None)
    first = tree.fingerprint()
    write_wheel(tmp_path, extra={"sglang/more.py": b""})
    assert opened(path).fingerprint() != first


def test_sdist_is_read_twice_alike(tmp_path, opened):
    path = write_sdist(tmp_path / "sglang-1.2.3.tar.gz")
    for _ in range(2):
        tree = opened(path)
        assert_is_the_tree(tree)
        assert (tree.source.kind, tree.source.root) == ("sdist", path.name)


def test_sdist_of_the_whole_repository(tmp_path, opened):
    path = write_sdist(tmp_path / "repo.tar.gz", {f"python/{name}": data for name, data in MODULES.items()})
    assert_is_the_tree(opened(path))


@pytest.mark.parametrize("name", ["../climbs.py", "/absolute.py", "a/../../climbs.py", "C:/drive.py", "a\\..\\b.py"])
def test_archive_that_points_outside_is_refused(tmp_path, opened, name):
    assert "points outside" in refusal(opened, write_wheel(tmp_path, extra={name: b""}))
    assert "points outside" in refusal(opened, write_sdist(tmp_path / "x.tar.gz", members=[tarfile.TarInfo(name)]))
    assert not list(tmp_path.rglob("climbs.py"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_sdist_with_links_or_devices_is_refused(tmp_path, opened, kind):
    member = tarfile.TarInfo("sglang-1.2.3/sglang/secret.py")
    member.type, member.linkname = kind, "/etc/passwd"
    said = refusal(opened, write_sdist(tmp_path / "x.tar.gz", members=[member]))
    assert "is a link" in said or "is a device" in said


def test_wheel_with_a_link_is_refused(tmp_path, opened):
    path = write_wheel(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("sglang/secret.py")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    assert "is a link" in refusal(opened, path)


def test_duplicates_are_refused(tmp_path, opened):
    path = write_wheel(tmp_path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("sglang/version.py", b"__version__ = '6'\n")
    assert "two members" in refusal(opened, path)
    again = tarfile.TarInfo("sglang-1.2.3/sglang/version.py")
    assert "two members" in refusal(opened, write_sdist(tmp_path / "x.tar.gz", members=[again]))


def test_bombs_are_refused(tmp_path, opened):
    zeros = b"\0" * (limits.RATIO_FROM + 1)
    assert "bomb" in refusal(opened, write_wheel(tmp_path, extra={"sglang/zeros.bin": zeros}))
    member = tarfile.TarInfo("sglang-1.2.3/zeros.bin")
    member.size = len(zeros)
    assert "bomb" in refusal(opened, write_sdist(tmp_path / "x.tar.gz", members=[member]))


def test_tar_whose_header_claims_gigabytes_is_refused(tmp_path, opened):
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 8 << 30
    path = tmp_path / "x.tar.gz"
    path.write_bytes(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024))
    assert "bomb" in refusal(opened, path)


def test_too_many_members_are_refused(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(limits, "MAX_MEMBERS", 5)
    assert "more than 5 members" in refusal(opened, write_wheel(tmp_path))


def test_damaged_archives(tmp_path, opened):
    whole = write_wheel(tmp_path).read_bytes()
    cut = tmp_path / "cut.whl"
    cut.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refusal(opened, cut)
    cut_sdist = tmp_path / "cut.tar.gz"
    cut_sdist.write_bytes(write_sdist(tmp_path / "x.tar.gz").read_bytes()[:200])
    assert "fetch it again" in refusal(opened, cut_sdist)
    assert not list((tmp_path / "cache").rglob("*.zip"))


def test_damaged_member_is_unreadable_and_the_rest_is_read(tmp_path, opened):
    path = write_wheel(tmp_path)
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("sglang/srt/managers/scheduler.py").header_offset
    data = bytearray(path.read_bytes())
    data[at + 30 + len("sglang/srt/managers/scheduler.py") + 2] ^= 0xFF
    path.write_bytes(data)
    tree = opened(path)
    with pytest.raises(UnreadableFile):
        tree.read_module(SCHEDULER)
    assert tree.read_module("sglang.srt.server_args")


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


def test_zip_without_sglang(tmp_path, opened):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("pkg/a.py", b"")
    assert "is not SGLang" in refusal(opened, tmp_path / "a.zip")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    repo = write_tree(tmp_path / "repo" / "python").parent
    git(repo, "init")
    git(repo, "add", "-A")
    git(repo, "commit", "-m", "one")
    git(repo, "tag", "v1.2.3")
    return repo


def test_revision_is_read_and_the_work_tree_untouched(checkout, opened):
    (checkout / "python/sglang/srt/managers/scheduler.py").write_bytes(b"changed = True\n")
    (checkout / "python/sglang/new.py").write_bytes(b"")
    for named in (
        f"{checkout}@HEAD",
        f"{checkout}@v1.2.3",
        f"{checkout}/python@main",
        f"{checkout}/python/sglang@HEAD~0",
    ):
        tree = opened(named)
        assert_is_the_tree(tree)
        assert (tree.source.kind, tree.source.root) == ("revision", named)
    assert (checkout / "python/sglang/srt/managers/scheduler.py").read_bytes() == b"changed = True\n"


def test_revision_takes_the_version_of_its_tag_where_no_file_has_one(checkout, opened):
    git(checkout, "rm", "python/sglang/_version.py")
    git(checkout, "commit", "-m", "two")
    git(checkout, "tag", "v7.0")
    assert opened(f"{checkout}@v7.0").source.version == "7.0"
    assert opened(f"{checkout}@main").source.version is None


def test_unknown_revisions(checkout, tmp_path, opened):
    assert "has no revision 'nope'" in refusal(opened, f"{checkout}@nope")
    assert "names no revision" in refusal(opened, f"{checkout}@--upload-pack=x")
    (tmp_path / "plain").mkdir()
    assert "git cannot read" in refusal(opened, f"{tmp_path}/plain@HEAD")


def test_revision_without_git(checkout, opened, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert "needs git" in refusal(opened, f"{checkout}@HEAD")


def test_revision_inside_a_git_hook_reads_the_named_repository(checkout, opened, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    assert_is_the_tree(opened(f"{checkout}@HEAD"))


def test_path_with_an_at_sign_is_a_path(tmp_path, opened):
    write_tree(tmp_path / "a@b")
    assert_is_the_tree(opened(tmp_path / "a@b"))


def test_fork_of_the_process_reads_too(tmp_path, checkout, opened):
    for tree in (opened(write_wheel(tmp_path)), opened(f"{checkout}@HEAD")):
        tree.read_module(SCHEDULER)
        if (child := os.fork()) == 0:
            os._exit(0 if tree.read_module(SCHEDULER) == MODULES["sglang/srt/managers/scheduler.py"] else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert tree.read_module("sglang.srt.server_args")


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


def test_zip_sdist(tmp_path, opened):
    wheel = write_wheel(tmp_path)
    shutil.copy(wheel, tmp_path / "sglang.zip")
    assert opened(tmp_path / "sglang.zip").source.kind == "sdist"
