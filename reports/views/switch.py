"""What the report needs to ask its conditions of a configuration in the browser: ``templates/assets/configuration.js``.

The same data that ``sgltrace.insight.reach`` walks: calls with the conditions that a configuration decides, what names
stand for, and the places of points and rows. Expressions are nested lists.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sgltrace.configuration.truth import parsed
from sgltrace.configuration.vocabulary import condition_words
from sgltrace.explain.vocabulary import hints
from sgltrace.insight.reach import ARGUMENTS, ASKED, decided, leaves_of
from sgltrace.model import Guard, Index, Place

SMALL = 2000
"""A condition of more characters is left out."""


def switch_data(index: Index) -> dict[str, Any]:
    """The data, as JSON may hold it."""
    return _Data(index).made()


class _Data:
    def __init__(self, index: Index) -> None:
        self.index, conditions = index, index.conditions
        self.numbers = {function.id: number for number, function in enumerate(index.functions)}
        asked = frozenset(name for answers in conditions.algorithms.values() for name in answers)
        self.known = {*conditions.arguments, *conditions.meanings, *(f"{n.rpartition('.')[2]}()" for n in asked)}
        self.texts: dict[str, int] = {}
        self.rewritten: dict[str, set[str]] = defaultdict(set)
        self.written: dict[str, set[str]] = defaultdict(set)
        for uses in index.fields:
            if uses.role == ARGUMENTS and uses.field in conditions.arguments:
                for write in uses.writes:
                    self.rewritten[write.function].add(uses.field)
                    self.written[uses.field].add(write.expression)
        self.around: dict[tuple[str, int], list[list[Guard]]] = defaultdict(list)
        for edge in index.calls:
            for site in edge.sites:
                self.around[edge.caller, site.line].append(site.guards)
        for uses in index.fields:
            for access in (*uses.writes, *uses.reads):
                self.around[access.function, access.line].append(access.guards)

    def made(self) -> dict[str, Any]:
        """Everything; expressions last, when all that are asked for are known."""
        index, conditions, known = self.index, self.index.conditions, hints()
        calls: dict[int, list[Any]] = defaultdict(list)
        called = set()
        for edge in index.calls:
            caller, callee = self.numbers.get(edge.caller), self.numbers.get(edge.callee)
            called.add(edge.callee)
            if caller is not None and callee is not None:
                calls[caller].append([callee, *self._sites(edge.caller, [site.guards for site in edge.sites])])
        classes = {name: number for number, name in enumerate(sorted(conditions.made))}
        made: dict[int, list[Any]] = defaultdict(list)
        for name, places in sorted(conditions.made.items()):
            for place in places:
                if place.function in self.numbers:
                    made[self.numbers[place.function]].append(
                        [classes[name], self._guards(place.function, place.guards)]
                    )
        of_class = {
            number: classes[cls] for name, number in self.numbers.items() if (cls := name.rpartition(".")[0]) in classes
        }
        data = {
            "calls": dict(sorted(calls.items())),
            "made": dict(sorted(made.items())),
            "classes": of_class,
            "roots": [n for name, n in self.numbers.items() if name not in called or name in index.processes],
            "loops": [self.numbers[loop] for loop in index.event_loops if loop in self.numbers],
            "points": {point.id: self._point(point) for point in index.coupling_points},
            "rows": [[row.path, row.field, self._places(row.readers or row.writers)] for row in index.contract],
            "workers": [[w.path, w.algorithms, w.overlap] for w in index.workers],
            "arguments": {name: self._values(name) for name in conditions.arguments},
            "algorithms": conditions.algorithms,
            "algorithm": known.algorithm,
            "words": known.words,
            "decided": sorted(decided(conditions)),
        }
        data["meanings"] = {n: [i for t in texts if (i := self._expression(t)) is not None]
                            for n, texts in sorted(conditions.meanings.items())}  # fmt: skip
        data["expressions"] = [_node(parsed(text)) for text in self.texts]
        data["leaves"] = [sorted(leaves_of(text)) for text in self.texts]
        return data

    def _point(self, point: Any) -> dict[str, Any]:
        return {
            "paths": sorted(path for path, level in point.severity.items() if level is not None),
            "words": self._words(point.condition),
            "condition": point.condition,
            "sides": [self._places(point.producers), self._places(point.consumers)],
        }

    def _words(self, condition: str) -> list[int] | bool | None:
        """The expressions of which one must hold; True where nothing is asked, None where nobody can say."""
        from fnmatch import fnmatchcase

        if condition == "always":
            return True
        table = condition_words()
        pattern = next((known for known in table if fnmatchcase(condition, known)), None)
        expressions = table[pattern] if pattern is not None else (condition,)
        if expressions == ("True",):
            return True
        asked = [text for text in expressions if leaves_of(text) and leaves_of(text) & self.known]
        return [i for text in asked if (i := self._expression(text)) is not None] or None

    def _places(self, places: Iterable[Place]) -> list[Any]:
        found = []
        for place in places:
            if place.function in self.numbers:
                around = self.around.get((place.function, place.line), [])
                found.append([self.numbers[place.function], *self._sites(place.function, around)])
        return found

    def _sites(self, function: str, sites: list[list[Guard]]) -> list[Any]:
        """The conditions of each place, of which one must let through; nothing where one has none."""
        found = [self._guards(function, guards) for guards in sites]
        return [] if not found or any(not guards for guards in found) else found

    def _guards(self, function: str, guards: Iterable[Guard]) -> list[int]:
        """Conditions that a configuration may decide: the number of an expression, negative where it must not hold."""
        out = []
        before = self.rewritten.get(function, set())
        for guard in guards:
            leaves = leaves_of(guard.text) if guard.kind in ASKED else frozenset()
            if not leaves & self.known or leaves & before:
                continue
            number = self._expression(guard.text)
            if number is not None:
                out.append(number + 1 if guard.holds else -number - 1)
        return sorted(set(out))

    def _expression(self, text: str) -> int | None:
        if parsed(text) is None or len(text) > SMALL:
            return None
        return self.texts.setdefault(text, len(self.texts))

    def _values(self, name: str) -> list[Any] | None:
        """What an argument may be that nobody gave: its default, and what the handling may make of it."""
        defaults = self.index.conditions.defaults
        if name not in defaults:
            return None
        found = []
        for text in (defaults[name], *sorted(self.written.get(name, ()))):
            try:
                value = ast.literal_eval(text)
            except (ValueError, SyntaxError):
                return None
            if value not in found:
                found.append(value)
        return found if len(found) <= 8 else None


_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Div: "/", ast.Mod: "%"}
_COMPARED = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


def _node(node: ast.expr | None) -> Any:
    """An expression as nested lists; None for what nobody evaluates."""
    match node:
        case ast.Constant(value=value) if value is ...:
            return ["k", "..."]
        case ast.Constant(value=value) if isinstance(value, (str, int, float, bool, type(None))):
            return ["k", value]
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return ["n", name]
        case ast.Call(func=func, args=args, keywords=keywords):
            name = getattr(func, "attr", getattr(func, "id", ""))
            return ["c", name, "" if args or keywords else ast.unparse(func), [_node(arg) for arg in args]]
        case ast.NamedExpr(value=value):
            return _node(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["!", _node(operand)]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ["neg", _node(operand)]
        case ast.BoolOp(op=op, values=values):
            return ["|" if isinstance(op, ast.Or) else "&", [_node(value) for value in values]]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ["?", _node(test), _node(body), _node(orelse)]
        case ast.Compare(left=left, ops=ops, comparators=rights):
            return ["<", _node(left), [_COMPARED[type(op)] for op in ops], [_node(right) for right in rights]]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return ["+", _BINARY[type(op)], _node(left), _node(right)]
        case ast.Subscript(value=value, slice=ast.Constant(value=at)):
            return ["[", _node(value), at]
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return ["t", [_node(item) for item in items]]
    return None
