"""Runs the user's command unchanged: its arguments, working folder, standard streams and process group; passes signals
on, and ends as it ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from sgltrace.errors import UsageError

from .processes import Watcher

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
_SI_USER_MAX = 0  # si_code of signals sent by a process; the terminal's are positive (SI_KERNEL)
_TICK_S = 0.25
_LEFT_BEHIND_S = 2.0  # how long children of the command may take to end after it


class Launched:
    """A running command. Signals that this process gets are handled in ``wait`` only."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start ``command``. Raises ``UsageError`` if that is not possible."""
        program = shutil.which(command[0], path=environment.get("PATH"))
        if program is None:
            raise UsageError(f"{command[0]}: no such command; name the program that starts the server")
        self.waited_for = {s for s in (*FORWARDED, signal.SIGCHLD) if signal.getsignal(s) is not signal.SIG_IGN} | {
            signal.SIGCHLD
        }
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self.waited_for)
        # Python ignores these two for itself; the command must find them as they were.
        ignored_by_python = [s for s in (signal.SIGPIPE, signal.SIGXFSZ) if signal.getsignal(s) is signal.SIG_IGN]
        try:
            self.pid = os.posix_spawn(
                program, list(command), dict(environment), setsigmask=before, setsigdef=ignored_by_python
            )
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise UsageError(f"{command[0]}: {error.strerror}; it cannot be started") from None
        self._mask = before
        self._interrupts = 0
        self.passed_on: list[int] = []
        """Signals that the command got from the user, or from who ended sgltrace, in order."""
        self.quit = False
        """Whether the user asked twice, and the command was ended."""

    def wait(self, watcher: Watcher, tick: Callable[[], None]) -> int:
        """Wait until the command has ended, calling ``tick`` four times a second. Returns its exit code (128 + n)."""
        status: int | None = None
        try:
            while status is None:
                arrived = signal.sigtimedwait(self.waited_for, _TICK_S)
                if arrived is not None and arrived.si_signo != signal.SIGCHLD:
                    self._pass_on(arrived, watcher)
                ended, code = os.waitpid(self.pid, os.WNOHANG)
                if ended:
                    status = code
                else:
                    watcher.look()
                    tick()
            self._wait_for_the_rest(watcher)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        return exit_code(status)

    def _pass_on(self, arrived: signal.struct_siginfo, watcher: Watcher) -> None:
        number = arrived.si_signo
        if number == signal.SIGINT:
            self._interrupts += 1
            if self._interrupts > 1:
                self._end_all(watcher)
                return
        sent_by_process = arrived.si_code <= _SI_USER_MAX
        if not sent_by_process and os.getpgid(self.pid) == os.getpgrp():
            self.passed_on.append(number)
            return  # from the terminal: the command, in the same process group, has had it too
        if sent_by_process and any(p.pid == arrived.si_pid for p in watcher.alive()):
            return  # sent by the command itself
        self.passed_on.append(number)
        _kill(self.pid, number)

    def _end_all(self, watcher: Watcher) -> None:
        """The second Ctrl-C: end the command and everything that it started."""
        self.quit = True
        watcher.look()
        for process in watcher.alive():
            _kill(process.pid, signal.SIGKILL)
        _kill(self.pid, signal.SIGKILL)

    def _wait_for_the_rest(self, watcher: Watcher) -> None:
        until = time.monotonic() + _LEFT_BEHIND_S
        watcher.look()
        while any(p.python for p in watcher.alive()) and time.monotonic() < until:
            time.sleep(0.05)
            watcher.look()


def exit_code(status: int) -> int:
    """A wait status as shells report it: the exit code, or 128 + the signal's number."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it has ended, or is not ours any more
