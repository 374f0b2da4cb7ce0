"""The errors a user may meet: one line each, saying what, where, and what to do."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FOUND = 1
EXIT_USAGE = 2
EXIT_INPUT = 3


class SgltraceError(Exception):
    """An error whose text is shown to the user as it stands, without a traceback."""

    exit_code = EXIT_INPUT


class UsageError(SgltraceError):
    """The command line asks for something that does not exist (an unknown function, field or path)."""

    exit_code = EXIT_USAGE


class InputError(SgltraceError):
    """An input (source tree, archive, trace, workspace) cannot be used."""

    exit_code = EXIT_INPUT
