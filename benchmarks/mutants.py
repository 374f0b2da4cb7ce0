"""The long run over mutants of sources: no traceback, no hang, and no other file suffers.

    python benchmarks/mutants.py RELEASE... [--count 5000] [--seed 0] [--whole] [--jobs 2] [--limit 120]

The mutants are those of ``tests/mutants.py``, of files that a scheduler's process reaches. Each is put into its release
in the place of the original, and the call graph is made (with ``--whole`` the whole index). A process of its own does
that, which has all other facts from the cache; one that raises, dies, or is busy for longer than the limit is counted,
and named with its seed. ``--seed N --count 1`` runs one again, and shows its traceback. Other kinds of input have their
long run in the tests: ``SGLTRACE_MUTANTS=100 python -m pytest tests/test_mutants.py``.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import NoReturn

from sgltrace.errors import InputError
from sgltrace.files import user_cache_dir
from sgltrace.index import IndexOptions, build
from sgltrace.insight.assemble import make_index
from sgltrace.progress import SilentProgress
from sgltrace.sources import SourceTree, open_source

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from mutants import edited, mutant

INDEXED, REFUSED, RAISED, SPREAD = range(4)
NAMES = {INDEXED: "indexed", REFUSED: "refused in one line", RAISED: "RAISED", SPREAD: "TOOK ANOTHER FILE WITH IT"}
EVERY = 50
"""How many mutants between two lines on standard error."""
FINE = {"indexed", "refused in one line"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", nargs="+")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="the whole index, not only the call graph")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, default=120, help="seconds of processor time for a mutant")
    arguments = parser.parse_args()
    trees = [open_source(r, cache_dir=user_cache_dir(), progress=SilentProgress()) for r in arguments.release]
    reached = [reached_files(tree) for tree in trees]
    outcomes: Counter[str] = Counter()
    running: dict[int, str] = {}
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        tree, paths = trees[seed % len(trees)], reached[seed % len(trees)]
        path = paths[seed // len(trees) % len(paths)]
        if len(running) >= arguments.jobs:
            note(outcomes, running)
        if (pid := os.fork()) == 0:
            one(tree, path, seed, arguments.whole, arguments.limit, quiet=arguments.count > 1)
        running[pid] = f"{tree.source.requested} {path} seed {seed}"
    while running:
        note(outcomes, running)
    print(f"{arguments.count} mutants of {len(trees)} releases")
    for name, count in sorted(outcomes.items()):
        print(f"{count:7}  {name}")
    return 0 if set(outcomes) <= FINE else 1


def reached_files(tree: SourceTree) -> list[str]:
    """The paths of the files that a scheduler's process has functions of."""
    made = build(tree, IndexOptions(), SilentProgress())
    return sorted({function.file for function in made.functions})


def one(tree: SourceTree, path: str, seed: int, whole: bool, limit: int, quiet: bool) -> NoReturn:
    """Make one mutant, index it, and end with the outcome."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    outcome = RAISED
    try:
        changed = edited(tree, {path: mutant(tree.read(path), seed)})
        made = (make_index if whole else build)(changed, IndexOptions(jobs=1), SilentProgress())
        outcome = INDEXED if {skipped.file for skipped in made.skipped} - set(tree.unread) <= {path} else SPREAD
    except InputError:
        outcome = REFUSED
    except BaseException:
        if not quiet:
            traceback.print_exc()
    finally:
        os._exit(outcome)


def note(outcomes: Counter[str], running: dict[int, str]) -> None:
    """Wait for one to end; name it where it did not end well."""
    pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        name = NAMES.get(code, f"ENDED WITH {code}")
    else:
        name = "TOOK TOO LONG" if -code in (signal.SIGXCPU, signal.SIGKILL) else f"DIED OF {signal.Signals(-code).name}"
    outcomes[name] += 1
    if outcomes.total() % EVERY == 0:
        print(f"{outcomes.total()} mutants: {dict(sorted(outcomes.items()))}", file=sys.stderr, flush=True)
    what = running.pop(pid)
    if name not in FINE:
        print(f"{name}: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
