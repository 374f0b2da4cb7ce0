"""One command, taken through a release's argument handling and the scheduler's choice of a worker."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sgltrace.evaluate import Machine, Unknown
from sgltrace.evaluate.frame import Frame
from sgltrace.evaluate.functions import Function, Opaque
from sgltrace.evaluate.library import Parser
from sgltrace.evaluate.machine import OutOfSteps
from sgltrace.explain.cast import Parts
from sgltrace.explain.chain import Recorder, Running
from sgltrace.explain.command import Command
from sgltrace.explain.vocabulary import Hints
from sgltrace.sources import SourceTree

ARGUMENT_STEPS, SCHEDULER_STEPS, READING_STEPS = 4_000_000, 1_500_000, 3_000_000
STACK_BYTES = 512 * 1024 * 1024
T = TypeVar("T")


@dataclass
class Inputs:
    """What is known besides the command: assumptions by name, and facts of the machine and the model."""

    assumed: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    has_model: bool = False
    model: dict[str, Any] = field(default_factory=dict)
    """What the model's own file says."""


@dataclass
class Handled:
    """What came of the command."""

    machine: Machine
    recorder: Recorder
    record: Any = None
    error: BaseException | None = None
    phase: str = "arguments"
    problems: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    """The record's fields as the command line sets them."""
    skipped_before: int = 0
    """How many statements could not be run while the arguments were handled; what a scheduler starts is not run."""


