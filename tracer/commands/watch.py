"""``sgltrace watch``: index and report kept current while somebody edits."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sgltrace.commands.index import bring_up_to_date, keep_index
from sgltrace.commands.output import bold, say
from sgltrace.commands.query import JsonOption
from sgltrace.commands.report import EDITOR, EditorOption, check_editor
from sgltrace.errors import InputError, SgltraceError, UsageError
from sgltrace.files import user_cache_dir
from sgltrace.interpreter import forking
from sgltrace.progress import SilentProgress, progress_for_user
from sgltrace.sources import SourceTree, open_source
from sgltrace.workspace import DEFAULT, Workspace

if TYPE_CHECKING:
    from sgltrace.insight.changes import Changes
    from sgltrace.insight.watching import Difference, State, Work

SETTLED_S = 0.2
"""So long nothing may change before work begins: an editor writes several files, and some in two steps."""
GRACE_S = 5.0
"""So long work that is overtaken by another edit may take to clean up."""
TOLD = 5
"""The most differences that are printed after an edit."""


class Update(msgspec.Struct, kw_only=True):
    """One line of ``--json``: what was edited, and what came of it."""

    files: list[str]
    work: str
    """``index``: indexed again; ``report``: the index is the same, the pages show the new text; ``nothing``: what
    changed was not read; ``broken``: a file does not parse, and index and report are those before; ``failed``: the
    source could not be indexed."""
    seconds: float
    error: str | None = None
    changes: list[dict[str, object]] = []


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(watch)


def watch(
    src: Annotated[str, typer.Argument(metavar="SRC", help="A folder: a checkout, or an installed package's folder.")],
    out: Annotated[Path, typer.Option("-o", "--output", help="The workspace to keep current.")] = Path(DEFAULT),
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks at the folder.")] = 0.5,
    no_report: Annotated[bool, typer.Option("--no-report", help="Keep index.json current only.")] = False,
    editor: EditorOption = EDITOR,
    package: Annotated[str | None, typer.Option(help="The package of a fork that has another name.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Keep index and report current while you edit, and say what each edit changed for an off step. Ctrl-C ends it."""
    check_editor(editor)
    if not Path(src).expanduser().is_dir():
        raise UsageError(f"{src} is no folder, and nothing else changes; watch a checkout")
    watcher = _Watcher(src, Workspace.to_write(out), None if no_report else editor, package, as_json)
    with contextlib.suppress(KeyboardInterrupt):
        watcher.begin()
        watcher.run(interval)


