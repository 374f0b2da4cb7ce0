"""One process of an experiment: started with the probe in it, watched, ended in time, and what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sgltrace.runtime.staging import PROBE

GRACE_S = 5.0
LATE = 6
"""On steps after an off step that count for the acceptance after it."""
LOG_BYTES = 200_000
PLAN, END = "experiment.json", "end.json"


class Strike(msgspec.Struct, kw_only=True):
    """What ended a rung, or what was wrong with it."""

    exception: str
    """The class of an exception; ``wrong tokens``, ``hang``, ``ended`` or ``lost acceptance`` where there is none."""
    message: str = ""
    function: str | None = None
    file: str | None = None
    line: int | None = None
    step: int | None = None
    when: str = ""
    """``at launch`` (in the off step itself), ``in this step``, ``a step later``, ``when idle`` or ``at the end``."""
    frames: list[tuple[str, int, str]] = []
    """File, line and function, the last call last."""
    point: str | None = None
    bridge: str | None = None
    """The bridge that was added for it."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one rung."""

    name: str
    bridges: list[str]
    pattern: str
    exit_code: int | None
    strike: Strike | None = None
    steps: int = 0
    offs: int = 0
    requests: dict[str, list[int]] = {}
    """Output by prompt (comma-separated)."""
    learned: dict[str, Any] = {}
    problems: list[str] = []
    gaps: dict[int, list[float]] = {}
    """By pass: how far each scored token was below the best."""
    accept: dict[str, float] = {}
    """Mean accepted tokens: ``on``, and ``after`` an off step."""
    period_ms: dict[str, float] = {}
    """Median time from step to step: ``on``, ``off``, ``plain``, at the batch size that was seen most."""
    wrong: int = 0
    scored: int = 0
    worst_gap: float = 0.0


class Running:
    """A rung whose process runs."""

    def __init__(self, folder: Path, plan: dict[str, Any], command: Sequence[str], limit_s: float, whole: bool) -> None:
        """``whole``: a process that takes longer hangs; else the experiment's time was over before it could end."""
        self.folder, self.name, self.plan = folder, folder.name, plan
        self.case: tuple[tuple[str, ...], str] | None = None
        """Which case it runs: bridges and pattern."""
        shutil.rmtree(self.folder, ignore_errors=True)
        package = self.folder / "probe" / "sgltrace_probe"
        package.mkdir(parents=True)
        for file in sorted(PROBE.glob("*.py")):
            shutil.copyfile(file, (package.parent if file.name == "sitecustomize.py" else package) / file.name)
        (self.folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")
        path = os.environ.get("PYTHONPATH")
        environment = dict(os.environ) | {
            "SGLTRACE_EXPERIMENT": str(self.folder),
            "SGLTRACE_PASSES": str(plan.get("passes", 1)),
            "PYTHONPATH": f"{package.parent}{os.pathsep}{path}" if path else str(package.parent),
        }
        environment.pop("SGLTRACE_DIR", None)
        words = list(command)
        while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
            key, _, value = words.pop(0).partition("=")
            environment[key] = value
        self.log = (self.folder / "log").open("wb")
        self.until = time.monotonic() + limit_s
        self.hung, self.whole = False, whole
        self.process = subprocess.Popen(
            words, env=environment, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def ended(self) -> bool:
        """Whether it has ended; one that takes too long, or that goes on after a strike, is ended."""
        if self.process.poll() is None:
            struck = (self.folder / "struck").exists()
            if struck:
                self.until = min(self.until, time.monotonic() + GRACE_S)
            if time.monotonic() < self.until:
                return False
            self.hung = not struck
        self.stop()
        if self.hung and not self.whole:
            return True
        end = {"exit_code": self.process.returncode, "hung": self.hung, "last_line": self._last_line()}
        (self.folder / END).write_text(json.dumps(end), encoding="utf-8")
        return True

    def stop(self) -> None:
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def _last_line(self) -> str:
        with (self.folder / "log").open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - LOG_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else "no output"


def kept(folder: Path) -> tuple[dict[str, Any], Outcome] | None:
    """The plan and the outcome of a process that has ended, from what lies in its folder; None where it has not."""
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        end = json.loads((folder / END).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    out = Outcome(
        name=folder.name,
        bridges=[b["id"] for b in plan.get("bridges", [])],
        pattern=plan.get("pattern", ""),
        exit_code=end["exit_code"],
    )
    reader = _Reader(out)
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a process that was killed
                reader.take(json.loads(line))
    reader.finish()
    if out.strike is None and end["hung"]:
        out.strike = Strike(exception="hang", message="it did not end in time", step=out.steps, when="in this step")
    elif out.strike is None and out.exit_code:
        message = f"exit code {out.exit_code}: {end['last_line']}"
        out.strike = Strike(exception="ended", message=message, step=out.steps, when="at the end")
    return plan, out


class _Reader:
    def __init__(self, out: Outcome) -> None:
        self.out = out
        self.accepted: dict[str, list[float]] = {"on": [], "after": []}
        self.times: list[tuple[int, str, int]] = []
        self.prompts: dict[int, str] = {}

    def take(self, line: Mapping[str, Any]) -> None:
        out = self.out
        if "strike" in line and (out.strike is None):
            out.strike = _strike(line)
        elif "learned" in line:
            out.learned = line["learned"]
        elif "problem" in line:
            out.problems.append(str(line["problem"]))
        elif "gap" in line:
            out.gaps.setdefault(line["pass"], []).append(float(line["gap"]))
        elif "prompt" in line:
            out.requests[",".join(map(str, line["prompt"]))] = line["output"]
        elif "accepted" in line and not line["off"]:
            side = "after" if line["since"] is not None and line["since"] <= LATE else "on"
            self.accepted[side] += line["accepted"]
        elif "t" in line:
            plain = "plain" in line
            if not plain:
                out.steps = max(out.steps, line["n"])
                out.offs += line["off"]
            decode = line["plain"] if plain else line["decode"]
            kind = "" if not decode else "plain" if plain else "off" if line["off"] else "on"
            self.times.append((line["t"], kind, line["bs"]))

    def finish(self) -> None:
        out = self.out
        out.accept = {side: statistics.fmean(counts) for side, counts in self.accepted.items() if counts}
        periods: dict[tuple[str, int], list[float]] = {}
        for (began, kind, bs), (following, after, _) in zip(self.times, self.times[1:], strict=False):
            if kind and after:
                periods.setdefault((kind, bs), []).append((following - began) / 1e6)
        for kind in ("on", "off", "plain"):
            most = max((v for (k, _), v in periods.items() if k == kind), key=len, default=[])
            if most:
                out.period_ms[kind] = statistics.median(most)


def _strike(line: Mapping[str, Any]) -> Strike:
    frames = [(str(f), int(n), str(name)) for f, n, name, _ in line["frames"]]
    own = [f for f in frames if "/sglang/" in f"/{f[0]}"] or frames
    last = own[-1] if own else (None, None, None)
    steps = int(line["step"])
    if line["at launch"]:
        when = "at launch"
    elif line["off step"] == steps:
        when = "in this step"
    else:
        when = f"{steps - line['off step']} steps later" if steps - line["off step"] != 1 else "a step later"
    return Strike(
        exception=str(line["strike"]), message=str(line["message"]), file=last[0], line=last[1], function=last[2],
        step=steps, when=when, frames=frames[-12:],
    )  # fmt: skip
