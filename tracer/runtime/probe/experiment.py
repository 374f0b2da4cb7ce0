"""One process of an experiment: watches steps with speculation, takes some off, or scores tokens on a plain server.

What it sees goes into files of the folder, as it happens: a server ends its children with SIGKILL.
"""

# As in the rest of the probe, no pathlib.
# ruff: noqa: PTH118, PTH123
from __future__ import annotations

import functools
import json
import os
import sys
import time
import traceback
import types
from typing import Any

from .finder import ImportHook
from .learn import Lesson, before_step
from .objects import fields, is_one_of, is_tensor
from .off_step import OffStep
from .pattern import Pattern

FOLDER = "SGLTRACE_EXPERIMENT"
NEAR = 4
"""Calls from the end of a traceback that are kept with their lines."""


def start() -> None:
    """Put the import hook in place."""
    folder = os.environ[FOLDER]
    with open(os.path.join(folder, "experiment.json"), encoding="utf-8") as file:
        plan = json.load(file)
    experiment = Experiment(folder, plan)
    modules = {name.partition(":")[0] for name in experiment.wanted}
    sys.meta_path.insert(0, ImportHook(frozenset(modules), experiment.imported))


class Experiment:
    """What is done in this process."""

    def __init__(self, folder: str, plan: dict[str, Any]) -> None:
        self.folder, self.plan, self.parts = folder, plan, plan["parts"]
        self.mode: str = plan["mode"]
        self.learned: dict[str, Any] = plan.get("learned", {})
        self.pattern = Pattern(plan.get("pattern", ""))
        self.lesson = Lesson(self.parts, plan["rows"]) if self.mode == "watch" else None
        self.wanted: dict[str, Any] = {}
        self.off: OffStep | None = None
        self.steps = self.decodes = self.offs = 0
        self.since: int | None = None
        """Decode steps since the last off step."""
        self.requests: dict[int, Any] = {}
        self.told: dict[int, int] = {}
        self.results: list[tuple[int, bool, int | None, Any]] = []
        self.inputs: dict[str, Any] | None = None
        self.inside: Any = None
        self.struck = False
        self.last_off = -1
        self.out: Any = None
        if self.mode == "plain":
            for cls in self.parts["arguments"]:
                self.wanted[f"{cls}.__post_init__"] = self.without_speculation
            self.wanted[self.parts["target"]] = self.plain_step
        else:
            self.wanted[self.parts["entry"]] = self.step
            self.wanted[self.parts["target"]] = self.target_step
            for function in plan.get("writers", []):
                self.wanted[function] = self.writer
        for function in plan["loops"]:
            self.wanted[function] = self.loop
        for function in self.parts["processing"]:
            self.wanted[function] = self.processing

    # --- getting in ---

    def imported(self, module: types.ModuleType) -> None:
        """A module has run: wrap its functions."""
        for function, make in self.wanted.items():
            name, _, qualname = function.partition(":")
            if name != module.__name__:
                continue
            owner: Any = module
            *outer, last = qualname.split(".")
            for part in outer:
                owner = vars(owner).get(part)
                if owner is None:
                    break
            stored = None if owner is None else vars(owner).get(last)
            if not isinstance(stored, types.FunctionType):
                self.note({"problem": f"no function {function} to wrap in this process"})
                continue
            setattr(owner, last, make(stored))

    def note(self, what: dict[str, Any]) -> None:
        """A line for the experiment, written at once."""
        if self.out is None or self.out[0] != os.getpid():
            path = os.path.join(self.folder, f"{os.getpid()}.jsonl")
            self.out = (os.getpid(), open(path, "a", encoding="utf-8"))  # noqa: SIM115
        self.out[1].write(json.dumps(what) + "\n")
        self.out[1].flush()

    # --- a server without speculation ---

    def without_speculation(self, function: Any) -> Any:
        """Server arguments whose options of speculation are put back to their defaults before they are handled."""

        @functools.wraps(function)
        def post_init(args: Any, *rest: Any, **kwargs: Any) -> Any:
            for name in self.parts["algorithm_fields"]:
                setattr(args, name, getattr(type(args), name, None))
            return function(args, *rest, **kwargs)

        return post_init

    def plain_step(self, function: Any) -> Any:
        """The target's step on a plain server: its tokens are scored, and exchanged for those to be scored."""
        from .score import Scorer

        scorer = Scorer(self.plan, self.note)

        @functools.wraps(function)
        def step(worker: Any, *args: Any, **kwargs: Any) -> Any:
            began = time.monotonic_ns()
            result = function(worker, *args, **kwargs)
            batch = args[0] if args else None
            if batch is not None and hasattr(batch, self.learned.get("requests", "")):
                self.keep(batch)
                decode = self.is_decode(batch)
                self.note({"t": began, "plain": decode, "bs": len(getattr(batch, self.learned["requests"]))})
                scorer.score(batch, result)
            return result

        return step

    # --- a server with speculation ---

    def is_decode(self, batch: Any) -> bool:
        """Whether a batch is to be decoded."""
        modes = frozenset([self.parts["mode"]])
        held = [v for v in fields(batch).values() if is_one_of(v, modes)]
        return bool(held) and held[0].name == self.parts["decode"]

    def step(self, function: Any) -> Any:
        """The worker's step: on, or off where the pattern says so."""

        @functools.wraps(function)
        def step(worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
            if self.inside is not None:
                return function(worker, batch, *args, **kwargs)
            self.inside = worker
            self.steps += 1
            try:
                return self.one(function, worker, batch, args, kwargs)
            finally:
                self.inside = None

        return step

    def one(self, function: Any, worker: Any, batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One step that is watched, on or off."""
        decode = self.is_decode(batch)
        if self.lesson is not None:
            return self.watched(function, worker, batch, args, kwargs, decode)
        self.keep(batch)
        state = getattr(batch, self.learned["state"], None)
        bs = len(getattr(batch, self.learned["lengths"]))
        off = False
        if decode and state is not None and bs:
            self.decodes += 1
            off = self.mode == "off" and self.pattern.is_off(self.decodes, bs)
            self.since = 0 if off else None if self.since is None else self.since + 1
        self.note({"n": self.steps, "t": time.monotonic_ns(), "decode": decode, "off": off, "bs": bs})
        if not off:
            result = function(worker, batch, *args, **kwargs)
        else:
            self.offs += 1
            self.last_off = self.steps
            assert self.off is not None
            result = self.off.run(worker, batch, args, kwargs)
        if decode:
            self.results.append((self.steps, off, self.since, result))
            self.tell_accepted()
        return result

    def tell_accepted(self, late: int = 2) -> None:
        """How many tokens each request got, of results that the scheduler has on the CPU by now."""
        while len(self.results) > late:
            number, off, since, result = self.results.pop(0)
            counts: Any = getattr(result, self.learned.get("counts") or "", None)
            if is_tensor(counts) and counts.device.type == "cpu":
                self.note({"accepted": counts.tolist(), "step": number, "off": off, "since": since})

    def watched(
        self, function: Any, worker: Any, batch: Any, args: tuple[Any, ...], kwargs: dict[str, Any], decode: bool
    ) -> Any:
        """A step with speculation, and what can be learned from it."""
        lesson = self.lesson
        assert lesson is not None
        if lesson.done:
            self.lesson = None
            return self.one(function, worker, batch, args, kwargs)
        state = lesson.state_of(batch) if decode else None
        before = before_step(batch, state)
        lengths = {
            n: [int(x) for x in (v.tolist() if is_tensor(v) else v)]
            for n, v in fields(batch).items()
            if (is_tensor(v) and not v.is_floating_point() and v.dim() == 1) or (isinstance(v, list) and _whole(v))
        }
        self.inputs = {}
        handed: dict[str, list[Any]] = {}
        for name, value in kwargs.items():
            if callable(value):
                kwargs[name] = _listening(value, handed.setdefault(name, []))
        result = function(worker, batch, *args, **kwargs)
        inputs, self.inputs = self.inputs, None
        try:
            if not decode:
                lesson.prefilled(batch, result, lengths)
            elif state is not None and before["bs"] > 1 and inputs:
                lesson.decoded(before, inputs, result, worker, inputs.pop("the target"))
                self.handed(lesson, before, handed)
                self.learned_extend(lesson, worker)
                lesson.grown(getattr(batch, lesson.found.get("requests", ""), None) or [])
        except Exception as error:
            self.note(
                {"problem": f"watching: {type(error).__name__}: {error}", "trace": traceback.format_exc()[-2000:]}
            )
        self.learned = lesson.summary()
        self.keep(batch)
        self.note({"learned": self.learned})
        self.note({"n": self.steps, "t": time.monotonic_ns(), "decode": decode, "off": False, "bs": before["bs"]})
        return result

    def handed(self, lesson: Lesson, before: dict[str, Any], handed: dict[str, list[Any]]) -> None:
        """Functions that the worker's step was given, and calls with lengths."""
        for name, values in handed.items():
            if values and is_tensor(values[0]) and tuple(values[0].shape) == (before["bs"],):
                lesson.found.setdefault("calls", [])
                if name not in lesson.found["calls"]:
                    lesson.found["calls"].append(name)

    def learned_extend(self, lesson: Lesson, worker: Any) -> None:
        """Where the draft's own writer belongs."""
        from .objects import way_to

        seen = getattr(self, "written", None)
        if seen is not None and "extend" not in lesson.found:
            owner, function, tokens = seen
            way = [] if owner is worker else way_to(worker, owner)
            if way is not None:
                lesson.found["extend"] = {"owner": way, "function": function, "tokens": tokens}

    def writer(self, function: Any) -> Any:
        """What keeps the draft up to date in a step with speculation, when it is called by the worker's step itself."""

        @functools.wraps(function)
        def writer(owner: Any, *args: Any, **kwargs: Any) -> Any:
            lesson = self.lesson
            if lesson is not None and self.inputs and len(args) == 2 and not kwargs:
                tokens: Any = getattr(args[1], lesson.tokens or "", None)
                if is_tensor(tokens) and not hasattr(self, "written"):
                    self.written = (owner, function.__name__, str(tokens.dtype))
            return function(owner, *args, **kwargs)

        return writer

    def target_step(self, function: Any) -> Any:
        """The target's step: while the worker's is watched, what it is given."""
        self.off = OffStep(self.plan, function) if self.mode == "off" else None

        @functools.wraps(function)
        def step(target: Any, *args: Any, **kwargs: Any) -> Any:
            lesson = self.lesson
            if lesson is not None and self.inputs == {} and target is not self.inside:
                self.given(lesson, target, [*args, *kwargs.values()])
            return function(target, *args, **kwargs)

        return step

    def given(self, lesson: Lesson, target: Any, values: list[Any]) -> None:
        """What the target is given by the worker's step, and where it is."""
        if "target" not in lesson.found:
            lesson.parts_of(self.inside, target)
        batches = [v for v in values if is_one_of(v, frozenset(self.parts["batches"]))]
        if batches:
            self.inputs = {n: v.clone() for n, v in fields(batches[0]).items() if is_tensor(v)}
            self.inputs["the target"] = target

    # --- what comes of it ---

    def keep(self, batch: Any) -> None:
        """Remember the requests of a batch, to tell their tokens."""
        for req in getattr(batch, self.learned.get("requests", ""), None) or ():
            self.requests.setdefault(id(req), req)

    def processing(self, function: Any) -> Any:
        """The scheduler has processed a result: tell what requests have by now."""

        @functools.wraps(function)
        def process(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            out = function(scheduler, *args, **kwargs)
            self.tell_requests()
            return out

        return process

    def tell_requests(self) -> None:
        """The tokens of every request that has more than it had."""
        prompt, output = self.learned.get("prompt"), self.learned.get("output")
        if not prompt or not output:
            return
        for key, req in self.requests.items():
            now = list(getattr(req, output))
            if len(now) != self.told.get(key, 0):
                self.told[key] = len(now)
                self.note({"request": key, "prompt": list(getattr(req, prompt)), "output": now})

    def loop(self, function: Any) -> Any:
        """The scheduler's loop: what ends it is what struck."""

        @functools.wraps(function)
        def loop(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return function(scheduler, *args, **kwargs)
            except BaseException as error:
                self.strike(error)
                raise

        return loop

    def strike(self, error: BaseException) -> None:
        """Tell what struck, once."""
        if self.struck or isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
            return
        self.struck = True
        with open(os.path.join(self.folder, "struck"), "w", encoding="utf-8"):
            pass
        frames = [
            [f.filename, f.lineno, f.name, f.line]
            for f in traceback.extract_tb(error.__traceback__)
            if "sgltrace" not in f.filename
        ]
        inside = any(f.name == "run" and "off_step" in f.filename for f in traceback.extract_tb(error.__traceback__))
        self.note(
            {
                "strike": type(error).__name__,
                "message": str(error)[:600],
                "frames": frames[-24:],
                "step": self.steps,
                "off step": self.last_off,
                "offs": self.offs,
                "at launch": inside,
            }
        )


def _listening(function: Any, heard: list[Any]) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        heard.extend(args)
        return function(*args, **kwargs)

    return call


def _whole(values: list[Any]) -> bool:
    return bool(values) and isinstance(values[0], int) and not isinstance(values[0], bool)
