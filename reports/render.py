"""The whole report: the pages of modules by several processes where the system can fork, the others meanwhile here."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import jinja2

from sgltrace.model import Index
from sgltrace.reports.context import Context
from sgltrace.reports.options import RenderResult, ReportOptions
from sgltrace.reports.pages import names, shared, write_pages
from sgltrace.reports.single import PackedSite
from sgltrace.reports.site import Site, environment
from sgltrace.reports.source import Source
from sgltrace.reports.views.functions import ModulePages

CHUNK = 16
"""Module pages that a process renders at a time."""


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
    write_pages(context, site)
    _write_modules(site, ModulePages(context, env), list(context.modules))
    site.finish(names(context))
    return site


def _folder(context: Context, out: Path, env: jinja2.Environment, jobs: int | None) -> Site:
    global _work
    site = Site(out, env)
    site.assets()
    site.write_bytes("assets/names.js", f"sgl.names = {names(context)};\n".encode())
    files = list(context.modules)
    jobs = min(jobs or os.cpu_count() or 1, 1 + len(files) // CHUNK)
    if jobs == 1 or "fork" not in multiprocessing.get_all_start_methods():
        write_pages(context, site)
        _write_modules(site, ModulePages(context, env), files)
        return site
    for path in context.paths:
        context.graph.depth(path)  # grown before the fork, so that each process need not
    _work = (out, env, ModulePages(context, env))
    try:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
            parts = [pool.submit(_chunk, files[start : start + CHUNK]) for start in range(0, len(files), CHUNK)]
            write_pages(context, site)
            for part in parts:
                count, size = part.result()
                site.files += count
                site.bytes += size
    finally:
        _work = None
    return site


_work: tuple[Path, jinja2.Environment, ModulePages] | None = None
"""What a forked process renders from; set just before the fork, so that nothing needs to be sent."""


def _chunk(files: list[str]) -> tuple[int, int]:
    assert _work is not None
    out, env, pages = _work
    site = Site(out, env)
    _write_modules(site, pages, files)
    return site.files, site.bytes


def _write_modules(site: Site, pages: ModulePages, files: list[str]) -> None:
    for file in files:
        site.page(file, "module.html", page="functions", view=pages.page(file))


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
