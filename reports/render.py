"""The whole report, written by several processes where the system can fork and has the cores."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jinja2

from sgltrace.errors import InputError
from sgltrace.interpreter import forking
from sgltrace.model import Index
from sgltrace.reports.context import Context
from sgltrace.reports.options import RenderResult, ReportOptions
from sgltrace.reports.pages import Task, names, pages, shared
from sgltrace.reports.single import PackedSite
from sgltrace.reports.site import Site, environment
from sgltrace.reports.source import Source
from sgltrace.reports.views.functions import ModulePages

CHUNK = 16
"""Module pages that a process renders at a time."""
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
        site = _one_file(context, out, env) if options.single_file else _folder(context, out, env, options.jobs)
    return RenderResult(out / "index.html", site.files, site.bytes)


def _one_file(context: Context, out: Path, env: jinja2.Environment) -> Site:
    site = PackedSite(out, env)
    for write in _tasks(context, env):
        write(site)
    site.finish(names(context))
    return site


def _folder(context: Context, out: Path, env: jinja2.Environment, jobs: int | None) -> Site:
    site = Site(out, env)
    site.assets()
    site.write_bytes("assets/names.js", f"sgl.names = {names(context)};\n".encode())
    tasks = _tasks(context, env)
    jobs = min(jobs or os.cpu_count() or 1, MOST_JOBS, 1 + len(context.modules) // CHUNK)
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods():
        for write in tasks:
            write(site)
        return site
    for path in context.paths:
        context.graph.depth(path)  # grown before the fork, so that each process need not
    for files, size in _forked(tasks, out, env, jobs):
        site.files += files
        site.bytes += size
    return site


def _tasks(context: Context, env: jinja2.Environment) -> list[Task]:
    modules, files = ModulePages(context, env), list(context.modules)
    parts = (files[start : start + CHUNK] for start in range(0, len(files), CHUNK))
    return [*pages(context, env), *(partial(_write_modules, modules, part) for part in parts)]


def _forked(tasks: list[Task], out: Path, env: jinja2.Environment, jobs: int) -> Iterator[tuple[int, int]]:
    """What each task wrote (files, bytes), in the order of the tasks. An error of one ends all, and is raised here."""
    global _work
    _work = (out, env, tasks)
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
_work: tuple[Path, jinja2.Environment, list[Task]] | None = None
"""What a forked process renders from; set just before the fork, so that nothing needs to be sent."""


def _do(number: int) -> tuple[int, int]:
    assert _work is not None
    out, env, tasks = _work
    site = Site(out, env)
    tasks[number](site)
    return site.files, site.bytes


def _write_modules(modules: ModulePages, files: list[str], site: Site) -> None:
    for file in files:
        site.page(file, "module.html", page="functions", view=modules.page(file))


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
