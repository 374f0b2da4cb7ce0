"""A source tree at a revision of a git checkout, read from git's objects; the work tree is not looked at.

A checkout's own configuration may name programs, and whoever made the checkout wrote it. So git is told to fetch
nothing by itself, to speak no protocol, and to run no hook and no monitor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from packaging.version import InvalidVersion, Version

from sgltrace.errors import InputError
from sgltrace.model import Source
from sgltrace.sources.tree import SourceTree, UnreadableFile, tree_in

_REGULAR = ("100644", "100755")
_OWN_PROGRAMS = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
_NO_PROTOCOL = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}
"""The first keeps git from fetching what a partial clone lacks, where it is new enough to know the word (2.39.4,
2.45.1); the second ends a fetch that began all the same before it runs what the checkout names for it."""


class GitStore:
    """The files of one commit. A ``git cat-file --batch`` process answers the reads."""

    def __init__(self, git: str, checkout: Path, commit: str) -> None:
        self.unread: dict[str, str] = {}
        self._git = git
        self._checkout = checkout
        self._commit = commit
        partial = _is_partial(git, checkout)
        try:
            listing = _run(git, checkout, "ls-tree", "-r", "-z", "--full-tree", commit)
        except InputError as error:
            raise (_partial(checkout, f"lacks folders of {commit[:12]}") if partial else error) from None
        self._objects: dict[str, str] = {}
        for line in listing.split("\0"):
            facts, _, name = line.partition("\t")
            if facts.startswith(_REGULAR):
                self._objects[name] = facts.split(" ")[2]
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = -1
        if partial:
            self._refuse_missing()

    def names(self) -> list[str]:
        """Every regular file of the commit, sorted."""
        return sorted(self._objects)

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises UnreadableFile."""
        process = self._reader()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{self._objects[name]}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline().split()
        except BrokenPipeError:
            answer = []
        if len(answer) != 3 or answer[1] != b"blob":
            if not answer:  # git has ended; the next file is asked of another
                self._close()
            raise UnreadableFile(f"cannot read {name}: git has lost the object {self._objects[name]}")
        data = process.stdout.read(int(answer[2]))
        process.stdout.read(1)  # the newline behind the object
        return data

    def fingerprint(self) -> str:
        """The commit."""
        return self._commit

    def locate(self, name: str) -> None:
        """Nothing: the work tree may have another state."""

    def _refuse_missing(self) -> None:
        """Raise InputError where a Python file of the commit was left out of a partial clone."""
        wanted = sorted({hash_ for name, hash_ in self._objects.items() if name.endswith(".py")})
        given = "".join(f"{hash_}\n" for hash_ in wanted)
        done = _call(self._git, self._checkout, "cat-file", "--batch-check", given=given)
        if done.returncode or any(line.endswith(" missing") for line in done.stdout.splitlines()):
            raise _partial(self._checkout, f"lacks Python files of {self._commit[:12]}")

    def _reader(self) -> subprocess.Popen[bytes]:
        # A pipe shared with a fork would mix the answers, so each process asks its own git.
        if self._process is None or self._owner != os.getpid():
            self._process = subprocess.Popen(
                _command(self._git, self._checkout, "cat-file", "--batch"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # what it says of a missing object is told as ours
                env=_environment(),
            )
            self._owner = os.getpid()
        return self._process

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            process.stdout.close()
            process.wait()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self._close()


def open_revision(requested: str, checkout: Path, revision: str, package: str | None = None) -> SourceTree:
    """The tree of ``checkout`` at ``revision`` (a branch, tag, commit, ``HEAD~2`` ...)."""
    git = shutil.which("git")
    if git is None:
        raise InputError(f"reading {requested} needs git, which is not installed; name a folder or a wheel instead")
    within = _run(git, checkout, "rev-parse", "--show-prefix").strip().rstrip("/")
    commit = _resolve(git, checkout, revision)
    store = GitStore(git, checkout, commit)
    # Releases that take their version from git's tags have it in no file.
    return tree_in(
        store,
        Source(name="", version=_version_of_tag(revision), root=requested, kind="revision", requested=requested),
        where=f"at commit {commit[:12]}",
        within=within,
        package=package,
    )


def _resolve(git: str, checkout: Path, revision: str) -> str:
    if not revision or revision.startswith("-"):
        raise InputError(f"{checkout}@{revision} names no revision; write CHECKOUT@BRANCH, @TAG or @COMMIT")
    try:
        return _run(git, checkout, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    except InputError as error:
        raise InputError(
            f"{checkout} has no revision {revision!r}; `git fetch` may bring it, and "
            f"`git branch -a` and `git tag` list what is there"
        ) from error


def _version_of_tag(revision: str) -> str | None:
    try:
        return str(Version(revision))
    except InvalidVersion:
        return None


def _is_partial(git: str, checkout: Path) -> bool:
    """Whether objects may be missing that git would fetch by itself."""
    done = _call(git, checkout, "config", "--get-regexp", r"^(extensions\.partialclone|remote\..*\.promisor)$")
    return done.returncode == 0 and bool(done.stdout.strip())


def _partial(checkout: Path, what: str) -> InputError:
    return InputError(
        f"{checkout} is a partial clone that {what}, and sgltrace fetches nothing through a checkout's configuration; "
        f"fetch first, with `git fetch --refetch --no-filter` or `git checkout`, or name a wheel"
    )


def _run(git: str, checkout: Path, *arguments: str) -> str:
    """What a git command prints. Raises InputError with git's own first line."""
    done = _call(git, checkout, *arguments)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise InputError(f"git cannot read {checkout}: {said[0] if said else 'git failed without a word'}")
    return done.stdout


def _call(git: str, checkout: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(git, checkout, *arguments),
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        env=_environment(),
    )


def _command(git: str, checkout: Path, *arguments: str) -> list[str]:
    return [git, "-C", str(checkout), *_OWN_PROGRAMS, *arguments]


def _environment() -> dict[str, str]:
    """Without what a git hook or alias sets for its own repository, and without a way out of the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, **_NO_PROTOCOL}


def merge_base(checkout: Path, one: str, other: str) -> str:
    """The commit at which two revisions of a checkout went apart. Raises InputError where there is none."""
    git = shutil.which("git")
    if git is None:
        raise InputError(f"reading revisions of {checkout} needs git, which is not installed")
    commits = [_resolve(git, checkout, name) for name in (one, other)]
    return _run(git, checkout, "merge-base", *commits).strip()
