"""Make, index and score edits, and say what came out."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import sgltrace

from .checks import Index, Result
from .registry import Edit
from .sources import Sources, make


def load(index: Path) -> Index:
    """An ``index.json``."""
    found: Index = json.loads(index.read_text(encoding="utf-8"))
    return found


def check(edits: list[Edit], sources: Sources) -> int:
    """Apply each edit to a copy of its own."""
    failed = 0
    for e in edits:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                make([e], sources, Path(scratch))
                said = "ok    "
            except (ValueError, OSError, SyntaxError) as error:
                failed += 1
                said = f"FAILS  {error}:"
            print(f"{said} {e.release} {e.name}", flush=True)
    return 1 if failed else 0


def score(edits: list[Edit], base: Path, variant: Path) -> int:
    """Print one line for each check."""
    before, after = load(base), load(variant)
    results = [tell(e.check(before, after)) for e in edits]
    return 0 if all(results) else 1


def tell(results: list[Result]) -> bool:
    """Print what came out of an edit's checks."""
    for ok, said in results:
        print(f"  {'ok   ' if ok else 'FAILS'} {said}", flush=True)
    return all(ok for ok, _ in results)


def run(edits: list[Edit], sources: Sources, work: Path, jobs: int, keep: bool) -> int:
    """Score edits one after the other. Indexes are kept for the state of the tool that made them."""
    place = work / f"tool-{tool_state()}"
    place.mkdir(parents=True, exist_ok=True)
    passed: dict[str, bool] = {}
    for e in edits:
        print(f"{e.release} {e.sort}: {e.name}", flush=True)
        base = indexed(sources.get(e.release) / "sglang", place / f"base-{e.release}", jobs)
        workspace, copied = place / e.name, place / f"{e.name}-source"
        if not (workspace / "index.json").exists():
            shutil.rmtree(copied, ignore_errors=True)
            make([e], sources, copied)
            indexed(copied / "sglang", workspace, jobs)
            if not keep:
                shutil.rmtree(copied)
        variant = workspace / "index.json"
        passed[e.name] = tell(e.check(load(base), load(variant)))
    table(edits, passed)
    return 0 if all(passed.values()) else 1


def table(edits: list[Edit], passed: dict[str, bool]) -> None:
    """Print how many edits passed, by release and sort."""
    sorts = ("removed", "added", "harmless", "same")
    print(f"\n{'release':14}" + "".join(f"{sort:>10}" for sort in (*sorts, "all")))
    for release in (*dict.fromkeys(e.release for e in edits), "all"):
        cells = []
        for sort in (*sorts, "all"):
            chosen = [e.name for e in edits if release in (e.release, "all") and sort in (e.sort, "all")]
            cells.append(f"{sum(passed[name] for name in chosen)}/{len(chosen)}" if chosen else "")
        print(f"{release:14}" + "".join(f"{cell:>10}" for cell in cells))
    print("".join(f"\nfails: {name}" for name, ok in passed.items() if not ok))


def indexed(source: Path, workspace: Path, jobs: int) -> Path:
    """The index of a source, made where it is not there."""
    index = workspace / "index.json"
    if not index.exists():
        command = [str(Path(sys.executable).with_name("sgltrace")), "index", str(source), "-o", str(workspace)]
        done = subprocess.run([*command, "--no-report", "--jobs", str(jobs)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{source} could not be indexed: {done.stderr.strip()}")
    return index


def tool_state() -> str:
    """Twelve digits that change with the tool's code."""
    digest = hashlib.sha256()
    root = Path(sgltrace.__file__).parent
    for file in sorted(f for f in root.rglob("*") if f.suffix in (".py", ".toml")):
        digest.update(str(file.relative_to(root)).encode() + file.read_bytes())
    return digest.hexdigest()[:12]
