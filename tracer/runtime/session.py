"""A run from start to end: make the plan, stage the probe, run the command, and say what was recorded."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from sgltrace import __version__
from sgltrace.errors import InputError

from . import machine
from . import target as targets
from .conclude import conclude, not_attached, summary
from .fast import stage_fast
from .launch import Launched
from .plan import Options, Plan, Site, make_plan, roles
from .processes import Watcher, redacted
from .staging import RunInfo, stage, stage_viztracer, write_run
from .status import Progress, StatusLine, progress, size_text
from .target import Target

EXIT_QUIT = 130


class RunOptions(msgspec.Struct, kw_only=True):
    """What ``sgltrace run`` was asked."""

    command: list[str]
    out: Path | None = None
    probe: Options = msgspec.field(default_factory=Options)
    own_sites: list[Site] = []
    run_id: str = ""
    """What the nodes of one run share."""
    path: str = "auto"
    """``v1`` or ``v2`` where the user says so: roles of the other are not missed."""


class Session(msgspec.Struct, kw_only=True):
    """What came of a run."""

    folder: Path | None
    """The trace, or None where none could be written."""
    exit_code: int
    progress: Progress = msgspec.field(default_factory=Progress)
    problems: list[str] = []


def run(options: RunOptions, say: Callable[[str], None] | None = None) -> Session:
    """Run the command under the probe; ``say`` gets the lines meant for the user. Raises ``UsageError``.

    Whatever keeps the probe out is said, and the command runs all the same.
    """
    say = say or _say
    environment = dict(os.environ)
    target = targets.resolve(options.command, environment)
    problems = target_problems(target)
    folder = None
    try:
        folder, plan = prepare(options, target, environment, problems)
        environment = targets.injected(environment, folder)
    except (OSError, InputError) as error:
        problems.append(f"nothing will be recorded: {error}")
    for problem in problems:
        say(problem)
    if folder is None:
        return Session(folder=None, exit_code=_run_untraced(options, environment), problems=problems)

    info = RunInfo(
        tool=__version__,
        command=redacted(options.command),
        interpreter=target.executable,
        package_root=target.package_root,
        version=target.version,
        plan=plan.digest(),
        run_id=options.run_id,
        host=socket.gethostname(),
        started_ns=time.time_ns(),
        monotonic_ns=time.monotonic_ns(),
    )
    info.gpus, info.driver = machine.gpus(ask=False)
    _try_write(folder, info, problems)
    say(f"tracing {_what(target)} into {folder}, {len(plan.sites)} sites planned")
    return _run_traced(options, environment, folder, info, problems, say)


def prepare(
    options: RunOptions, target: Target, environment: Mapping[str, str], problems: list[str]
) -> tuple[Path, Plan]:
    """Make the trace folder with the plan and the probe in it. Raises ``OSError``, ``InputError``."""
    folder = _new_folder(options.out)
    root = None if target.package_root is None else Path(target.package_root)
    plan = make_plan(targets.PACKAGE, root, target.version, options.probe, options.own_sites)
    missing = missing_roles(plan, options.path)
    if missing:
        problems.append(nobody_plays(plan, missing))
    if plan.unreadable:
        problems.append(f"{len(plan.unreadable)} files could not be parsed, first {plan.unreadable[0]}")
    stage(folder, plan)
    slow = stage_fast(folder, target)
    if slow is not None:
        problems.append(f"the recorder is the slower one in Python: {slow}")
    if options.probe.timeline and target.viztracer is None:
        why = stage_viztracer(folder, target.python)
        if why is not None:
            problems.append(why)
    return folder, plan


def nobody_plays(plan: Plan, roles: list[str]) -> str:
    """That no function was found for these roles: a release lacks them only where all of it could be read."""
    named = ", ".join(roles)
    if plan.unreadable:
        return f"no function was found for: {named}; it may be in what could not be parsed: {plan.unreadable[0]}"
    return f"this release has no function for: {named}"


def missing_roles(plan: Plan, path: str) -> list[str]:
    """The roles that nothing plays, less those that are not to be expected on ``path``."""
    expected = {role.role for role in roles().site if path == "auto" or not role.paths or path in role.paths}
    return [role for role in plan.roles_missing if role in expected]


def _new_folder(out: Path | None) -> Path:
    folder = out if out is not None else Path(".sgltrace-runs", time.strftime("%Y%m%d-%H%M%S"))
    folder = folder.absolute()
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; give -o a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; give -o a folder that can be written to") from None
    return folder


def target_problems(target: Target) -> list[str]:
    """What would keep the probe out or blind, as far as it can be told before a run."""
    problems = []
    if target.interpreter is None:
        problems.append("no Python was found behind the command; every Python that it starts is tried all the same")
    elif target.problem is not None:
        problems.append(target.problem)
    elif target.package_root is None:
        problems.append(f"{target.executable} finds no {targets.PACKAGE} here; only sites of your own are recorded")
    if target.isolated or target.ignore_environment:
        problems.append("the interpreter is started with -I or -E: it ignores PYTHONPATH, so the probe cannot attach")
    elif target.no_site:
        problems.append("the interpreter is started with -S: only SGLang's plugin entry point can attach the probe")
    if target.python is not None and tuple(int(n) for n in target.python.split(".")[:2]) < (3, 10):
        problems.append(f"Python {target.python} is older than 3.10: the probe does not attach")
    return problems


def _run_untraced(options: RunOptions, environment: Mapping[str, str]) -> int:
    launched = Launched(options.command, environment)
    return launched.wait(Watcher(launched.pid, Path(os.devnull)), lambda: None)


def _run_traced(
    options: RunOptions,
    environment: Mapping[str, str],
    folder: Path,
    info: RunInfo,
    problems: list[str],
    say: Callable[[str], None],
) -> Session:
    line = StatusLine()
    launched = Launched(options.command, environment)
    watcher = Watcher(launched.pid, folder)
    started = time.monotonic()

    def tick() -> None:
        if line.on:
            seen = progress(folder)
            minutes, seconds = divmod(int(time.monotonic() - started), 60)
            line.show(
                f"sgltrace {minutes}:{seconds:02} | {seen.attached} processes attached, {seen.recording} recording | "
                f"{seen.steps} steps, {seen.records} records, {size_text(seen.size)} | {folder}"
            )

    try:
        code = launched.wait(watcher, tick)
    finally:
        line.clear()
    found: list[str] = []
    trace = None
    seen = progress(folder)
    if not folder.is_dir():
        found.append(f"the trace folder {folder} was removed during the run")
    else:
        found += [f"recording stopped early: {why}" for why in seen.stopped]
        if not info.gpus:
            info.gpus, info.driver = machine.gpus()
        info.signals = [signal.Signals(number).name for number in launched.passed_on]
        info.processes, lines = not_attached(watcher)
        found += lines
        trace, notes = conclude(folder)
        found += notes
        info.ended_ns, info.exit_code, info.problems = time.time_ns(), code, [*problems, *found]
        _try_write(folder, info, found)
        seen = progress(folder)
    if trace is not None:
        trace.run = info
    for text in [*found, *summary(folder, seen, trace)]:
        say(text)
    return Session(
        folder=folder, exit_code=EXIT_QUIT if launched.quit else code, progress=seen, problems=[*problems, *found]
    )


def _try_write(folder: Path, info: RunInfo, problems: list[str]) -> None:
    try:
        write_run(folder, info)
    except OSError as error:
        problems.append(f"run.json could not be written: {error.strerror}")


def _what(target: Target) -> str:
    version = f"SGLang {target.version}" if target.version else "SGLang of unknown version"
    return f"{version} under Python {target.python}" if target.package_root else "Python processes"


def _say(text: str) -> None:
    print(f"sgltrace: {text}", file=sys.stderr, flush=True)
