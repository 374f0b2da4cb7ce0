"""Revisions of a git checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from trees import MODULES, SCHEDULER, assert_is_the_tree, opener, refusal, write_tree, write_wheel

from sgltrace.sources import UnreadableFile, revision


@pytest.fixture
def opened(tmp_path):
    return opener(tmp_path / "cache")


@pytest.mark.parametrize("path", ["sglang/nothing.py", "../outside.py", "sglang/../../outside.py", "/etc/passwd"])
def test_nothing_outside_the_tree_is_read(tmp_path, checkout, opened, path):
    write_tree(tmp_path / "in")
    (tmp_path / "outside.py").write_text("secret")
    for tree in (opened(tmp_path / "in"), opened(write_wheel(tmp_path)), opened(f"{checkout}@HEAD")):
        with pytest.raises(UnreadableFile, match="there is no file"):
            tree.read(path)


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
        assert (tree.source.kind, tree.source.root, tree.source.below) == ("revision", named, "python")
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


@pytest.fixture
def partial(tmp_path, checkout):
    """A partial clone, as its maker hands it on: whoever fetches what it lacks runs a program of theirs."""
    git(checkout, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--no-checkout", "--filter=blob:none", f"file://{checkout}", "partial")
    clone = tmp_path / "partial"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    program.chmod(0o755)
    git(clone, "config", "remote.origin.uploadpack", str(program))
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.gitProxy", "core.alternateRefsCommand"):
        git(clone, "config", name, str(program))
    for name in ("diff.x.textconv", "filter.x.smudge", "credential.helper", "gpg.program"):
        git(clone, "config", name, str(program))
    (clone / ".git/info/attributes").write_text("*.py diff=x filter=x\n")
    for hook in ("post-index-change", "reference-transaction", "post-checkout"):
        (clone / ".git/hooks").mkdir(exist_ok=True)
        (clone / ".git/hooks" / hook).symlink_to(program)
    return clone


@pytest.mark.parametrize("older", [False, True])
def test_nothing_that_a_checkout_names_is_run(partial, tmp_path, opened, monkeypatch, older):
    if older:  # a git that does not know the word yet still must not speak
        monkeypatch.delitem(revision._NO_PROTOCOL, "GIT_NO_LAZY_FETCH")
    assert "is a partial clone that lacks Python files" in refusal(opened, f"{partial}@HEAD")
    assert "is a partial clone that lacks" in refusal(opened, f"{partial}/.git@HEAD")
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "-C", str(partial), "cat-file", "-p", "HEAD:python/sglang/version.py"], check=False)
    assert (tmp_path / "ran").exists(), "git itself would have run it"


def test_a_partial_clone_is_read_once_all_is_fetched(partial, opened):
    git(partial, "config", "--unset", "remote.origin.uploadpack")
    git(partial, "fetch", "--refetch", "--no-filter")
    assert_is_the_tree(opened(f"{partial}@HEAD"))


def test_a_clone_without_folders_is_partial_too(tmp_path, checkout, opened):
    git(checkout, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--no-checkout", "--filter=tree:0", f"file://{checkout}", "treeless")
    assert "is a partial clone that lacks folders" in refusal(opened, f"{tmp_path}/treeless@HEAD")


def test_an_object_that_is_gone_is_one_file_that_cannot_be_read(checkout, opened):
    names = ("python/sglang/srt/managers/scheduler.py", "python/pyproject.toml")
    (checkout / names[1]).write_text("[project]\nversion = '3'\n")
    git(checkout, "rm", "-q", "python/sglang/_version.py")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-m", "two")
    for name in names:
        hashed = subprocess.run(
            ["git", "-C", str(checkout), "rev-parse", f"HEAD:{name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        (checkout / ".git/objects" / hashed[:2] / hashed[2:]).unlink()
    tree = opened(f"{checkout}@HEAD")
    assert tree.source.version is None
    for _ in range(2):
        with pytest.raises(UnreadableFile, match="git has lost the object"):
            tree.read_module(SCHEDULER)
        assert tree.read_module("sglang.srt.server_args") == MODULES["sglang/srt/server_args.py"]
