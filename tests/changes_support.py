"""Sides of comparisons, made of copies of the small engine."""

from __future__ import annotations

from pathlib import Path

from small_engine import FILES
from trees import write_tree

from benchmarks.variants.registry import Copy
from sgltrace.files import user_cache_dir
from sgltrace.insight.changes import Side
from sgltrace.insight.kept import fresh_index
from sgltrace.progress import SilentProgress
from sgltrace.sources import SourceTree, open_source


def engine(folder: Path) -> Copy:
    folder.mkdir(parents=True, exist_ok=True)
    return Copy(write_tree(folder, {path: text.encode() for path, text in FILES.items()}))


def opened(copy: Copy) -> SourceTree:
    return open_source(str(copy.root), cache_dir=user_cache_dir(), progress=SilentProgress())


def side_of(copy: Copy) -> Side:
    copy.compile()
    tree = opened(copy)
    return Side(fresh_index(tree, SilentProgress(), jobs=1), tree)
