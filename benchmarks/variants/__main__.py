"""Make edited copies of SGLang, index them, and see whether the coupling points follow.

    python -m benchmarks.variants list [NAME ...]
    python -m benchmarks.variants check [NAME ...]             does every edit apply, and does what it writes compile?
    python -m benchmarks.variants make NAME[,NAME...] DEST
    python -m benchmarks.variants score NAME[,NAME...] BASE_INDEX VARIANT_INDEX
    python -m benchmarks.variants run [NAME ...] [--jobs N]    make, index and score; what is done is not done again

A NAME may be a release, ``toysgl``, or a sort (removed, added, harmless, same); none means all. Run it from the
repository's root. ``--releases`` is a folder of unpacked wheels, by version; a release that is not there is downloaded
with pip.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import scoring
from .edits import EDITS
from .registry import Edit
from .sources import Sources, make


def chosen(names: list[str]) -> list[Edit]:
    """The edits that are named, by themselves, by release or by sort, in their order."""
    for name in names:
        if not any(name in (e.name, e.release, e.sort) for e in EDITS.values()):
            sys.exit(f"no edit, release or sort is named {name!r}; see the command list")
    return [e for e in EDITS.values() if not names or {e.name, e.release, e.sort} & set(names)]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m benchmarks.variants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--releases", type=Path, default=Path("/tmp/sgltrace-variants/releases"), help="unpacked wheels")
    commands = top.add_subparsers(dest="command", required=True)
    for name in ("list", "check"):
        commands.add_parser(name).add_argument("names", nargs="*")
    make_ = commands.add_parser("make")
    make_.add_argument("names")
    make_.add_argument("dest", type=Path)
    score = commands.add_parser("score")
    score.add_argument("names")
    score.add_argument("base", type=Path)
    score.add_argument("variant", type=Path)
    run = commands.add_parser("run")
    run.add_argument("names", nargs="*")
    run.add_argument(
        "--work", type=Path, default=Path("/tmp/sgltrace-variants"), help="where indexes and scores are kept"
    )
    run.add_argument("--jobs", type=int, default=1, help="processes that an index uses")
    run.add_argument("--keep", action="store_true", help="keep the edited copies")
    return top


def main() -> int:
    """Do one command; 1 where a check fails."""
    arguments = parser().parse_args()
    sources = Sources(arguments.releases)
    match arguments.command:
        case "list":
            for e in chosen(arguments.names):
                print(f"{e.release:14} {e.sort:9} {e.name:32} {e.text.splitlines()[0]}")
            return 0
        case "check":
            return scoring.check(chosen(arguments.names), sources)
        case "make":
            make(chosen(arguments.names.split(",")), sources, arguments.dest)
            return 0
        case "score":
            return scoring.score(chosen(arguments.names.split(",")), arguments.base, arguments.variant)
        case _:
            return scoring.run(chosen(arguments.names), sources, arguments.work, arguments.jobs, arguments.keep)


if __name__ == "__main__":
    sys.exit(main())
