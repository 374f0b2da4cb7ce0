"""Every page of the report but those of modules: which there are, from which views, and how they are linked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import jinja2
from markupsafe import Markup

from sgltrace.model import CouplingPoint
from sgltrace.reports.context import Context, component_of
from sgltrace.reports.graph import module, short
from sgltrace.reports.links import anchor
from sgltrace.reports.site import Part, Site
from sgltrace.reports.text import file_name, spelled
from sgltrace.reports.views.chain import chain
from sgltrace.reports.views.common import ordered
from sgltrace.reports.views.compare import compare
from sgltrace.reports.views.compared import compared
from sgltrace.reports.views.experiments import experiments
from sgltrace.reports.views.fields import FieldPages, field_addresses, field_files, field_lines
from sgltrace.reports.views.functions import ModuleLine
from sgltrace.reports.views.glossary import glossary
from sgltrace.reports.views.graph import graph_data
from sgltrace.reports.views.lanes import lanes
from sgltrace.reports.views.matrix import matrix
from sgltrace.reports.views.overview import overview
from sgltrace.reports.views.plan import plan_views
from sgltrace.reports.views.points import point_pages, points_page
from sgltrace.reports.views.refactor import plans
from sgltrace.reports.views.runs import run_pages
from sgltrace.reports.views.switch import switch_data
from sgltrace.reports.views.tensors import REQUIREMENTS, SCALARS, contract, stages
from sgltrace.reports.views.unknowns import unknowns_page

Task = Callable[[Site], None]
"""Some pages: writes them to a site, in this process or in another one."""
T = TypeVar("T")
CONFIGURATION = "configuration"
"""The name of what a configuration is asked with."""
POINTS = 12
"""Pages of coupling points in one task."""
FIELDS = 8
"""Pages of fields in one task."""


def shared(context: Context, env: jinja2.Environment) -> dict[str, object]:
    """What every template may name."""
    source = context.index.source
    return {
        "release": f"{source.name} {source.version}" if source.version else source.name,
        "source": source,
        "paths": context.paths,
        "given": context.given,
        "recorded": bool(context.runs),
        "navigation": _navigation(context, env),
    }


def _navigation(context: Context, env: jinja2.Environment) -> Markup:
    """The links to all pages."""
    return Markup(env.get_template("navigation.html").render(groups=_groups(context)))


def _groups(context: Context) -> list[tuple[str, list[tuple[str, str, str]]]]:
    steps = [(f"step-{path}", f"step-{path}.html", f"Step on {path}") for path in context.paths]
    return [
        (
            "Answer",
            [
                ("index", "index.html", "Overview"),
                ("points", "points.html", "Coupling points"),
                ("plan", "plan.html", "Plan"),
                ("refactor", "refactor.html", "Refactor"),
                ("matrix", "matrix.html", "Matrix"),
                *([("compare", "compare.html", "v1 beside v2")] if len(context.paths) > 1 else []),
            ],
        ),
        ("Step", [("lanes", "lanes.html", "Swim lanes"), *steps]),
        (
            "State",
            [
                ("contract", "contract.html", "Contract"),
                ("tensors", "tensors.html", "Tensors"),
                ("fields", "fields.html", "Fields"),
            ],
        ),
        ("Code", [("graph", "graph.html", "Call graph"), ("functions", "functions.html", "Functions")]),
        (
            "Evidence",
            [
                ("runs", "runs.html", "Runs"),
                ("whatif", "whatif.html", "What if"),
                ("unknowns", "unknowns.html", "Unknowns"),
            ],
        ),
        ("Help", [("glossary", "glossary.html", "Glossary")]),
    ]


def pages(context: Context, env: jinja2.Environment) -> list[Task]:
    """Every page but those of modules, as pieces of work that need nothing of each other; the long ones first.

    What several pages need is made in each piece of work: that is cheap, and lets them go to several processes.
    """
    addresses = field_addresses(context)
    field_pages = FieldPages(context, env, _crossing_fields(context))
    points = ordered(context.index.coupling_points)
    return [
        *(partial(_points, context, addresses, points, part) for part in parts(points, POINTS)),
        *(partial(_fields, field_pages, part) for part in parts(field_pages.files(), FIELDS)),
        *(partial(_step, context, path) for path in context.paths),
        *(partial(write, context) for write in (_tensors, _lanes, _answers, _lists, _runs, _code)),
        partial(_field_list, context, addresses),
    ]


def parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """``items`` in pieces of ``size``."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _crossing_fields(context: Context) -> dict[str, list[tuple[Markup, str]]]:
    """The coupling points (link, title) that cross through each field."""
    crossing: dict[str, list[tuple[Markup, str]]] = {}
    for point in ordered(context.index.coupling_points):
        for field in point.fields:
            crossing.setdefault(field, []).append((context.links.point(point.id) or Markup(), point.title))
    return crossing


