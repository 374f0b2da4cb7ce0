"""How long work tells what it is doing: one protocol, a silent form, and a bar for terminals."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichBar
    from rich.progress import TaskID


class Progress(Protocol):
    """What a part of the program reports to. Work comes in named stages, one after the other."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage begins; ``total`` is its number of steps, None where nobody knows."""

    def advance(self, n: int = 1) -> None:
        """``n`` more steps of the stage are done."""


class SilentProgress:
    """Tells nobody."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Nothing to do."""

    def advance(self, n: int = 1) -> None:
        """Nothing to do."""

    def __enter__(self) -> SilentProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Nothing to close."""


class TerminalProgress:
    """A bar on standard error that is gone when the work is done. Rich is imported at the first stage."""

    def __init__(self) -> None:
        self._bar: RichBar | None = None
        self._task: TaskID | None = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Put the bar of a new stage in the place of the last one's."""
        bar = self._bar or self._start()
        if self._task is not None:
            bar.remove_task(self._task)
        self._task = bar.add_task(name, total=total)

    def advance(self, n: int = 1) -> None:
        """Move the bar by ``n`` steps."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, n)

    def _start(self) -> RichBar:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        return self._bar

    def __enter__(self) -> TerminalProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def progress_for_user(quiet: bool = False) -> SilentProgress | TerminalProgress:
    """A bar where a person watches standard error, else silence."""
    return SilentProgress() if quiet or not sys.stderr.isatty() else TerminalProgress()
