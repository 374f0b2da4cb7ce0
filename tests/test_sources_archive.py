"""Wheels and sdists; hostile and damaged ones."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile

import pytest
from trees import MODULES, SCHEDULER, assert_is_the_tree, opener, refusal, write_sdist, write_wheel

from sgltrace.sources import UnreadableFile, limits


@pytest.fixture
def opened(tmp_path):
    return opener(tmp_path / "cache")


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


def test_damaged_metadata_says_nothing(tmp_path, opened):
    path = write_wheel(tmp_path)
    name = "sglang-1.2.3.dist-info/METADATA"
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo(name).header_offset
    data = bytearray(path.read_bytes())
    data[at + 30 + len(name) + 2] ^= 0xFF
    path.write_bytes(data)
    assert opened(path).source.version == "1.2.3"  # from its other file


def test_zip_without_sglang(tmp_path, opened):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("pkg/a.py", b"")
    assert "is not SGLang" in refusal(opened, tmp_path / "a.zip")


def test_zip_sdist(tmp_path, opened):
    wheel = write_wheel(tmp_path)
    shutil.copy(wheel, tmp_path / "sglang.zip")
    assert opened(tmp_path / "sglang.zip").source.kind == "sdist"
