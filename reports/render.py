"""The whole report: every page in order, the functions' pages by several processes where the system can fork."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jinja2

from sgltrace.model import PHASES, Index
from sgltrace.reports.context import Context
from sgltrace.reports.graph import short
from sgltrace.reports.options import RenderResult, ReportOptions
from sgltrace.reports.site import Site, environment, script_safe
from sgltrace.reports.source import Source
from sgltrace.reports.views.chain import chain
from sgltrace.reports.views.common import function_link
from sgltrace.reports.views.fields import field_addresses, field_lines, field_pages
from sgltrace.reports.views.functions import FunctionPages
from sgltrace.reports.views.graph import graph_data
from sgltrace.reports.views.overview import overview
from sgltrace.reports.views.points import point_pages, points_page
from sgltrace.reports.views.tensors import contract, stages
from sgltrace.reports.views.unknowns import unknowns_page

CHUNK = 64
"""Functions that a process renders at a time."""


def render(index: Index, source: Source | None, out: Path, options: ReportOptions) -> RenderResult:
    """Writes the report of ``index`` into the folder ``out`` and says where it begins.

    ``source`` gives the bytes of the indexed files; a file that it does not have, and every file
    where it is None, is shown as unreadable. The same
    input gives the same bytes. Raises ``UsageError`` for an editor that is not known.
    """
    context = Context(index, source, options)
    env = environment()
    env.globals |= _shared(context)
    site = Site(out, env)
    site.assets()
    site.write_bytes("assets/names.js", _names(context).encode())
    _pages(context, site)
    files, written = _functions(context, out, env, options.jobs)
    return RenderResult(out / "index.html", site.files + files, site.bytes + written)


def _shared(context: Context) -> dict[str, object]:
    """What every template may name."""
    source = context.index.source
    return {
        "release": f"{source.name} {source.version}" if source.version else source.name,
        "source": source,
        "paths": context.paths,
        "given": context.given,
        "navigation": _navigation(context),
    }


def _navigation(context: Context) -> list[tuple[str, list[tuple[str, str, str]]]]:
    steps = [(f"step-{path}", f"step-{path}.html", f"Step on {path}") for path in context.paths]
    return [
        ("Answer", [("index", "index.html", "Overview"), ("points", "points.html", "Coupling points")]),
        ("Step", steps),
        (
            "State",
            [
                ("contract", "contract.html", "Contract"),
                ("tensors", "tensors.html", "Tensors"),
                ("fields", "fields.html", "Fields"),
            ],
        ),
        ("Code", [("graph", "graph.html", "Call graph"), ("functions", "functions.html", "Functions")]),
        ("Evidence", [("unknowns", "unknowns.html", "Unknowns")]),
    ]


def _pages(context: Context, site: Site) -> None:
    site.page("index.html", "overview.html", page="index", view=overview(context))
    for path in context.paths:
        site.page(f"step-{path}.html", "chain.html", page=f"step-{path}", view=chain(context, path))
    site.page("contract.html", "contract.html", page="contract", contract=contract(context))
    site.page("tensors.html", "tensors.html", page="tensors", stages=stages(context))
    site.page("graph.html", "graph.html", page="graph", data=graph_data(context))
    site.page("unknowns.html", "unknowns.html", page="unknowns", view=unknowns_page(context))
    _function_list(context, site)
    _points_and_fields(context, site)


def _function_list(context: Context, site: Site) -> None:
    rows = [(function_link(context, function.id), function) for function in context.shown]
    site.page(
        "functions.html",
        "functions.html",
        page="functions",
        rows=rows,
        components=context.components,
        phases=PHASES,
    )


def _points_and_fields(context: Context, site: Site) -> None:
    addresses = field_addresses(context)
    site.page("points.html", "points.html", page="points", view=points_page(context))
    crossing: dict[str, list[tuple[str, str]]] = {}
    for view in point_pages(context, addresses):
        file = context.links.point_file(view.point.id)
        assert file is not None  # noqa: S101  (every point has a page)
        site.page(file, "point.html", page="points", view=view)
        for field in view.point.fields:
            crossing.setdefault(field, []).append((view.row.url, view.point.title))
    rows = field_lines(context, addresses)
    classes, roles = sorted({short(row.cls) for row in rows}), sorted({row.role for row in rows if row.role})
    site.page("fields.html", "fields.html", page="fields", rows=rows, classes=classes, roles=roles)
    for page in field_pages(context, crossing):
        site.page(page.file, "field_class.html", page="fields", view=page)


def _names(context: Context) -> str:
    """What the box "go to" searches: [name, where, address, text in lower case, whether it is a coupling point]."""
    entries: list[list[object]] = []
    for point in context.index.coupling_points:
        entries.append([point.title, point.kind, context.links.point_file(point.id), point.title.lower(), 1])
    for function in context.shown:
        module, _, name = function.id.partition(":")
        entries.append([name, module, context.links.function_file(function.id), function.id.lower(), 0])
    return "sgl.names = " + script_safe(json.dumps(entries, ensure_ascii=False, separators=(",", ":"))) + ";\n"


_work: tuple[Context, Path, jinja2.Environment, FunctionPages] | None = None
"""What a forked process renders from; set just before the fork, so that nothing needs to be sent."""


def _functions(context: Context, out: Path, env: jinja2.Environment, jobs: int | None) -> tuple[int, int]:
    global _work
    for path in context.paths:
        context.graph.depth(path)  # grown here, so that each process need not
    _work = (context, out, env, FunctionPages(context))
    starts = range(0, len(context.shown), CHUNK)
    jobs = min(jobs or os.cpu_count() or 1, len(starts))
    try:
        if jobs > 1 and _may_fork():
            with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
                written = list(pool.map(_chunk, starts))
        else:
            written = [_chunk(start) for start in starts]
    finally:
        _work = None
    return sum(files for files, _ in written), sum(size for _, size in written)


def _may_fork() -> bool:
    """Whether forking is safe here: the system has it, and no other thread holds a lock."""
    return "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1


def _chunk(start: int) -> tuple[int, int]:
    assert _work is not None  # noqa: S101
    context, out, env, pages = _work
    site = Site(out, env)
    for function in context.shown[start : start + CHUNK]:
        file = context.links.function_file(function.id)
        assert file is not None  # noqa: S101  (every function of ``shown`` has a page)
        site.page(file, "function.html", page="", view=pages.page(function))
    return site.files, site.bytes
