"""The long run over ends of a recorded process: none of its complete records is lost, however it dies.

    python benchmarks/kills.py [--count 10000] [--seed 0] [--batch 100]

A small server runs under ``sgltrace run`` and starts a child for each end; the child opens its own recording, decodes
and writes the number of each step that is done into a file of its own: that is the independent count. After up to a
tenth of a second it is ended: by a signal that cannot be caught, by one that can, by a fault in native code, by
``os._exit``, by an exception, or well. Both recorders, full and sampled steps. What is read back of each must be all
steps that were done, in order, and at most the one that was under way beside them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from sgltrace.runtime import read_trace
from sgltrace.runtime.probe import wire
from sgltrace.runtime.trace import ProcessTrace, Trace

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from runtime_support import make_server

WAYS = ("SIGKILL", "SIGTERM", "SIGQUIT", "SIGSEGV", "SIGABRT", "_exit", "raised", "well")
RECORDERS = ("C", "Python")
LONGEST_S = 0.1
PARENT = """
import os, random, resource, signal, sys, threading, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
folder, count, seed, longest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
ways, child = sys.argv[5].split(","), sys.argv[6]
rng = random.Random(seed)
running = []
for number in range(count):
    way, after = rng.choice(ways), rng.uniform(0, longest)
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, child, f"{folder}/{number}", way, str(after)])
    running.append((pid, way))
    if len(running) >= 2:
        pid, way = running.pop(0)
        os.waitpid(pid, 0)
for pid, way in running:
    os.waitpid(pid, 0)
"""
CHILD = """
import os, resource, signal, sys, threading, time
from sglang.srt.managers.scheduler import Scheduler
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
name, way, after = sys.argv[1], sys.argv[2], float(sys.argv[3])
if way.startswith("SIG") and way != "SIGKILL":
    signal.signal(getattr(signal, way), signal.SIG_DFL)  # what a shell starts in the background ignores some
out = os.open(f"{name}.{os.getpid()}.{way}", os.O_WRONLY | os.O_CREAT)
until = None

def end():
    global until
    if way == "_exit":
        os._exit(3)
    if way in ("raised", "well"):
        until = 0
        return
    os.kill(os.getpid(), getattr(signal, way))

threading.Timer(after, end).start()

class Ended(Exception):
    pass

def done(step):
    os.pwrite(out, step.to_bytes(8, "little"), 0)
    if until is not None:
        raise Ended

try:
    Scheduler().loop(10 ** 9, done)
except Ended:
    if way == "raised":
        os.close(2)
        raise
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=100, help="processes in one trace")
    arguments = parser.parse_args()
    ended: Counter[tuple[str, str]] = Counter()
    wrong: list[str] = []
    steps = at = 0
    while at < arguments.count:
        size, seed = min(arguments.batch, arguments.count - at), arguments.seed + at
        recorder, every = RECORDERS[at // arguments.batch % 2], ("1", "0", "4")[at // arguments.batch % 3]
        with tempfile.TemporaryDirectory() as name:
            steps += one_trace(Path(name), size, seed, recorder, every, ended, wrong)
        at += size
        print(f"{at} ended, {steps} steps done, {len(wrong)} wrong", file=sys.stderr)
    for (recorder, way), number in sorted(ended.items()):
        print(f"{recorder:8} {way:8} {number:6}")
    print(f"{sum(ended.values())} processes ended in {steps} steps; {len(wrong)} with a record lost or damaged")
    print("\n".join(wrong[:20]))
    return 1 if wrong or sum(ended.values()) != arguments.count else 0


def one_trace(
    folder: Path, size: int, seed: int, recorder: str, every: str, ended: Counter[tuple[str, str]], wrong: list[str]
) -> int:
    """End ``size`` processes in one trace; returns the steps that they counted themselves."""
    server = make_server(folder / "server", {"parent.py": PARENT, "child.py": CHILD})
    counts = folder / "counts"
    counts.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(server), **({"SGLTRACE_NO_C": "1"} if recorder == "Python" else {})}
    subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "sgltrace",
                "run",
                "--no-report",
                "--every",
                every,
                "-o",
                str(folder / "trace"),
                "--",
            ),
            *(sys.executable, str(server / "parent.py"), str(counts), str(size), str(seed), str(LONGEST_S)),
            *(",".join(WAYS), str(server / "child.py")),
        ],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    trace = read_trace(folder / "trace")
    traced = {int(process.name.split("-")[0]): process for process in trace.recording()}
    total = 0
    for file in counts.iterdir():
        number, pid, way = file.name.split(".")
        done = int.from_bytes(file.read_bytes() or b"", "little")
        total += done
        ended[recorder, way] += 1
        process = traced.get(int(pid))
        why = ("nothing recorded" if done else "") if process is None else loss(trace, process, done, every)
        if why:
            wrong.append(f"seed {seed} number {number} {recorder} every {every} {way}: {why}")
    return total


def loss(trace: Trace, process: ProcessTrace, done: int, every: str) -> str:
    """What is missing or damaged of a process that counted ``done`` steps; empty where all is there."""
    runs = {number for number, site in enumerate(trace.plan.sites, 1) if site.role == "step"}
    ended = [record.step for record in process.records() if record.site in runs and record.kind == wire.STEP]
    if process.loss.any or process.loss.unfinished > 1:
        return f"{process.loss}"
    if process.head is None or process.head.last_step - done not in (0, 1):
        return f"{done} steps done, and the head says {process.head and process.head.last_step}"
    counted = sum(kind.steps for kind in process.histogram())
    if counted - done not in (0, 1):
        return f"{done} steps done, {counted} in the histogram"
    if ended != sorted(set(ended)) or (ended and ended[-1] > counted):
        return "steps out of order"
    if every != "0" and len(ended) - done not in (0, 1):
        return f"{done} steps done, {len(ended)} recorded"
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
