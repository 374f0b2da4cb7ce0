"""Do the coupling points hang on names? Renames a release's functions and locals, and compares what is found.

    python benchmarks/rename_check.py /path/to/release [--keep FOLDER]

A copy of the release gets new names for every function that it defines and for the locals of each function. Kept are
the names of the vocabulary, of classes, fields, parameters, keywords and modules, and whatever Python or another
library calls by name. The points of the copy, with its names put back, must be those of the release.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path

from sgltrace.coupling import derive
from sgltrace.files import user_cache_dir
from sgltrace.index import IndexOptions, analyse
from sgltrace.model import CouplingPoint, Place
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source

WORD = re.compile(r"[A-Za-z_]\w*")
PREFIX = "fn_renamed_"
LOCAL = "local_renamed_"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", type=Path)
    parser.add_argument("--keep", type=Path, help="where to leave the renamed copy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        copy = arguments.keep or Path(scratch, "renamed")
        shutil.copytree(arguments.release, copy, ignore=shutil.ignore_patterns("*.pyc", "__pycache__"))
        names, locals_ = rename(copy)
        print(f"renamed {len(names)} functions' names and {locals_} locals")
        ok = compare(points(arguments.release), points(copy), {new: old for old, new in names.items()})
    sys.exit(0 if ok else 1)


def points(folder: Path) -> list[CouplingPoint]:
    tree = open_source(str(folder), cache_dir=user_cache_dir(), progress=SilentProgress())
    return derive(analyse(tree, IndexOptions(), SilentProgress())).points


def compare(before: list[CouplingPoint], after: list[CouplingPoint], back: dict[str, str]) -> bool:
    """Print what differs; the same points must be found, in the same functions."""

    def of(found: list[CouplingPoint], names: dict[str, str]) -> dict[str, tuple[object, set[str], set[str]]]:
        def sides(places: Iterable[Place]) -> set[str]:
            return {WORD.sub(lambda m: names.get(m.group(), m.group()), p.function) for p in places}

        return {p.id: (p.severity, sides(p.producers), sides(p.consumers)) for p in found}

    old, new = of(before, {}), of(after, back)
    same = 0
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            print(f"only {'before' if name in old else 'after'}: {name}")
        elif old[name][0] != new[name][0]:
            print(f"severity differs: {name}: {old[name][0]} and {new[name][0]}")
        else:
            lost = [sorted(old[name][i] ^ new[name][i]) for i in (1, 2)]
            same += not any(lost)
            if any(lost):
                print(f"functions differ: {name}: {lost}")
    print(f"{len(old)} points, {same} the same in every function")
    return old.keys() == new.keys() and same == len(old)


# --- renaming ---------------------------------------------------------------------------------------------------


def rename(folder: Path) -> tuple[dict[str, str], int]:
    """Rename in place: functions by one map for the whole tree, locals within each function."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}
    trees: dict[Path, ast.Module] = {}
    for path, text in sources.items():
        try:
            trees[path] = ast.parse(text)
        except SyntaxError:
            continue
    kept = kept_names(folder, trees.values())
    defined = {
        n.name for t in trees.values() for n in ast.walk(t) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    names = {name: f"{PREFIX}{number}" for number, name in enumerate(sorted(defined - kept))}
    locals_ = 0
    for path, tree in trees.items():
        text, count = rename_locals(sources[path], tree, kept | names.keys())
        locals_ += count
        path.write_text(WORD.sub(lambda m: names.get(m.group(), m.group()), text), encoding="utf-8")
    return names, locals_


def kept_names(folder: Path, trees: Iterable[ast.Module]) -> set[str]:
    """Names that are not only a function's: the vocabulary's, and those of anything else in the tree or in Python."""
    kept = set(dir(builtins))
    for kind in (str, bytes, list, dict, set, tuple, int, float, type, object, BaseException):
        kept |= set(dir(kind))
    for name in ("vocabulary.toml", "index/externals.py", "index/containers.py", "coupling/expressions.py"):
        kept |= set(WORD.findall(files("sgltrace").joinpath(name).read_text(encoding="utf-8")))
    for path in folder.rglob("*"):
        kept |= {path.stem, path.name}
    for tree in trees:
        for node in ast.walk(tree):
            kept |= set(_names_of_others(node))
    return kept


def _names_of_others(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            outside = isinstance(node, ast.Import) or (node.level == 0 and not (node.module or "").startswith("sglang"))
            for alias in names:
                if outside:
                    yield from alias.name.split(".")
                if alias.asname:
                    yield alias.asname
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if name.startswith("__") or name == "forward":  # what Python and torch call
                yield name


def rename_locals(text: str, tree: ast.Module, kept: set[str]) -> tuple[str, int]:
    """New names for what a function binds and nothing else knows."""
    places: dict[tuple[int, int], tuple[str, str]] = {}
    count = 0
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = list(_own(function))
        unsafe = {n for node in ast.walk(function) for n in _not_local(node, function)}
        bound = {n.id for n in own if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - unsafe - kept
        names = {name: f"{LOCAL}{number}" for number, name in enumerate(sorted(bound))}
        count += len(names)
        for node in own:
            if isinstance(node, ast.Name) and node.id in names:
                places[node.lineno, node.col_offset] = (node.id, names[node.id])
    lines = [line.encode() for line in text.split("\n")]
    for (line, column), (old, new) in sorted(places.items(), reverse=True):
        row = lines[line - 1]
        if row[column : column + len(old.encode())] == old.encode():
            lines[line - 1] = row[:column] + new.encode() + row[column + len(old.encode()) :]
    return b"\n".join(lines).decode(), count


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions and classes in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own(child)


def _not_local(node: ast.AST, function: ast.AST) -> Iterator[str]:
    """Names that must stay: declared elsewhere, used in a nested function or class, or inside a formatted string,
    where positions are not told.
    """
    match node:
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case ast.JoinedStr():
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda() if node is not function:
            yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        case ast.arg(arg=name):
            yield name


if __name__ == "__main__":
    main()
