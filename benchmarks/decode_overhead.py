"""What the probe costs a decoding engine: step time without it over step time with it, in one engine.

    python benchmarks/decode_overhead.py EAGLE3,2,1,3,v2 MODELS [--tokens 2400] [--times 3] [--control]
    PYTHONPATH=fixtures/toysgl python benchmarks/decode_overhead.py toy

MODE is `base` or ALGORITHM,STEPS,TOPK,DRAFT_TOKENS,PATH; MODELS the folder with `target` and `eagle3`, as in
`fixtures/traces/record.py`. `toy` takes the small engine of `fixtures/toysgl` instead, on the CPU.

The throughput of one engine varies by several percent from second to second, and two engines differ by more; so every
wrapper is taken off the running scheduler and put back again, between two steps, in turns of an eighth of a second. The
first steps of a turn, in which Python adapts itself, are left out, and each turn is held against the mean of the two
beside it. Printed: that ratio's mean, its standard error, the mean of each fifth of the run, and the recorder's own
account. With --control the wrappers stay off in every turn, so that the ratio shows what the method itself sees.
Whether greedy output stays the same is looked at, too. What was seen on an H200 is in `docs/recording.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TURN = 0.125
"""Seconds: longer than the gap that the recorder's account takes for a step (``pace.PAUSE_NS``)."""
SETTLE = 4
"""Steps after a switch that are left out."""
FOLDER = "DECODE_OVERHEAD_DIR"
STEP = "Scheduler.run_batch"
CONTROL = "control"
"""The file that keeps the wrappers off."""
BLOCKS = 20
LEVELS = ("full", "light", "counted")
LEAST = 6
"""Steps of a turn, without which it is left out."""


def toggle() -> None:
    """In a server's process, under the probe: take the wrappers off and put them back while ``go`` exists."""
    if "sgltrace_probe.arm" not in sys.modules:
        return
    from sgltrace_probe import attach, hooks  # type: ignore[import-not-found]

    folder, held, on = Path(os.environ[FOLDER]), [], True
    begun: list[float] = []
    places: list[tuple[Any, str, Any, Any]] = []
    original = hooks.wrap_site
    go = False

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def run_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
            now = time.perf_counter()
            begun.append(now)
            if now - begun[0] > TURN:
                turn()
            return function(self, *args, **kwargs)

        return run_batch

    def wrap_site(probe: Any, site: Any, module: Any, qualname: str, selectors: Any) -> None:
        owner = module
        *outer, name = qualname.split(".")
        for part in outer:
            owner = vars(owner)[part]
        stored = vars(owner).get(name)
        original(probe, site, module, qualname, selectors)
        wrapped = vars(owner)[name]
        if qualname == STEP:
            stored, wrapped = timed(stored), timed(wrapped)
            setattr(owner, name, wrapped)
        held.append((owner, name, stored, wrapped))

    def switch() -> None:
        if not places:
            pairs = {id(wrapped): (stored, wrapped) for _, _, stored, wrapped in held}
            places.extend(held)
            for name, module in list(sys.modules.items()):
                if name.startswith(("sglang", "toysgl")) and module is not None:
                    places.extend(
                        (module, key, *pairs[id(value)])
                        for key, value in list(vars(module).items())
                        if id(value) in pairs
                    )
        put = on and not (folder / CONTROL).exists()
        for owner, name, stored, wrapped in places:
            setattr(owner, name, wrapped if put else stored)

    def turn() -> None:
        """On the scheduler's own thread, before a step: what follows is run with the other functions."""
        nonlocal on, go
        go = go or (folder / "go").exists()
        if go:
            turns.append((on, list(begun)))
            on = not on
            switch()
            if len(turns) % 16 == 0:
                with (folder / f"{os.getpid()}.turns").open("a") as file:
                    file.writelines(json.dumps([on, len(held), steps]) + "\n" for on, steps in turns)
                turns.clear()
        begun.clear()

    turns: list[tuple[bool, list[float]]] = []
    hooks.wrap_site = attach.wrap_site = wrap_site


