"""Make diffs of releases and see whether `sgltrace impact` says of each what is true.

    python -m benchmarks.impact list
    python -m benchmarks.impact diff NAME          print the diff
    python -m benchmarks.impact run [NAME ...]     a NAME may be a release, or toysgl

Run it from the repository's root. ``--releases`` is a folder of unpacked wheels, by version; a release that is not
there is downloaded with pip.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.variants.sources import Sources

from .cases import CASES, Case
from .scoring import check, diff_of, impact_of


def main() -> int:
    """Do one command; 1 where a case is not answered as it must be."""
    top = argparse.ArgumentParser(
        prog="python -m benchmarks.impact", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    top.add_argument("--releases", type=Path, default=Path("/tmp/sgltrace-variants/releases"), help="unpacked wheels")
    top.add_argument("command", choices=["list", "diff", "run"])
    top.add_argument("names", nargs="*")
    arguments = top.parse_args()
    chosen = [case for case in CASES if not arguments.names or {case.name, case.release} & set(arguments.names)]
    sources = Sources(arguments.releases)
    if arguments.command == "list":
        for case in chosen:
            print(f"{case.release:14} {case.name:36} {(case.apply.__doc__ or '').splitlines()[0]}")
        return 0
    if arguments.command == "diff":
        print("".join(diff_of(case, sources) for case in chosen), end="")
        return 0
    return run(chosen, sources)


def run(chosen: list[Case], sources: Sources) -> int:
    """Print what came out of each case, and of all."""
    passed = 0
    for case in chosen:
        answer = impact_of(case, sources)
        results = check(case, answer)
        passed += all(ok for ok, _ in results)
        print(f"{case.release} {case.name}: {answer['why']}")
        for ok, said in results:
            print(f"  {'ok   ' if ok else 'FAILS'} {said}", flush=True)
    print(f"\n{passed}/{len(chosen)} diffs answered as they must be")
    return 0 if passed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
