"""The report by several processes: the same bytes as by one, and what happens when one of them fails or is stopped."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sample_index import DictSource, sample_files, sample_index, sample_runs

from sgltrace.errors import InputError
from sgltrace.reports import ReportOptions, render

MODULES = 40
"""Enough of them to be given to several processes."""

needs_fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")


class Source(DictSource):
    """The sample's files, and the process that reads each."""

    def __init__(self, log: Path) -> None:
        super().__init__(sample_files(MODULES, 2))
        self.log = log

    def read(self, path, /):
        with self.log.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        return super().read(path)


class Failing(DictSource):
    """Does what it is told when a file is read in another process than this one."""

    def __init__(self, fail) -> None:
        super().__init__(sample_files(MODULES, 2))
        self.fail, self.here = fail, os.getpid()

    def read(self, path, /):
        if os.getpid() != self.here:
            self.fail()
        return super().read(path)


def written(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.*")}


@needs_fork
def test_the_same_bytes_however_many_processes(tmp_path):
    for jobs in (1, 2, 3):
        log = tmp_path / f"log-{jobs}"
        options = ReportOptions(jobs=jobs, runs=sample_runs())
        result = render(sample_index(MODULES, 2), Source(log), tmp_path / str(jobs), options)
        assert result.files == len(written(tmp_path / str(jobs)))
        assert (str(os.getpid()) in log.read_text().split()) == (jobs == 1)
    assert written(tmp_path / "1") == written(tmp_path / "2") == written(tmp_path / "3")


def test_one_process_where_the_system_cannot_fork(tmp_path, monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    log = tmp_path / "log"
    render(sample_index(MODULES, 2), Source(log), tmp_path / "out", ReportOptions(jobs=4))
    assert set(log.read_text().split()) == {str(os.getpid())}


@needs_fork
def test_an_error_in_a_process_is_raised_as_if_it_were_here(tmp_path):
    def fail():
        raise OSError(28, "No space left on device", "page.html")

    with pytest.raises(OSError, match="No space left") as caught:
        render(sample_index(MODULES, 2), Failing(fail), tmp_path, ReportOptions(jobs=2))
    assert caught.value.filename == "page.html"
    assert multiprocessing.active_children() == []


@needs_fork
def test_a_process_that_is_killed_is_told_in_one_line(tmp_path):
    with pytest.raises(InputError, match="killed"):
        render(
            sample_index(MODULES, 2),
            Failing(lambda: os.kill(os.getpid(), signal.SIGKILL)),
            tmp_path,
            ReportOptions(jobs=2),
        )
    assert multiprocessing.active_children() == []


INTERRUPTED = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from sample_index import DictSource, sample_files, sample_index
from sgltrace.reports import ReportOptions, render

class Slow(DictSource):
    def read(self, path, /):
        print(os.getpid(), flush=True)
        time.sleep(0.2)
        return super().read(path)

try:
    render(sample_index(40, 2), Slow(sample_files(40, 2)), Path(sys.argv[2]), ReportOptions(jobs=2))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@needs_fork
def test_an_interrupt_ends_all_processes_without_a_word(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, errors = process.communicate(timeout=60)
    assert (out.split()[-1], errors, process.returncode) == ("interrupted", "", 0)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
