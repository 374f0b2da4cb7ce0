"""How long until index and report are current after an edit of one file, against indexing it cold.

    python -m benchmarks.watch_speed SRC [--no-report]

A folder SRC is copied, so that it can be edited. Every figure is of one run on one machine; what counts are the ratios
to the cold one, in which no facts are kept. The edits: a file that no step reaches, a comment at the end of a line, a
comment that moves the lines below, and a statement in the function that the scheduler calls each step.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TOOL = Path(sys.executable).with_name("sgltrace")


def main() -> None:
    """Print a line for each edit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watch_speed", description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--no-report", action="store_true", help="index.json alone")
    arguments = parser.parse_args()
    options = ["--no-report"] if arguments.no_report else []
    with tempfile.TemporaryDirectory() as scratch:
        copied = Path(scratch) / "source"
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(arguments.source, copied, ignore=ignored)
        environment = {**os.environ, "SGLTRACE_CACHE_DIR": str(Path(scratch) / "cache")}
        began = time.perf_counter()
        command = [str(TOOL), "index", str(copied), "-o", str(Path(scratch) / "cold"), *options]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        cold = time.perf_counter() - began
        print(f"{'cold':44} {cold:7.1f} s")
        _watched(copied, Path(scratch) / "warm", cold, environment, options)


def _watched(source: Path, workspace: Path, cold: float, environment: dict[str, str], options: list[str]) -> None:
    command = [str(TOOL), "watch", str(source), "-o", str(workspace), "--json", "--interval", "0.1", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        step = _step(workspace)
        for what, edit in (
            ("a file that no step reaches", lambda: _append(_unreached(source, workspace), "\nLATER = 1\n")),
            ("a comment at the end of a line", lambda: _comment(step, moves=False)),
            ("a comment that moves lines", lambda: _comment(step, moves=True)),
            ("a statement in the worker's step", lambda: _statement(step)),
        ):
            began = time.perf_counter()
            edit()
            update = json.loads(process.stdout.readline())
            seconds = time.perf_counter() - began
            print(f"{what:44} {seconds:7.1f} s   {seconds / cold:.3f} of cold   ({update['work']})", flush=True)
    finally:
        process.terminate()
        process.wait()


def _step(workspace: Path) -> tuple[Path, int]:
    """The file and line of the function that the scheduler calls each step."""
    index: dict[str, Any] = json.loads((workspace / "index.json").read_text(encoding="utf-8"))
    entry = index["entry_points"]["v2"] or index["entry_points"]["v1"]
    function = next(f for f in index["functions"] if f["id"] == entry)
    return workspace.parent / "source" / function["file"], function["line"]


def _unreached(source: Path, workspace: Path) -> Path:
    """A module of the package, larger than most, of which the index has no function."""
    index: dict[str, Any] = json.loads((workspace / "index.json").read_text(encoding="utf-8"))
    reached = {source / f["file"] for f in index["functions"]}
    package = (source / "sglang" / "test", source / "sglang")
    files = sorted(f for folder in package for f in folder.rglob("*.py") if f not in reached)
    return next(f for f in files if f.stat().st_size > 10_000)


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")


def _comment(step: tuple[Path, int], moves: bool) -> None:
    file, line = step
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    if moves:
        lines.insert(line - 1, "    # moved by a line\n")
    else:
        lines[line - 2] = lines[line - 2].rstrip("\n") + "  # seen\n"
    file.write_text("".join(lines), encoding="utf-8")


def _statement(step: tuple[Path, int]) -> None:
    """A statement before the first ``return`` or ``if`` of the function's own level."""
    file, line = step
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(n for n in range(line + 1, len(lines)) if lines[n].startswith(("        return", "        if ")))
    lines.insert(at, "        seen = len(batch.reqs)\n")
    file.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
