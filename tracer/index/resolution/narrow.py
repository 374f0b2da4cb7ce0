"""What an ``isinstance`` test says about a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import ClassInfo, Scope
from sgltrace.index.resolution.values import ClassRef, External, Instance, Transform, Value

if TYPE_CHECKING:
    from sgltrace.index.resolution.engine import Engine


def narrowed(engine: Engine, scope: Scope, test: s.Expr, holds: bool) -> Iterator[tuple[str, Transform]]:
    """The names that ``test`` (which ``holds`` or not) speaks of, with what lets through the fitting values."""
    if isinstance(test, s.Unary) and test.op == "not":
        yield from narrowed(engine, scope, test.value, not holds)
    elif isinstance(test, s.Bool) and (test.op == "and") == holds:
        yield from narrowed(engine, scope, test.left, holds)
        yield from narrowed(engine, scope, test.right, holds)
    elif isinstance(test, s.Call) and isinstance(test.func, s.Name) and test.func.id == "isinstance":
        subject = test.args[0].value if len(test.args) == 2 else None
        classes, external = _classes(engine, scope, test.args[1].value) if subject is not None else ([], False)
        if isinstance(subject, s.Name) and (classes or external):
            yield subject.id, _transform(engine, classes, external, holds)


def _classes(engine: Engine, scope: Scope, expression: s.Expr) -> tuple[list[ClassInfo], bool]:
    parts = expression.items if isinstance(expression, s.Seq) else [expression]
    classes: list[ClassInfo] = []
    external = False
    for part in parts:
        for value in engine.evaluate(part, scope):
            if type(value) is ClassRef:
                classes.append(value.cls)
            elif type(value) is External:
                external = True
    return classes, external


def _transform(engine: Engine, classes: list[ClassInfo], external: bool, holds: bool) -> Transform:
    def passes(value: Value) -> Value | None:
        if type(value) is Instance:
            fits = any(engine.classes.is_subclass(value.cls, cls) for cls in classes)
            if external and not fits:
                return value if not holds or engine.classes.has_outside(value.cls) else None
            return value if fits == holds else None
        if holds and not external:
            return None
        return value

    return passes
