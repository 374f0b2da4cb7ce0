"""PyCG's micro-benchmark: small programs with the calls that each makes, read by hand by PyCG's authors.

    python benchmarks/pycg.py [SNIPPETS] [--wrong]

SNIPPETS is the folder ``micro-benchmark/snippets`` of PyCG's sources; without it the sources of PyCG 0.0.8 are fetched
with pip into a folder that is removed. A case is right where its calls are found and no others. Read as the other
call graph benchmarks are: an edge to a class is one to its constructor, calls that leave the case's modules do not
count, a generator expression belongs to the function around it, and the n-th lambda of a function is ``<lambdaN>``.
``--wrong`` lists what the cases that are not right lack and have too much.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

from sgltrace.index.facts.store import Facts
from sgltrace.index.program import Program
from sgltrace.index.resolution.engine import Engine
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.interpreter import deep_recursion
from sgltrace.model import Source
from sgltrace.sources import SourceTree
from sgltrace.sources.folder import FolderStore
from sgltrace.sources.layout import Package

RELEASE = "pycg==0.0.8"

Pairs = set[tuple[str, str]]


class Case(SourceTree):
    """A case's folder: its modules lie at the top, outside any package."""

    def __init__(self, folder: Path) -> None:
        source = Source(name="pycg", version="", root=str(folder), requested=str(folder), kind="folder")
        super().__init__(FolderStore(folder), Package(".", ""), source, "")
        self.modules = {_module(folder, path): str(path.relative_to(folder)) for path in sorted(folder.rglob("*.py"))}

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        return self._store.read(path)


def _module(folder: Path, path: Path) -> str:
    parts = list(path.relative_to(folder).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


def resolved(folder: Path) -> Program:
    """The program that begins with a case's module ``main``."""
    tree = Case(folder)
    with Facts(tree, None, jobs=1) as facts, deep_recursion():
        engine = Engine(tree, facts)
        engine.modules.load("main")
        engine.run()
    return Program(engine)


def found_in(program: Program) -> Pairs:
    """The calls of a program, with the functions named as PyCG names them."""
    made = {
        cls.made_constructor for module in program.engine.modules.loaded.values() for cls in module.classes.values()
    }
    return {
        (name_of(caller), name_of(callee))
        for caller, callee, kind in program.engine.edges
        if kind != "generator_expression" and callee not in made
    }


def name_of(function: FunctionInfo) -> str:
    """``module.Class.method``; of a module's body the module."""
    if function.qualname == "<module>":
        return function.module.name
    if function.name == "<genexpr>" and function.parent is not None:
        return name_of(function.parent)
    if function.name == "<lambda>" and function.parent is not None:
        lambdas = [nested for nested in function.parent.nested.values() if nested.name == "<lambda>"]
        return f"{name_of(function.parent)}.<lambda{lambdas.index(function) + 1}>"
    return f"{function.module.name}.{function.qualname}"


def wanted_in(folder: Path, modules: set[str]) -> Pairs:
    """The calls that PyCG's authors wrote down, as far as they stay in the case's modules."""
    graph: dict[str, list[str]] = json.loads((folder / "callgraph.json").read_text())
    pairs = {(caller, callee) for caller, callees in graph.items() for callee in callees}
    return {(a, b) for a, b in pairs if any(b == m or b.startswith(f"{m}.") for m in modules)}


def fetched(folder: Path) -> Path:
    """PyCG's snippets, unpacked into a folder."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary=:all:",
         "--dest", str(folder), RELEASE], check=True,
    )  # fmt: skip
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("*/micro-benchmark/snippets"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("snippets", type=Path, nargs="?")
    parser.add_argument("--wrong", action="store_true", help="list what cases lack, and what they have too much")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(arguments.snippets or fetched(Path(folder)), arguments.wrong)


def report(snippets: Path, list_wrong: bool) -> None:
    """Print how many cases of each category are right."""
    total, right = Counter[str](), Counter[str]()
    for case in sorted(path.parent for path in snippets.glob("*/*/callgraph.json")):
        category = case.parent.name
        total[category] += 1
        program = resolved(case)
        found, wanted = found_in(program), wanted_in(case, set(program.engine.modules.loaded))
        right[category] += found == wanted
        if list_wrong and found != wanted:
            print(f"{category}/{case.name}")
            for mark, pairs in (("lacks", wanted - found), ("has too much", found - wanted)):
                for caller, callee in sorted(pairs):
                    print(f"  {mark}: {caller} -> {callee}")
    for category, count in sorted(total.items()):
        print(f"{category:16} {right[category]:3} of {count:3}")
    print(f"{'all':16} {right.total():3} of {total.total():3}")


if __name__ == "__main__":
    main()
