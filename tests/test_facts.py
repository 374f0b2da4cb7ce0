"""Facts of modules: by readers, by whoever asks first, and after the readers have ended."""

from pathlib import Path

from index_support import sources
from trees import write_tree

from sgltrace.index.facts import syntax
from sgltrace.index.facts.store import Facts
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source


def function_of(read: syntax.ModuleFacts) -> str:
    [function] = read.body
    assert isinstance(function, syntax.Func)
    return function.name


def test_whoever_reads_a_module_its_facts_are_the_same(tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(12)]
    write_tree(tmp_path, sources({name: f"def {name}(): pass\n" for name in names}))
    tree = open_source(str(tmp_path), cache_dir=tmp_path / "cache", progress=SilentProgress())
    with Facts(tree, None, jobs=2) as facts:
        facts.prefetch(f"sglang.srt.{name}" for name in names[:-1])
        found = [function_of(facts.get(f"sglang.srt.{name}")) for name in reversed(names[:-1])]
    assert found == list(reversed(names[:-1]))
    assert function_of(facts.get("sglang.srt.m11")) == "m11"
