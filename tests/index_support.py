"""Programs of a few lines, resolved from a function named ``main``."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import write_tree

from sgltrace.index.facts.store import Facts
from sgltrace.index.program import Program
from sgltrace.index.resolution.engine import Engine
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source

Resolve = Callable[..., Program]


def sources(files: dict[str, str]) -> dict[str, bytes]:
    """Modules of the package, by their dotted names below it (``m``, ``layers.linear``), as files."""
    out = {"sglang/__init__.py": b"", "sglang/srt/server_args.py": b""}
    for name, text in files.items():
        out[f"sglang/srt/{name.replace('.', '/')}.py"] = textwrap.dedent(text).encode()
    return out


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """Resolve the modules given by keyword (``m`` is the one with ``main``)."""

    def resolve(m: str, **files: str) -> Program:
        write_tree(tmp_path, sources({"m": m, **files}))
        tree = open_source(str(tmp_path), cache_dir=tmp_path / "cache", progress=SilentProgress())
        with Facts(tree, None, jobs=1) as facts:
            engine = Engine(tree, facts)
            module = engine.modules.load("sglang.srt.m")
            assert module is not None and module.facts.error is None
            engine.entry(module.functions["main"])
            engine.run()
        return Program(engine)

    return resolve


def edges(program: Program) -> set[str]:
    """``caller -> callee kind`` of every edge, without the package's name; ``~`` before the kind of a virtual one."""
    out = set()
    for (caller, callee, kind), uses in program.engine.edges.items():
        virtual = all(use.is_virtual(callee) for use in uses)
        out.add(f"{short(caller.id)} -> {short(callee.id)} {'~' if virtual else ''}{kind}")
    return out


def short(function: str) -> str:
    """A function's id without the package, and without the module where that is ``m``."""
    return function.removeprefix("sglang.srt.").removeprefix("m:")
