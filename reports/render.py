"""The whole report, written by several processes where the system can fork and has the cores."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import jinja2

from sgltrace.errors import InputError
from sgltrace.interpreter import forking
from sgltrace.model import Index
from sgltrace.reports.context import Context
from sgltrace.reports.options import RenderResult, ReportOptions
from sgltrace.reports.packed import Files, write_folder, write_one_file
from sgltrace.reports.pages import Task, names, pages, shared
from sgltrace.reports.site import Part, Shard, Site, environment, packed
from sgltrace.reports.source import Source
from sgltrace.reports.views.functions import ModulePages

T = TypeVar("T")
LINES = 10_000
"""Lines of source whose functions a process renders at a time, and a browser unpacks at a time, about."""
SOURCE = "source/"
"""Before the name of a file: the text of its functions."""
MOST_JOBS = 8
"""Processes at most: with more of them the time goes into the fork of a large process."""


def render(index: Index, source: Source | None, out: Path, options: ReportOptions) -> RenderResult:
    """Writes the report of ``index`` into the folder ``out`` and says where it begins.

    ``source`` gives the bytes of the indexed files; a file that it does not have, and every file where it is None, is
    shown as unreadable. The same input gives the same bytes, however many processes there are. Raises ``UsageError``
    for an editor that is not known.
    """
    context = Context(index, source, options)
    env = environment()
    env.globals |= shared(context, env)
    with _no_collection():
        shards = list(_shards(_tasks(context, env), context, env, options.jobs))
        files = Files(out)
        write = write_one_file if options.single_file else write_folder
        write(files, env, shards, packed({"names": names(context)}))
    return RenderResult(out / "index.html", files.count, files.bytes)


def _shards(tasks: list[Task], context: Context, env: jinja2.Environment, jobs: int | None) -> Iterator[Shard]:
    jobs = min(jobs or os.cpu_count() or 1, MOST_JOBS, 1 + len(context.modules) // 16)
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (_done(task, env) for task in tasks)
        return
    for path in context.paths:
        context.graph.depth(path)  # grown before the fork, so that each process need not
    yield from _forked(tasks, env, jobs)


def _tasks(context: Context, env: jinja2.Environment) -> list[Task]:
    modules, texts = ModulePages(context, env), sorted(context.texts().items())
    lengths = [sum(f.end_line - f.line + 1 for f in functions) for functions in context.modules.values()]
    texts_lengths = [sum(last - first + 1 for first, last in ranges) for _, ranges in texts]
    return [
        *pages(context, env),
        *(partial(_write_modules, modules, part) for part in _together(list(context.modules), lengths)),
        *(partial(_write_source, context, part) for part in _together(texts, texts_lengths)),
    ]


def _together(items: Sequence[T], lengths: Sequence[int]) -> Iterator[Sequence[T]]:
    """``items`` in pieces of about ``LINES`` lines each."""
    start = total = 0
    for number, length in enumerate(lengths):
        if number > start and total + length > LINES:
            yield items[start:number]
            start, total = number, 0
        total += length
    if items:
        yield items[start:]


def _done(task: Task, env: jinja2.Environment) -> Shard:
    site = Site(env)
    task(site)
    return site.packed()


def _forked(tasks: list[Task], env: jinja2.Environment, jobs: int) -> Iterator[Shard]:
    """What each task made, in the order of the tasks. An error of one ends all, and is raised here."""
    global _work
    _work = (env, tasks)
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("fork"), initializer=signal.signal, initargs=_UNINTERRUPTED
    )
    try:
        with forking():
            results = [pool.submit(_do, number) for number in range(len(tasks))]
        for result in results:
            yield result.result()
    except BrokenProcessPool as error:
        raise InputError(
            "a process that writes the report was killed, most likely for want of memory; free some, "
            "and write it with `sgltrace report`"
        ) from error
    finally:
        _work = None
        pool.shutdown(cancel_futures=True)


_UNINTERRUPTED = (signal.SIGINT, signal.SIG_IGN)
"""An interrupt reaches all processes of a terminal; the first tells the user, and ends the others."""
_work: tuple[jinja2.Environment, list[Task]] | None = None
"""What a forked process renders from; set just before the fork, so that nothing needs to be sent."""


def _do(number: int) -> Shard:
    assert _work is not None
    env, tasks = _work
    return _done(tasks[number], env)


def _write_modules(modules: ModulePages, files: Sequence[str], site: Site) -> None:
    for file in files:
        view = modules.page(file)
        shown = [
            Part(part.anchor, part.line, part.end_line, part.name, site.render("function.html", part=part))
            for part in view.parts
        ]
        site.page(file, "module.html", shown, page="functions", view=view)


def _write_source(context: Context, texts: Sequence[tuple[str, list[tuple[int, int]]]], site: Site) -> None:
    for file, ranges in texts:
        if pieces := context.reader.pieces(file, ranges):
            site.records[SOURCE + file] = pieces


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the garbage collector: pages have no cycles, and a search would go through the whole index each time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
