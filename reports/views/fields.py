"""The fields that carry a step's state: who writes and reads each, under which conditions."""

from __future__ import annotations

from dataclasses import dataclass

import jinja2
from markupsafe import Markup

from sgltrace.model import Access, Field, Guard
from sgltrace.reports.context import Context
from sgltrace.reports.graph import short
from sgltrace.reports.links import addresses, page_link
from sgltrace.reports.site import breakable
from sgltrace.reports.text import file_name
from sgltrace.reports.views.common import guard_texts


@dataclass(slots=True)
class AccessRow:
    """One write or read. There are tens of thousands, so what many share is rendered once."""

    where: Markup
    """The link to the line."""
    kind: str
    expression: str
    shape: str | None
    guards: Markup
    when: str


@dataclass(frozen=True)
class FieldSection:
    """One field with its accesses."""

    name: str
    anchor: str
    writes: list[AccessRow]
    reads: list[AccessRow]
    points: list[tuple[Markup, str]]


@dataclass(frozen=True)
class FieldsPage:
    """The fields of one class."""

    cls: str
    role: str
    file: str
    sections: list[FieldSection]


@dataclass(frozen=True)
class FieldLine:
    """A field in the overview of all."""

    cls: str
    role: str
    name: str
    url: Markup
    writes: int
    reads: int
    writers: dict[str, int]
    """Functions that write it, by path."""
    readers: dict[str, int]
    shapes: list[str]

    @property
    def only(self) -> list[str]:
        """What is particular about it, for the filter."""
        told = []
        if sum(count > 0 for count in self.writers.values()) == 1:
            told.append("written on one path")
        if sum(count > 0 for count in self.readers.values()) == 1:
            told.append("read on one path")
        if not self.writes:
            told.append("never written")
        if not self.reads:
            told.append("never read")
        return told


def field_addresses(context: Context) -> dict[str, Markup]:
    """The address of each field's section, by ``Class.field``, the class named with and without its module."""
    found: dict[str, Markup] = {}
    for file, (cls, fields) in field_files(context).items():
        for field in fields:
            address = page_link(file, file_name(field.field))
            found[f"{cls}.{field.field}"] = address
            found.setdefault(f"{cls.rpartition(':')[2]}.{field.field}", address)
    return found


def field_lines(context: Context, addresses: dict[str, Markup]) -> list[FieldLine]:
    """All fields in one table."""
    return [
        FieldLine(
            cls=field.cls,
            role=field.role.replace("_", " "),
            name=field.field,
            url=addresses[f"{field.cls}.{field.field}"],
            writes=len(field.writes),
            reads=len(field.reads),
            writers={path: _functions(field.writes, path) for path in context.paths},
            readers={path: _functions(field.reads, path) for path in context.paths},
            shapes=sorted({access.shape for access in field.writes if access.shape}),
        )
        for field in sorted(context.fields, key=lambda field: (field.role, field.cls, field.field))
    ]


class FieldPages:
    """Makes the pages of each class one at a time."""

    def __init__(self, context: Context, env: jinja2.Environment, points: dict[str, list[tuple[Markup, str]]]) -> None:
        """``points`` gives the coupling points (link, title) that cross through a field."""
        self._context = context
        self._macros = env.get_template("macros.html").module
        self._points = points
        self._conditions: dict[tuple[Guard, ...], Markup] = {}
        self._files = field_files(context)

    def files(self) -> list[str]:
        """All pages: one a class."""
        return list(self._files)

    def page(self, file: str) -> FieldsPage:
        """The page that is written to ``file``."""
        cls, fields = self._files[file]
        return FieldsPage(cls, fields[0].role.replace("_", " "), file, [self._section(field) for field in fields])

    def _section(self, field: Field) -> FieldSection:
        short_name = f"{field.cls.rpartition(':')[2]}.{field.field}"
        return FieldSection(
            name=field.field,
            anchor=file_name(field.field),
            writes=[self._row(access) for access in field.writes],
            reads=[self._row(access) for access in field.reads],
            points=self._points.get(f"{field.cls}.{field.field}") or self._points.get(short_name, []),
        )

    def _row(self, access: Access) -> AccessRow:
        return AccessRow(
            where=self._where(access),
            kind=access.kind,
            expression=access.expression,
            shape=access.shape,
            guards=self._guards(access),
            when=" ".join((*access.paths, ", ".join(access.phase))),
        )

    def _where(self, access: Access) -> Markup:
        url = self._context.links.line(access.function, access.line)
        text = f'{breakable(short(access.function))}<span class="at">{int(access.line)}</span>'
        return Markup(f'<a class="fn" href="{url}">{text}</a>' if url else f'<span class="fn">{text}</span>')

    def _guards(self, access: Access) -> Markup:
        key = tuple(access.guards)
        if key not in self._conditions:
            self._conditions[key] = self._macros.guards(guard_texts(access.guards))  # type: ignore[attr-defined]
        return self._conditions[key]


def field_files(context: Context) -> dict[str, tuple[str, list[Field]]]:
    """The page of each class with its fields."""
    by_class: dict[str, list[Field]] = {}
    for field in context.fields:
        by_class.setdefault(field.cls, []).append(field)
    names = {cls: cls.replace(":", ".") for cls in by_class}
    files = dict(addresses("fields", names.values()))
    return {files[names[cls]]: (cls, fields) for cls, fields in by_class.items()}


def _functions(accesses: list[Access], path: str) -> int:
    return len({access.function for access in accesses if path in access.paths})
