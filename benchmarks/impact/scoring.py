"""A diff out of an edit, its impact, and whether that is what the case says."""

from __future__ import annotations

import difflib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.variants.sources import Sources, copy

from .cases import Case

Result = tuple[bool, str]
Answer = dict[str, Any]


def diff_of(case: Case, sources: Sources) -> str:
    """The unified diff that the case's edit is, as git writes one."""
    source = sources.get(case.release)
    with tempfile.TemporaryDirectory() as scratch:
        made = copy(source, Path(scratch))
        case.apply(made)
        made.compile()
        return "".join(
            _between(source, made.root, path.relative_to(made.root).as_posix())
            for path in sorted(made.root.rglob("*.py"))
            if path in made.changed or not (source / path.relative_to(made.root)).exists()
        )


def _between(before: Path, after: Path, path: str) -> str:
    old, new = before / path, after / path
    left = old.read_text(encoding="utf-8", errors="surrogateescape").splitlines(True) if old.exists() else []
    right = new.read_text(encoding="utf-8", errors="surrogateescape").splitlines(True)
    first = f"a/python/{path}" if old.exists() else "/dev/null"
    return "".join(difflib.unified_diff(left, right, first, f"b/python/{path}"))


def impact_of(case: Case, sources: Sources) -> Answer:
    """What the command says of the case's diff."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / f"{case.name}.diff"
        file.write_text(diff_of(case, sources), encoding="utf-8", errors="surrogateescape")
        command = [str(Path(sys.executable).with_name("sgltrace")), "impact", str(file), "--json", "--source"]
        done = subprocess.run([*command, str(sources.get(case.release))], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{case.name}: {done.stderr.strip()}")
    found: Answer = json.loads(done.stdout)
    return found


def check(case: Case, answer: Answer) -> list[Result]:
    """Each thing that the case says, and whether the answer says it."""
    better = _fields(answer["resolves"] + answer["partly"])
    hard = [c for c in answer["adds"] if any(s["after"] == "hard" and s["before"] != "hard" for s in c["severities"])]
    worse = _fields(hard)
    results = [(answer["applies"], "applies")]
    results += [(_meets(name, better), f"resolves {name}") for name in case.resolves]
    results += [(_meets(name, _fields(answer["partly"])), f"repairs {name} by half") for name in case.partly]
    results += [(not _meets(name, _fields(answer["resolves"])), f"does not resolve {name}") for name in case.partly]
    results += [(_meets(name, worse), f"adds {name}") for name in case.adds]
    results += [(any(id.endswith(name) for id in answer["touches"]), f"touches {name}") for name in case.touches]
    results.append((answer["beside"] is case.beside, f"beside: {case.beside}"))
    if case.nothing_hard and not case.adds:
        results.append((not hard, f"adds nothing hard{''.join('; ' + c['title'] for c in hard[:2])}"))
    if case.beside:
        told = [c["title"] for key in ("resolves", "partly", "adds", "no_progress") for c in answer[key]]
        results.append((not told, f"resolves and adds nothing{''.join('; ' + title for title in told[:2])}"))
    return results


def _fields(changes: list[dict[str, Any]]) -> set[str]:
    return {name.rpartition(".")[2] for change in changes for name in change["fields"] or ["?"]}


def _meets(name: str, fields: set[str]) -> bool:
    return bool(fields) if name == "*" else name in fields
