"""The ``sgltrace`` command: wires the commands together and turns every error into one line and an exit code.

A command lives in a module of ``sgltrace.commands`` (or beside its part of the program) that has ``register(app)``;
a new one is added to ``_app``. Those modules import what does the work inside their functions, so that the command
starts fast.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
from typing import Annotated, NoReturn

import typer

from sgltrace import __version__
from sgltrace.errors import EXIT_DONE, EXIT_INPUT, EXIT_USAGE, SgltraceError

EXIT_CODES = (
    "Exit codes: 0 done; 1 what was asked for was not found; 2 the command line is wrong; 3 the input cannot be used; "
    "70 a bug in sgltrace; 130 interrupted. `run` ends with its command's."
)
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
DEBUG_VARIABLE = "SGLTRACE_DEBUG"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> NoReturn:
    """Run the command line and leave with its exit code."""
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done, and Python would only complain while it ends
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code. Whatever goes wrong is one line on standard error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        if not arguments:
            _app()(["--help"], prog_name="sgltrace", standalone_mode=False)
            return EXIT_USAGE
        code = _app()(_as_typer_reads(arguments), prog_name="sgltrace", standalone_mode=False)
        sys.stdout.flush()
        return int(code or EXIT_DONE)
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # Typer's own way out of what follows
            return EXIT_DONE
        raise
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain once more when it closes standard output.
        _drop_output()
        return EXIT_DONE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE) == "1":
            raise
        if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
            error.filename = "standard output"  # whatever else is written names its file
            _drop_output()
        text, code = _explain(error)
        print(f"sgltrace: {text}", file=sys.stderr)
        return code


def _drop_output() -> None:
    """Python tries to write what is left once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:
    if wanted:
        from sgltrace.commands.schema import versions

        print(f"sgltrace {__version__}\n{versions()}")
        raise typer.Exit


def _app() -> typer.Typer:
    from sgltrace.commands import (
        compare,
        explain,
        export,
        impact,
        index,
        merge,
        plan,
        points,
        query,
        report,
        runs,
        schema,
        state,
        verify,
        watch,
        whatif,
    )
    from sgltrace.commands.examples import add_examples
    from sgltrace.runtime import commands as runtime

    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback(epilog=EXIT_CODES)(_program)
    static = (index, watch, report, export, query, state, points, plan, explain, compare, impact)
    for module in (*static, verify, merge, schema, whatif):
        module.register(app)
    runtime.register(app, runs.report_of_run)
    add_examples(app)
    return app


def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Show where SGLang's speculative decoding is coupled to the rest of the engine, with evidence."""


def _as_typer_reads(arguments: list[str]) -> list[str]:
    """What Typer cannot say by itself: ``explain SRC -- COMMAND``, ``--config -- COMMAND``, and ``index ... --whole``
    without a value."""
    if arguments[:1] == ["explain"] and "--" in arguments:
        at = arguments.index("--")
        return [*arguments[:at], "--", *arguments[at:]]  # Click takes one, the other tells SRC from the command
    if "--config" in arguments[:-1] and arguments[arguments.index("--config") + 1] == "--":
        at = arguments.index("--config") + 1
        arguments = [*arguments[:at], shlex.join(arguments[at + 1 :])]
    if arguments[:1] != ["index"]:
        return arguments
    done = []
    for argument, following in zip(arguments, [*arguments[1:], "-"], strict=True):
        done.append("--whole=*" if argument == "--whole" and following.startswith("-") else argument)
    return done


def _explain(error: Exception) -> tuple[str, int]:
    """One line on what went wrong, and the exit code."""
    if isinstance(error, SgltraceError):
        return _one_line(str(error)), error.exit_code
    if hasattr(error, "format_message"):  # Click's errors; where their base class lies differs among Typer's versions
        return f"{_one_line(error.format_message())} (see `sgltrace --help`)", EXIT_USAGE
    if isinstance(error, OSError):
        place = f" {error.filename}" if error.filename else ""
        return _one_line(f"cannot use{place}: {error.strerror or error}"), EXIT_INPUT
    return f"{_bug(error)}", EXIT_BUG


def _one_line(text: str) -> str:
    from sgltrace.commands.output import printable

    return printable(" ".join(text.split()))


def _bug(error: Exception) -> str:
    """Write the details of an unexpected error to a file, and say where."""
    import tempfile
    import traceback

    text = f"this is a bug in sgltrace: {_one_line(f'{type(error).__name__}: {error}')[:300]}; please report it"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="sgltrace-bug-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as stream:
            stream.write(f"sgltrace {__version__}, Python {sys.version}\n{sys.argv}\n\n")
            traceback.print_exception(error, file=stream)
    except OSError:  # the disk is full, too
        return f"{text} with what {DEBUG_VARIABLE}=1 shows"
    return f"{text} with {stream.name} ({DEBUG_VARIABLE}=1 shows it here)"