def _answers(context: Context, site: Site) -> None:
    site.page("index.html", "overview.html", page="index", view=overview(context))
    site.records[CONFIGURATION] = switch_data(context.index)
    site.page("plan.html", "plan.html", page="plan", plans=plan_views(context))
    site.page("refactor.html", "refactor.html", page="refactor", plans=plans(context))
    site.page("points.html", "points.html", page="points", view=points_page(context))
    site.page("glossary.html", "glossary.html", page="glossary", terms=glossary())


def _lists(context: Context, site: Site) -> None:
    site.page("matrix.html", "matrix.html", page="matrix", view=matrix(context))
    if len(context.paths) > 1:
        site.page("compare.html", "compare.html", page="compare", view=compare(context))
    site.page("whatif.html", "whatif.html", page="whatif", views=experiments(context))
    rows = contract(context)
    site.page(
        "contract.html",
        "contract.html",
        page="contract",
        contract=rows,
        requirements=REQUIREMENTS,
        objects=sorted({group.object for group in rows}),
        designs=sorted({row.design for group in rows for row in group.rows if row.design}),
    )


def _points(
    context: Context,
    addresses: dict[str, Markup],
    points: list[CouplingPoint],
    part: Sequence[CouplingPoint],
    site: Site,
) -> None:
    for view in point_pages(context, addresses, points, part):
        file = context.links.point_file(view.point.id)
        assert file is not None
        site.page(file, "point.html", page="points", view=view)


def _step(context: Context, path: str, site: Site) -> None:
    site.page(f"step-{path}.html", "chain.html", page=f"step-{path}", view=chain(context, path))


def _lanes(context: Context, site: Site) -> None:
    view = lanes(context, [chain(context, path) for path in context.paths])
    site.page("lanes.html", "lanes.html", page="lanes", view=view)


def _runs(context: Context, site: Site) -> None:
    runs = run_pages(context)
    together = compared(context.runs)
    site.page("runs.html", "runs.html", page="runs", views=runs, compared=together is not None)
    if together is not None:
        site.page("compared.html", "compared.html", page="runs", view=together)
    for run in runs:
        site.page(run.file, "run.html", page="runs", view=run)


def _tensors(context: Context, site: Site) -> None:
    found = stages(context)
    names = list(dict.fromkeys(stage.name for stage in found))
    site.page("tensors.html", "tensors.html", page="tensors", stages=found, names=names)


def _code(context: Context, site: Site) -> None:
    on_path = sum(bool(function.paths) for function in context.index.functions)
    left_out = on_path - len(context.drawn)
    site.page("graph.html", "graph.html", page="graph", data=graph_data(context), left_out=left_out)
    site.page("unknowns.html", "unknowns.html", page="unknowns", view=unknowns_page(context))
    modules: dict[str, ModuleLine] = {}
    depths: dict[str, int] = {}
    for path in context.paths:
        for name, depth in context.graph.depth(path).items():
            depths[name] = min(depth, depths.get(name, depth))
    for file, functions in context.modules.items():
        name = module(functions[0].id)
        line = modules.setdefault(name, ModuleLine(name, file, component_of(functions[0])))
        line.functions += len(functions)
        for function in functions:
            line.paths.update(function.paths)
            if function.id in depths and (line.distance is None or depths[function.id] < line.distance):
                line.distance = depths[function.id]
    rows = sorted(modules.values(), key=lambda row: (row.distance is None, row.distance or 0, row.name))
    site.page(
        "functions.html",
        "functions.html",
        page="functions",
        rows=rows,
        hues=context.hues,
        count=len(context.shown),
        left_out=on_path - sum(bool(function.paths) for function in context.shown),
        components=context.components,
    )


def _field_list(context: Context, addresses: dict[str, Markup], site: Site) -> None:
    rows = field_lines(context, addresses)
    left_out = len(context.index.fields) - len(context.fields)
    classes, roles = sorted({short(row.cls) for row in rows}), sorted({row.role for row in rows if row.role})
    site.page("fields.html", "fields.html", page="fields", rows=rows, classes=classes, roles=roles, left_out=left_out)


def _fields(field_pages: FieldPages, files: Sequence[str], site: Site) -> None:
    for file in files:
        view = field_pages.page(file)
        shown = [
            Part(s.anchor, 0, 0, f"{short(view.cls)}.{s.name}", site.render("field.html", s=s)) for s in view.sections
        ]
        site.page(file, "field_class.html", shown, page="fields", view=view)


def names(context: Context) -> Any:
    """What the box "go to" searches.

    ``pages``: [title, file]; ``points``: [title, kind, file]; ``classes``: [class, file, [[field, anchor]]];
    ``tensors``: names; ``modules``: [module, file, functions].
    """
    return {
        "pages": [[title, file] for _, links in _groups(context) for _, file, title in links],
        "points": [[p.title, spelled(p.kind), context.links.point_file(p.id)] for p in context.index.coupling_points],
        "classes": [
            [short(cls), file, [[field.field, file_name(field.field)] for field in fields]]
            for file, (cls, fields) in field_files(context).items()
        ],
        "tensors": sorted({tensor.name for tensor in context.index.tensors if tensor.shape not in SCALARS}),
        "modules": [
            [module(functions[0].id), file, [anchor(function.id) for function in functions]]
            for file, functions in context.modules.items()
        ],
    }
