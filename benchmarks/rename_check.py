"""Do the coupling points hang on names? Renames a release's functions and locals, and compares what is found.

    python benchmarks/rename_check.py RELEASE [--keep FOLDER]

The copy is that of ``renamed_copy.py``. Its points, with the functions' names put back, must be those of the release.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sgltrace.coupling import derive
from sgltrace.files import user_cache_dir
from sgltrace.index import IndexOptions, analyse
from sgltrace.model import CouplingPoint, Place
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source

WORD = re.compile(r"[A-Za-z_]\w*")
RENAMER = Path(__file__).with_name("renamed_copy.py")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", type=Path)
    parser.add_argument("--keep", type=Path, help="where to leave the renamed copy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        copy = arguments.keep or Path(scratch, "renamed")
        subprocess.run([sys.executable, RENAMER, arguments.release, copy], check=True)
        names = json.loads((copy / "renamed.json").read_text(encoding="utf-8"))
        ok = compare(points(arguments.release), points(copy), {new: old for old, new in names.items()})
    sys.exit(0 if ok else 1)


def points(folder: Path) -> list[CouplingPoint]:
    tree = open_source(str(folder), cache_dir=user_cache_dir(), progress=SilentProgress())
    return derive(analyse(tree, IndexOptions(), SilentProgress())).points


def compare(before: list[CouplingPoint], after: list[CouplingPoint], back: dict[str, str]) -> bool:
    """Print what differs; the same points must be found, in the same functions."""

    def sides(places: Iterable[Place], names: dict[str, str]) -> set[str]:
        return {WORD.sub(lambda word: names.get(word.group(), word.group()), place.function) for place in places}

    old, new = {p.id: p for p in before}, {p.id: p for p in after}
    same = 0
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            print(f"only {'before' if name in old else 'after'}: {name}")
            continue
        one, other = old[name], new[name]
        differs = [
            sorted(sides(a, {}) ^ sides(b, back))
            for a, b in ((one.producers, other.producers), (one.consumers, other.consumers))
        ]
        if one.severity != other.severity or any(differs):
            print(f"differs: {name}: {one.severity} and {other.severity}, functions {differs}")
        else:
            same += 1
    print(f"{len(old)} points, {same} the same in severity and in every function")
    return old.keys() == new.keys() and same == len(old)


if __name__ == "__main__":
    main()
