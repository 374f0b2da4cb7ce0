"""Does a watched workspace stay what a fresh index of the folder would be, to the byte, whatever is edited?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest
from changes_support import engine

from benchmarks.variants.registry import Copy
from sgltrace.insight.watching import differ, look, same_facts, work_for

SCHEDULER = "managers/scheduler.py"
WORKER = "speculative/eagle_worker_v2.py"
PATIENCE_S = 120


class Watch:
    """A running `sgltrace watch --json` of an engine, with a report or without."""

    def __init__(self, copy: Copy, *options: str) -> None:
        self.copy = copy
        self.workspace = copy.root / "workspace"
        command = [sys.executable, "-m", "sgltrace", "watch", str(copy.root), "-o", str(self.workspace), "--json"]
        self.process = subprocess.Popen(
            [*command, "--interval", "0.05", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def next(self) -> dict[str, Any]:
        """The next line that it prints."""
        try:
            found: dict[str, Any] = json.loads(self._lines.get(timeout=PATIENCE_S))
        except Empty:
            self.process.kill()
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read()) from None
        return found

    def fresh(self) -> bytes:
        """What indexing the folder anew gives."""
        other = self.copy.root / "fresh"
        command = [sys.executable, "-m", "sgltrace", "index", str(self.copy.root), "-o", str(other), "--no-report"]
        subprocess.run(command, check=True, capture_output=True)
        return (other / "index.json").read_bytes()

    def index(self) -> bytes:
        return (self.workspace / "index.json").read_bytes()

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    running = Watch(engine(tmp_path), "--no-report")
    running.next()
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def test_an_edit_is_followed_to_the_byte(watch: Watch):
    before = watch.index()
    watch.copy.replace(
        SCHEDULER,
        (
            "result.accept_lens.tolist()",
            "[1] * len(batch.reqs) if result.accept_lens is None else result.accept_lens.tolist()",
        ),
    )
    update = watch.next()
    assert update["work"] == "index" and update["files"] == [f"sglang/srt/{SCHEDULER}"]
    assert any("accept_lens" in name for change in update["changes"] for name in change["fields"])
    assert watch.index() == watch.fresh() != before


def test_a_comment_in_a_line_leaves_the_index_and_one_above_moves_it(watch: Watch):
    before = watch.index()
    watch.copy.replace(SCHEDULER, ("        self.waiting_queue = []\n", "        self.waiting_queue = []  # none\n"))
    assert watch.next()["work"] == "report"
    assert watch.index() == before == watch.fresh()
    watch.copy.replace(
        SCHEDULER, ("        self.waiting_queue = []", "        # none\n        self.waiting_queue = []")
    )
    update = watch.next()
    assert (update["work"], update["changes"]) == ("index", [])
    assert watch.index() == watch.fresh() != before


def test_a_file_that_was_not_read_changes_nothing(tmp_path: Path):
    copy = engine(tmp_path)
    (copy.srt / "other").mkdir()
    copy.create("other/aside.py", "x = 1\n")
    watch = Watch(copy, "--no-report")
    watch.next()
    before = watch.index()
    copy.write("other/aside.py", "x = 2\n\n\ndef f():\n    return x\n")
    assert watch.next()["work"] == "nothing"
    assert watch.index() == before == watch.fresh()
    watch.end()


def test_what_does_not_parse_is_told_and_the_last_index_stays(watch: Watch):
    before = watch.index()
    good = watch.copy.read(WORKER)
    watch.copy.write(WORKER, good.replace("    def draft(", "    def draft(("))
    update = watch.next()
    assert update["work"] == "broken" and f"sglang/srt/{WORKER}:" in update["error"]
    assert watch.index() == before
    watch.copy.write(WORKER, good + "\n\nLATER = 1\n")
    assert watch.next()["work"] == "index"
    assert watch.index() == watch.fresh()


def test_a_source_that_cannot_be_indexed_is_told(watch: Watch):
    before = watch.index()
    watch.copy.replace(SCHEDULER, ("def run_scheduler_process(", "def something_else("))
    watch.copy.replace(SCHEDULER, ("class Scheduler:", "class Nothing:"))
    update = watch.next()
    assert update["work"] in ("failed", "index")
    if update["work"] == "failed":
        assert update["error"] and "\n" not in update["error"] and watch.index() == before


def test_new_and_deleted_files_are_followed(watch: Watch):
    watch.copy.create("managers/helper.py", "def f():\n    return 1\n")
    assert watch.next()["work"] == "index"
    assert watch.index() == watch.fresh()
    watch.copy.delete("managers/helper.py")
    assert watch.next()["work"] == "index"
    assert watch.index() == watch.fresh()


def test_ctrl_c_leaves_no_mess(tmp_path: Path):
    copy = engine(tmp_path)
    watch = Watch(copy)
    watch.next()
    page = watch.workspace / "report" / "index.html"
    assert page.is_file()
    watch.copy.replace(WORKER, ("rows = [draft_input.bonus_tokens]", "rows = [draft_input.topk_index]"))
    time.sleep(0.6)  # it has begun by now, or has not: both must end clean
    assert watch.end() == 0
    assert watch.process.stderr is not None and watch.process.stderr.read() == ""
    left = {path.name for path in watch.workspace.iterdir()}
    assert left <= {".gitignore", "index.json", "stamp.json", "report", ".runs.lock"}
    assert page.is_file() or not (watch.workspace / "report").exists()


def test_two_edits_in_a_row_end_with_the_second(watch: Watch):
    watch.copy.replace(WORKER, ("rows = [draft_input.bonus_tokens]", "rows = [draft_input.topk_index]"))
    time.sleep(0.5)
    watch.copy.replace(WORKER, ("rows = [draft_input.topk_index]", "rows = [draft_input.hidden_states]"))
    while watch.next()["work"] == "index":
        if watch.index() == watch.fresh():
            return
    raise AssertionError("the index is not that of the second edit")


def test_only_a_folder_can_be_watched(capsys: pytest.CaptureFixture[str]):
    from sgltrace.cli import run

    assert run(["watch", "sglang==0.5.9"]) == 2
    assert "no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('def f(x):\n    """Other words."""\n    return x + 1  # one more\n', True),
        ("def f(x):\n    return x + 1\n", False),  # a line less
        ('def f(x):\n    """Words."""\n    return x + 2\n', False),
        ('def f(y):\n    """Words."""\n    return y + 1\n', False),
    ],
)
def test_facts_are_the_same_where_lines_and_code_are(text: str, same: bool):
    assert same_facts(b'def f(x):\n    """Words."""\n    return x + 1\n', text.encode()) is same


def test_without_knowing_what_was_read_all_is_done_again(tmp_path: Path):
    from changes_support import opened

    copy = engine(tmp_path)
    before = look(opened(copy))
    copy.append(WORKER, "\n# the end\n")
    os.utime(copy.srt / WORKER)
    after = look(opened(copy), before)
    found = differ(before, after)
    assert found.files == [f"sglang/srt/{WORKER}"]
    assert work_for(found, before, after, None) == "index"
    assert work_for(found, before, after, set()) == "nothing"
    assert work_for(found, before, after, set(found.files)) == "report"
