"""Records engines on a GPU and times them, one at a time: what the client saw beside what is in the traces.

    python benchmarks/engines.py MODELS OUT [--rounds 20] [MODE ...]

MODELS is the folder with `target` and `eagle3`, as in `fixtures/traces/record.py`; a MODE is `base` or
ALGORITHM,STEPS,TOPK,DRAFT_TOKENS,PATH, by default plain, EAGLE-3 on v1 and v2, and STANDALONE. All engines start
together, which takes a minute or two; then each makes requests of 40 and 340 tokens at batch 1, 2, 4, 8 and 12, under
the probe, while the others are idle. With --rounds three engines more of each mode, two without the probe and one with
it, take turns at batch 8. OUT gets a trace for each mode, `client.json` and `rounds.json`. What was seen on an H200:
`docs/recording.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODES = ("base", "EAGLE3,2,4,16,v1", "EAGLE3,2,1,3,v2", "STANDALONE,2,1,3,v2")
BATCHES = (1, 2, 4, 8, 12)
SHORT, LONG = 40, 340
PATIENCE_S = 300.0
TURN_TOKENS = 240


def serve(models: str, mode: str, place: Path) -> None:
    """In a process of its own: make requests as the driver asks for them, until it says stop."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "fixtures" / "traces"))
    import record
    import sglang

    record.MODELS = models
    # The KV cache is kept small: many engines share the GPU.
    engine = sglang.Engine(**record.options(mode, 1), max_total_tokens=24_000, decode_log_interval=8)

    def generate(batch: int, tokens: int) -> dict[str, Any]:
        prompts = [[5 + i + j for j in range(20 + i)] for i in range(batch)]
        sampling = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}
        began = time.perf_counter()
        outputs = engine.generate(input_ids=prompts, sampling_params=sampling)
        seconds = time.perf_counter() - began
        digest = hashlib.sha256(json.dumps([o["output_ids"] for o in outputs]).encode()).hexdigest()[:12]
        accepted = outputs[0]["meta_info"].get("spec_accept_length")
        return {"batch": batch, "tokens": tokens, "seconds": seconds, "accept_length": accepted, "output": digest}

    generate(2, 4)
    place.with_suffix(".up").touch()
    for number in range(1_000_000):
        asked = place.with_suffix(f".ask{number}")
        while not asked.exists():
            time.sleep(0.003)
        what = json.loads(asked.read_text())
        if not what:
            break
        answer = place.with_suffix(".new")
        answer.write_text(json.dumps([generate(*one) for one in what]))
        answer.rename(place.with_suffix(f".told{number}"))
    engine.shutdown()


class Engine:
    """A process that serves one mode."""

    def __init__(self, models: str, mode: str, place: Path, trace: Path | None) -> None:
        self.mode, self.place, self.asked = mode, place, 0
        command = [sys.executable, __file__, models, str(place), "--serve", mode]
        if trace is not None:
            command = [sys.executable, "-m", "sgltrace", "run", "--no-report", "-o", str(trace), "--", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def wait_for(self, path: Path) -> None:
        """Until ``path`` is there. Raises ``RuntimeError`` if the engine has ended, or takes too long."""
        until = time.monotonic() + PATIENCE_S
        while not path.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.mode}: no answer, exit code {self.process.poll()}")
            time.sleep(0.003)

    def ask(self, *what: tuple[int, int]) -> list[dict[str, Any]]:
        """Make requests of (batch size, tokens), one after the other; nothing at all ends the engine."""
        new = self.place.with_suffix(".asking")
        new.write_text(json.dumps(what))
        new.rename(self.place.with_suffix(f".ask{self.asked}"))
        told = self.place.with_suffix(f".told{self.asked}")
        self.asked += 1
        if not what:
            return []
        self.wait_for(told)
        return list(json.loads(told.read_text()))


def turns(untraced: Engine, traced: Engine, other: Engine, rounds: int) -> dict[str, Any]:
    """Speed of the traced engine over that of the untraced ones beside it, and of these over one another."""
    ratios, spread, outputs = [], [], set()
    for number in range(rounds + 1):
        order = [untraced, traced, other]
        seconds = {}
        for engine in order if number % 2 else order[::-1]:
            (told,) = engine.ask((8, TURN_TOKENS))
            seconds[engine] = told["seconds"]
            outputs.add(told["output"])
        if number:  # the first one warms up
            ratios.append((seconds[untraced] + seconds[other]) / 2 / seconds[traced])
            spread.append(seconds[untraced] / seconds[other])
    return {"rounds": rounds, "ratio": _mean(ratios), "untraced": _mean(spread), "identical": len(outputs) == 1}


def _mean(values: list[float]) -> dict[str, float]:
    error = statistics.stdev(values) / len(values) ** 0.5
    return {"mean": round(statistics.fmean(values), 4), "error": round(error, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models")
    parser.add_argument("out", type=Path)
    parser.add_argument("modes", nargs="*", metavar="MODE")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    if given.serve:
        return serve(given.models, given.serve, given.out)
    given.out.mkdir(parents=True, exist_ok=True)
    modes = given.modes or list(MODES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recorded = [
            Engine(given.models, mode, folder / f"r{n}", given.out / mode.replace(",", "_"))
            for n, mode in enumerate(modes)
        ]
        beside = [
            [Engine(given.models, mode, folder / f"t{n}{k}", folder / f"t{n}" if k == 1 else None) for k in range(3)]
            for n, mode in enumerate(modes if given.rounds else ())
        ]
        engines = [*recorded, *(engine for three in beside for engine in three)]
        for engine in engines:
            engine.wait_for(engine.place.with_suffix(".up"))
        client: dict[str, list[dict[str, Any]]] = {}
        for engine in recorded:
            for batch in BATCHES:
                engine.ask((batch, 16))
                client.setdefault(engine.mode, []).extend(engine.ask((batch, SHORT), (batch, LONG)))
        (given.out / "client.json").write_text(json.dumps(client, indent=1))
        for engine in recorded:
            engine.ask()
        rounds = {three[0].mode: turns(three[0], three[1], three[2], given.rounds) for three in beside}
        (given.out / "rounds.json").write_text(json.dumps(rounds, indent=1))
        for engine in engines[len(recorded) :]:
            engine.ask()
        for engine in engines:
            engine.process.wait()
        print(json.dumps(rounds, indent=1))


if __name__ == "__main__":
    main()
