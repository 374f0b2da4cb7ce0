"""What goes wrong around an index: an interrupt at any moment, two at once, a cache in any state. Nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgltrace.index.facts.syntax import FACTS_VERSION

TOY = Path(__file__).parent.parent / "fixtures/toysgl/sglang"
PROGRAM = """
import sys
from sgltrace.__main__ import main
print("up", flush=True)
main()
"""
WHOLE = {".gitignore", "index.json", "report", "stamp.json"}


class Home:
    """A source, and commands on it with a cache and workspaces of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        shutil.copytree(TOY, folder / "repo/sglang", ignore=shutil.ignore_patterns("__pycache__"))

    def start(self, *arguments: str, cache: Path | None = None) -> subprocess.Popen[str]:
        """The command, in a group of processes of its own, once it has begun."""
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=self.folder,
            env={**os.environ, "SGLTRACE_CACHE_DIR": str(cache or self.cache)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    def done(self, *arguments: str, cache: Path | None = None) -> str:
        """The workspace's index after a command that must work, without a word of complaint."""
        process = self.start(*arguments, cache=cache)
        _, said = process.communicate(timeout=300)
        assert (process.returncode, said) == (0, "")
        return (self.folder / arguments[-1] / "index.json").read_text()


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def expected(home) -> str:
    return home.done("index", "repo", "-o", "expected")


def test_an_interrupt_at_any_moment_is_quiet_and_leaves_a_whole_workspace(home, expected):
    cold = home.folder / "cold"
    for delay in (0.0, 0.05, 0.15, 0.4, 0.8, 1.6, 3.2):
        shutil.rmtree(cold, ignore_errors=True)
        process = home.start("index", "repo", "-o", "interrupted", cache=cold)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert (process.returncode in (0, 130), said) == (True, ""), delay
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
        if (home.folder / "interrupted").exists():
            assert {path.name for path in (home.folder / "interrupted").iterdir()} <= WHOLE
    assert home.done("index", "repo", "-o", "interrupted") == expected
    assert {path.name for path in (home.folder / "interrupted").iterdir()} == WHOLE


def test_three_at_once_on_one_workspace_and_one_cache(home, expected):
    cache = home.folder / "shared"
    processes = [home.start("index", "repo", "-o", "shared-ws", cache=cache) for _ in range(3)]
    ended = [(process.communicate(timeout=300)[1], process.returncode) for process in processes]
    assert ended == [("", 0)] * 3
    assert (home.folder / "shared-ws/index.json").read_text() == expected
    assert {path.name for path in (home.folder / "shared-ws").iterdir()} == WHOLE
    assert (home.folder / "shared-ws/report/index.html").is_file()
    assert home.done("index", "repo", "-o", "shared-ws", cache=cache) == expected
    process = home.start("index", "repo", "-o", "shared-ws", cache=cache)
    assert "nothing was indexed again" in process.communicate(timeout=300)[0]


def facts(cache: Path) -> list[Path]:
    return sorted(path for path in (cache / "facts" / str(FACTS_VERSION)).rglob("*") if path.is_file())


def test_a_damaged_cache_is_read_around_and_mended(home, expected):
    cache = home.folder / "damaged"
    home.done("index", "repo", "--no-report", "-o", "one", cache=cache)
    sound = {path: path.read_bytes() for path in facts(cache)}
    assert len(sound) > 30
    dice = random.Random(7)
    for number, (path, data) in enumerate(sound.items()):
        at = dice.randrange(len(data))
        flipped = data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
        path.write_bytes([flipped, data[:at], b"", data + b"x"][number % 4])
    assert home.done("index", "repo", "--no-report", "-o", "two", cache=cache) == expected
    assert {path: path.read_bytes() for path in facts(cache)} == sound


@pytest.mark.parametrize("place", ["a file", "cannot be made", "of other versions"])
def test_a_cache_that_cannot_be_used_makes_no_difference(home, expected, tmp_path, place):
    cache = tmp_path / "cache"
    if place == "a file":
        cache.write_text("mine")
    elif place == "cannot be made":
        cache = Path("/proc/nowhere/cache")
    else:
        for version in ("1", "999", "x"):
            (cache / "facts" / version / "00").mkdir(parents=True)
            (cache / "facts" / version / "00/11").write_text("of another version")
    name = place.replace(" ", "-")
    assert home.done("index", "repo", "--no-report", "-o", name, cache=cache) == expected
    if place == "a file":
        assert cache.read_text() == "mine"
    elif place == "of other versions":
        assert {path.name for path in (cache / "facts").iterdir()} == {"1", "999", "x", str(FACTS_VERSION)}