def ratios(turns: list[tuple[bool, int, list[float]]]) -> dict[str, object]:
    """Each turn against the two beside it. A gap of a tenth of a second is no step; one of three usual steps counts as
    three, so that a hiccup of the machine does not decide. Ratios beside one another share turns: the error comes from
    blocks of them. Raises ``SystemExit`` if there are too few turns of enough steps."""
    gaps = [[b - a for a, b in itertools.pairwise(steps[SETTLE:]) if b - a < 0.1] for _, _, steps in turns]
    usual = statistics.median(gap for inside in gaps for gap in inside)
    means = [
        statistics.fmean(min(gap, 3 * usual) for gap in inside) if len(inside) > LEAST else None for inside in gaps
    ]
    found = []
    for (on, _, _), before, here, after in zip(turns[1:], means, means[1:], means[2:], strict=False):
        if before and here and after:
            beside = (before + after) / 2
            found.append(beside / here if on else here / beside)
    fifth, size = len(found) // 5, len(found) // BLOCKS
    if not size:
        raise SystemExit(f"{len(found)} turns with more than {LEAST} steps; {BLOCKS} are needed: decode for longer")
    blocks = [statistics.fmean(found[at * size : (at + 1) * size]) for at in range(BLOCKS)]
    return {
        "step_ms": round(usual * 1e3, 3),
        "turns": len(found),
        "ratio": round(statistics.fmean(found), 4),
        "error": round(statistics.stdev(blocks) / BLOCKS**0.5, 4),
        "fifths": [round(statistics.fmean(found[at * fifth : (at + 1) * fifth]), 4) for at in range(5)],
        "wrappers": max(held for _, held, _ in turns),
    }


def accounts(folder: Path) -> list[dict[str, object]]:
    """The recorder's own account, of each process: its share of the time, and microseconds and steps by level."""
    from sgltrace.runtime.trace import read_trace  # this file is loaded in servers, too

    found = []
    for process in read_trace(folder).recording():
        head = process.head
        if head is not None and head.share is not None:
            levels = {name: (getattr(head, f"{name}_ns"), getattr(head, f"{name}_steps")) for name in LEVELS}
            found.append(
                {
                    "share": round(head.share, 4),
                    "microseconds": {name: round(ns / steps / 1e3, 1) for name, (ns, steps) in levels.items() if steps},
                    "steps": {name: steps for name, (_, steps) in levels.items()},
                }
            )
    return found


def decode(mode: str, models: str, tokens: int, times: int) -> None:
    """Under ``sgltrace run``: decode eight requests ``times`` over."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures" / "traces"))
    import record
    import sglang

    record.MODELS = models
    engine = sglang.Engine(**record.options(mode, 1), log_level="error")
    prompts = [[5 + i + j for j in range(20 + i)] for i in range(8)]

    def generate(new_tokens: int) -> str:
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": True}
        out = engine.generate(input_ids=prompts, sampling_params=sampling)
        return hashlib.sha256(json.dumps([o["output_ids"] for o in out]).encode()).hexdigest()

    for _ in range(2):
        generate(200)
    folder = Path(os.environ[FOLDER])
    (folder / "go").touch()
    (folder / "outputs").write_text(str(len({generate(tokens) for _ in range(times)})))
    engine.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode")
    parser.add_argument("models", nargs="?", default="")
    parser.add_argument("--tokens", type=int, default=2400)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--every", default="0", help="as `sgltrace run` takes it")
    parser.add_argument("--control", action="store_true", help="keep the wrappers off in every turn")
    parser.add_argument("--decode", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.decode:
        return decode(given.mode, given.models, given.tokens, given.times)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here = Path(__file__).resolve()
        (folder / "sitecustomize.py").write_text(
            f"import sys\nsys.path.insert(0, {str(here.parent)!r})\nimport decode_overhead\ndecode_overhead.toggle()\n"
        )
        if given.control:
            (folder / CONTROL).touch()
        if given.mode == "toy":
            command = ["-m", "toysgl", "--path", "v2", "--batch", "8", "--steps", "4000"]
            (folder / "go").touch()
        else:
            options = ["--tokens", str(given.tokens), "--times", str(given.times), "--decode"]
            command = [str(here), given.mode, given.models, *options]
        given_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join([name, *(str(Path(part).resolve()) for part in given_path if part)])
        subprocess.run(
            [
                sys.executable,
                "-m",
                "sgltrace",
                "run",
                "--no-report",
                "--every",
                given.every,
                "-o",
                f"{name}/trace",
                "--",
                sys.executable,
                *command,
            ],
            env={**os.environ, "PYTHONPATH": path, FOLDER: name},
            cwd=name,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        outputs = folder / "outputs"
        for turns in folder.glob("*.turns"):
            found = ratios([json.loads(line) for line in turns.read_text().splitlines()])
            if outputs.exists():
                found["identical"] = outputs.read_text() == "1"
            found["account"] = accounts(folder / "trace")
            print(json.dumps({"mode": given.mode, **found}))


if __name__ == "__main__":
    main()