def on_large_stack(run: Callable[[], T]) -> T:
    """Run something that recurses deeply: the source's calls nest, and each takes several of Python's."""
    results: list[T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(run())
        except BaseException as error:
            errors.append(error)

    old_limit, old_stack = sys.getrecursionlimit(), threading.stack_size(STACK_BYTES)
    sys.setrecursionlimit(60_000)
    try:
        thread = threading.Thread(target=body, name="evaluation", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.1)  # an interrupt is answered between two waits
    finally:
        threading.stack_size(old_stack)
        sys.setrecursionlimit(old_limit)
    if errors:
        raise errors[0]
    return results[0]


def handle(tree: SourceTree, parts: Parts, command: Command, inputs: Inputs, hints: Hints) -> Handled:
    """Run a release's argument handling on a command, then the scheduler's initialisation as far as it is known."""
    recorder = Recorder()
    recorder.opaque_names = () if inputs.has_model else hints.model_classes
    recorder._record_name = parts.record
    machine = Machine(
        tree,
        environment=command.environment,
        assumed=inputs.assumed,
        facts=inputs.facts,
        installed=hints.installed,
        readable=frozenset(word for word in _words(command.arguments) if Path(word).is_file()),
        named=frozenset(word for word in _words(command.arguments) if not word.startswith("-")),
        watcher=recorder,
    )
    recorder.machine = machine
    handled = Handled(machine, recorder)
    with _at_most(handled, ARGUMENT_STEPS, "handling the arguments"):
        _arguments(handled, parts, command)
    handled.skipped_before = len(machine.skipped)
    if handled.record is not None and handled.error is None:
        with _at_most(handled, SCHEDULER_STEPS, "the scheduler's initialisation"):
            _worker(handled, parts, hints)
    machine.lenient = None
    recorder.phase = "over"
    machine.limit = machine.steps + READING_STEPS
    return handled


@contextmanager
def _at_most(handled: Handled, steps: int, what: str) -> Iterator[None]:
    machine = handled.machine
    machine.limit = machine.steps + steps
    try:
        yield
    except OutOfSteps:
        handled.problems.append(f"{what} takes more than {steps} steps; what it decides is not known")


def _words(arguments: tuple[str, ...]) -> list[str]:
    return [part for word in arguments for part in (word, word.partition("=")[2]) if part]


def _arguments(handled: Handled, parts: Parts, command: Command) -> None:
    machine, recorder = handled.machine, handled.recorder
    module = machine.modules.load(parts.module)
    record_class = machine.modules.attribute(module, parts.record)
    recorder.fields = frozenset(field_names(record_class))
    argv = list(command.arguments)
    try:
        if parts.prepare is not None:
            record = machine.call(machine.modules.attribute(module, parts.prepare), (argv,), {})
        else:
            parser = Parser()
            machine.call(machine.get_attribute(record_class, "add_cli_args"), (parser,), {})
            record = machine.call(machine.get_attribute(record_class, "from_cli_args"), (parser.parse_args(argv),), {})
        if isinstance(record, Unknown):
            handled.problems.append(f"what {parts.prepare} returns is not known")
            return
        handled.record = recorder.record = record
        for name in parts.asked:
            if isinstance(getattr(type(record), name, None), Function):
                machine.call(machine.get_attribute(record, name), (), {})
    except (Exception, SystemExit) as error:
        handled.error = error
        handled.record = recorder.record


def field_names(record_class: Any) -> list[str]:
    """The fields of a dataclass or a Struct."""
    if hasattr(record_class, "__struct_fields__"):
        return list(record_class.__struct_fields__)
    return list(getattr(record_class, "__dataclass_fields__", ()))


def _worker(handled: Handled, parts: Parts, hints: Hints) -> None:
    """Let the scheduler's process begin, without looking into what it starts: workers, pools, sockets."""
    machine, recorder = handled.machine, handled.recorder
    handled.phase = recorder.phase = "scheduler"
    if parts.scheduler_module is None or parts.process is None or parts.scheduler is None:
        handled.problems.append("no scheduler was found in the source: which worker it starts is not known")
        return
    known = set(machine.modules.loaded)
    module = machine.modules.load(parts.scheduler_module)
    process = machine.modules.attribute(module, parts.process)
    scheduler = machine.modules.attribute(module, parts.scheduler)
    if not isinstance(process, Function) or not isinstance(scheduler, type):
        handled.problems.append(f"{parts.process} could not be read: which worker it starts is not known")
        return
    recorder.scheduler = scheduler
    recorder.known_modules = frozenset(known)
    machine.lenient = Lenient(machine, {b.__module__ for b in scheduler.__mro__}, parts.module)
    first = {"gpu_id": 0, "tp_rank": 0, "dp_rank": None}
    given = {
        arg.arg: handled.record if position == 0 else first.get(arg.arg, 0 if arg.arg.endswith("_rank") else Opaque())
        for position, arg in enumerate(process.node.args.args)
    }
    try:
        machine.call(process, (), given)
    except Running:
        pass
    except (Exception, SystemExit) as error:
        handled.error = error
    if machine.lenient.refusal is not None:
        handled.error = machine.lenient.refusal


class Lenient:
    """In the scheduler's process much is not known: a statement that fails is passed over, a refusal of the source's
    own is not."""

    def __init__(self, machine: Machine, own: set[str], arguments: str) -> None:
        self._machine = machine
        self._arguments = arguments
        self._own = own
        self._known = set(machine.modules.loaded)
        self.refusal: BaseException | None = None

    def _is_own(self, module: str) -> bool:
        return module in self._own or ".speculative." in module

    def follows(self, function: Function) -> bool:
        """Whether a function is looked into: one of the scheduler, of speculation, of what handles arguments, or one
        that only returns something."""
        if self._is_own(function.module.name) or function.module.name in self._known:
            return True
        body = getattr(function.node, "body", [])  # a question to the machine: it says one thing, and starts nothing
        return isinstance(body, list) and bool(body) and isinstance(body[-1], ast.Return) and len(body) <= 2

    def passes_over(self, error: BaseException, statement: ast.stmt, frame: Frame) -> bool:
        """Whether a statement that failed is passed over; what the source itself refuses is kept."""
        if isinstance(statement, (ast.Raise, ast.Assert)) and not hasattr(error, "sgltrace_refuses"):
            error.sgltrace_refuses = self._is_own(frame.module.name) and frame.module.name != self._arguments  # type: ignore[attr-defined]
        if frame.tries:
            return False
        if getattr(error, "sgltrace_refuses", False):
            reached = frame.module.name in self._own and not self._machine.modules.loading
            if reached and not self._machine.journal.is_trying and self.refusal is None:
                self.refusal = error
            return False
        self._machine.skipped.append(f"{frame.module.path}:{statement.lineno}: {type(error).__name__}: {error}")
        return True