class _Watcher:
    """Looks at a folder, and has a fork of this process do what an edit asks for: it begins with everything loaded."""

    def __init__(self, src: str, workspace: Workspace, editor: str | None, package: str | None, as_json: bool) -> None:
        self.src = src
        self.workspace = workspace
        self.editor = editor
        self.package = package
        self.as_json = as_json
        self.read: set[str] | None = None
        self.state: State
        self.seen = ""
        self.waiting_for = ""
        """What does not parse, and holds the work up."""

    def begin(self) -> None:
        """Bring the workspace up to date, and remember what it was made of."""
        from sgltrace.insight.watching import look

        tree = self._tree()
        with progress_for_user(quiet=self.as_json) as progress:
            _, unchanged = bring_up_to_date(
                self.workspace, self.src, progress, editor=self.editor, package=self.package, tree=tree
            )
        self.read = None if unchanged else set(tree.asked)
        self.seen = tree.fingerprint()
        self.state = look(tree)
        _load_everything()
        self._say_ready()

    def run(self, interval: float) -> None:
        """Look, and do what is to be done, until somebody interrupts."""
        while True:
            time.sleep(interval)
            if (tree := self._changed_tree()) is not None:
                self._follow(self._settled(tree))

    # --- looking ---

    def _tree(self) -> SourceTree:
        return open_source(self.src, cache_dir=user_cache_dir(), progress=SilentProgress(), package=self.package)

    def _changed_tree(self) -> SourceTree | None:
        """The tree, where it is not as it was seen last; None too while the folder cannot be read."""
        try:
            tree = self._tree()
            return None if tree.fingerprint() == self.seen else tree
        except InputError:
            return None

    def _settled(self, tree: SourceTree) -> SourceTree:
        """The tree once it stays as it is for a moment."""
        while True:
            time.sleep(SETTLED_S)
            with contextlib.suppress(InputError):
                later = self._tree()
                if later.fingerprint() == tree.fingerprint():
                    return tree
                tree = later

    # --- working ---

    def _follow(self, tree: SourceTree) -> None:
        """Do what the edits ask for, and tell."""
        from sgltrace.insight.watching import differ, look, work_for

        began = time.perf_counter()
        self.seen = tree.fingerprint()
        state = look(tree, self.state)
        found = differ(self.state, state)
        if found.broken:
            told = "; ".join(f"{b.file}:{b.line}: {b.why}" for b in found.broken)
            if told != self.waiting_for:
                self.waiting_for = told
                self._tell(Update(files=found.files, work="broken", seconds=_since(began), error=told), None)
            return
        self.waiting_for = ""
        work = work_for(found, self.state, state, self.read)
        before = self.workspace.load_index() if work == "index" else None
        error = None
        if work == "nothing":
            keep_index(self.workspace, self.src, tree, editor=None)
        else:
            done = self._in_fork(tree, work)
            if done is None:  # another edit came, and is followed in its turn
                return
            error, read = done
            self.read = read if work == "index" and error is None else self.read
        if error is not None:
            self._tell(Update(files=found.files, work="failed", seconds=_since(began), error=error), None)
            return
        seconds = _since(began)
        changes = None if before is None else self._compare(before, tree, found)
        self.state = state
        self._tell(Update(files=found.files, work=work, seconds=seconds), changes)

    def _in_fork(self, tree: SourceTree, work: Work) -> tuple[str | None, set[str] | None] | None:
        """An error in one line, and the files that were read; None where the folder changed meanwhile."""
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=self._work, args=(sender, tree, work))
        with forking():
            process.start()
        sender.close()
        try:
            while not receiver.poll(SETTLED_S):
                if self._changed_tree() is not None:
                    self.seen = ""
                    return None
            return receiver.recv()  # type: ignore[no-any-return]
        except EOFError:
            return "the process that indexed was killed; memory may be short", None
        finally:
            _end(process)
            receiver.close()

    def _work(self, sender: Connection, tree: SourceTree, work: Work) -> None:
        os.setpgid(0, 0)  # an interrupt at the terminal is the parent's to answer, and ends all that this one starts
        signal.signal(signal.SIGTERM, _leave)
        try:
            if work == "index":
                bring_up_to_date(
                    self.workspace, self.src, SilentProgress(), editor=self.editor, package=self.package, tree=tree
                )
            else:
                keep_index(self.workspace, self.src, tree, editor=self.editor)
            sender.send((None, set(tree.asked)))
        except SgltraceError as error:
            sender.send((str(error), None))
        except OSError as error:
            sender.send((f"cannot write {self.workspace.folder}: {error.strerror or error}", None))

    def _compare(self, before: object, tree: SourceTree, found: Difference) -> Changes:
        from sgltrace.insight.changes import Side, compare_sources
        from sgltrace.insight.watching import as_before

        old = as_before(tree, self.state, found.files)
        return compare_sources(Side(before, old), Side(self.workspace.load_index(), tree))  # type: ignore[arg-type]

    # --- telling ---

    def _say_ready(self) -> None:
        if self.as_json:
            self._print(Update(files=[], work="index" if self.read is not None else "nothing", seconds=0.0))
            return
        page = self.workspace.report_folder / "index.html"
        say(f"watching {self.src}; {page if self.editor else self.workspace.index_file} (Ctrl-C ends it)")
        sys.stdout.flush()

    def _tell(self, update: Update, changes: Changes | None) -> None:
        if self.as_json:
            if changes is not None:
                update.changes = msgspec.to_builtins(changes.changes)
            self._print(update)
            return
        from sgltrace.insight.changes.text import change_line, headline, top

        files = (
            "as before"
            if not update.files
            else f"{update.files[0]}{f' and {len(update.files) - 1} more' if len(update.files) > 1 else ''}"
        )
        when = time.strftime("%H:%M:%S")
        what = {
            "index": "indexed again",
            "report": "the index is the same, the report shows the text",
            "nothing": "nothing that was read changed",
            "broken": f"does not parse ({update.error}); index and report are those before",
            "failed": f"{update.error}; index and report are those before",
        }[update.work]
        say(f"{when}  {bold(files)}: {what} ({update.seconds:.1f} s)")
        if changes is not None:
            for line in headline(changes):
                say(f"    {line}")
            for change in top(changes.changes, TOLD):
                say(f"    {change_line(change)}")
        sys.stdout.flush()

    def _print(self, update: Update) -> None:
        print(msgspec.json.encode(update, order="deterministic").decode(), flush=True)


def _load_everything() -> None:
    """What a fork needs is imported once, here."""
    import sgltrace.insight.assemble
    import sgltrace.insight.changes
    import sgltrace.reports  # noqa: F401

    gc.collect()
    gc.freeze()


def _leave(*_: object) -> None:
    raise SystemExit(1)  # what was begun is cleaned up on the way


def _end(process: multiprocessing.process.BaseProcess) -> None:
    """End work that is done, or that is not wanted any more, with all that it started."""
    if process.is_alive() and process.pid is not None:
        process.join(0.5)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not process.is_alive() or process.pid is None:
            break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        process.join(GRACE_S)
    process.join()


def _since(began: float) -> float:
    return round(time.perf_counter() - began, 3)
