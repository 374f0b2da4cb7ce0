"""Expressions, three-valued: what has an unknown operand is unknown, unless every possibility agrees."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from sgltrace.evaluate.frame import Frame
from sgltrace.evaluate.functions import Annotation, Function, LazyImport, Partial
from sgltrace.evaluate.journal import CONTENT, join_values, negation
from sgltrace.evaluate.unknown import Maybe, Undecided, Unknown, combine, describe, has_unknown, roots_of

if TYPE_CHECKING:
    from sgltrace.evaluate.machine import Machine

_PLAIN = frozenset((str, int, float, bool, type(None)))
MAX_SIZE = 1_000_000
"""No list, string or number grows beyond this: a source must not fill the memory."""

BINARY: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add), ast.Sub: ("-", operator.sub), ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv), ast.FloorDiv: ("//", operator.floordiv), ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow), ast.BitAnd: ("&", operator.and_), ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor), ast.LShift: ("<<", operator.lshift), ast.RShift: (">>", operator.rshift),
    ast.MatMult: ("@", operator.matmul),
}  # fmt: skip
COMPARE: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
}  # fmt: skip


class Expressions:
    """``eval`` for each kind of expression; one method a kind."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._methods: dict[type, Callable[[Any, Frame], Any]] = {
            getattr(ast, name[1:]): getattr(self, name) for name in dir(self) if name[0] == "_" and name[1].isupper()
        }

    def eval(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression. Raises what the source's own evaluation would."""
        self._machine.spend()
        method = self._methods.get(type(node))
        if method is None:
            return Unknown(ast.unparse(node))
        return method(node, frame)

    # --- names and data ------------------------------------------------------------------------------------

    def _Constant(self, node: ast.Constant, frame: Frame) -> Any:
        return node.value

    def _Name(self, node: ast.Name, frame: Frame) -> Any:
        name = node.id
        for scope in (frame.locals, *frame.enclosing, frame.module.scope):
            if name in scope:
                value = scope[name]
                if type(value) is LazyImport:
                    value = scope[name] = self._machine.resolve(value)
                return value
        return self._machine.global_name(frame, name)

    def _Tuple(self, node: ast.Tuple, frame: Frame) -> Any:
        return tuple(self._items(node.elts, frame))

    def _List(self, node: ast.List, frame: Frame) -> Any:
        return list(self._items(node.elts, frame))

    def _Set(self, node: ast.Set, frame: Frame) -> Any:
        return set(self._items(node.elts, frame))

    def _items(self, nodes: list[ast.expr], frame: Frame) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                value = self.eval(node.value, frame)
                items += [Unknown(f"*{describe(value)}", (), value.roots)] if isinstance(value, Unknown) else value
            else:
                items.append(self.eval(node, frame))
        return items

    def _Dict(self, node: ast.Dict, frame: Frame) -> Any:
        made: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                made[self.eval(key, frame)] = self.eval(value, frame)
                continue
            other = self.eval(value, frame)
            if not isinstance(other, Unknown):
                made.update(other)
        return made

    def _JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> Any:
        parts = [self.eval(part, frame) for part in node.values]
        if has_unknown(parts, 0):
            return combine(lambda *texts: "".join(texts), "".join(str(part) for part in parts), *parts)
        return "".join(parts)

    def _FormattedValue(self, node: ast.FormattedValue, frame: Frame) -> Any:
        value = self.eval(node.value, frame)
        spec = "" if node.format_spec is None else self.eval(node.format_spec, frame)
        conversions: dict[int, Callable[[Any], Any]] = {115: str, 114: repr, 97: ascii}
        convert = conversions.get(node.conversion, lambda value: value)
        return self._machine.native(lambda value, spec: format(convert(value), spec), (value, spec), {}, "format")

    # --- operators -----------------------------------------------------------------------------------------

    def _BinOp(self, node: ast.BinOp, frame: Frame) -> Any:
        symbol, function = BINARY[type(node.op)]
        return self.binary(symbol, function, self.eval(node.left, frame), self.eval(node.right, frame))

    def binary(self, symbol: str, function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
        """``left symbol right``, of bounded size."""
        if symbol in ("**", "<<", "*") and not isinstance(left, Unknown) and not isinstance(right, Unknown):
            sizes = [len(side) if isinstance(side, (str, list, tuple, bytes)) else side for side in (left, right)]
            if all(isinstance(size, int) for size in sizes) and _too_large(symbol, *map(abs, sizes)):
                return Unknown(f"{describe(left)} {symbol} {describe(right)}")
        name = f"{describe(left)} {symbol} {describe(right)}"
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return combine(function, name, left, right)
        return self._machine.native(function, (left, right), {}, name)

    def _UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> Any:
        value = self.eval(node.operand, frame)
        if isinstance(node.op, ast.Not):
            truth = self._machine.truth(value)
            return negation(truth) if isinstance(truth, Unknown) else not truth
        unary: dict[type, Callable[[Any], Any]] = {
            ast.USub: operator.neg,
            ast.UAdd: operator.pos,
            ast.Invert: operator.invert,
        }
        function = unary[type(node.op)]
        return self._machine.native(function, (value,), {}, f"-{describe(value)}")

    def _BoolOp(self, node: ast.BoolOp, frame: Frame) -> Any:
        return self._chain(node.values, isinstance(node.op, ast.And), frame)

    def _chain(self, nodes: list[ast.expr], is_and: bool, frame: Frame) -> Any:
        value = self.eval(nodes[0], frame)
        if len(nodes) == 1:
            return value
        truth = self._machine.truth(value)
        if not isinstance(truth, Unknown):
            return self._chain(nodes[1:], is_and, frame) if truth is is_and else value
        # The rest is evaluated only where this part does not decide: its effects and errors belong to that side.
        rest = self._machine.suppose(truth, is_and, lambda: self._chain(nodes[1:], is_and, frame))
        if isinstance(rest, Undecidable):
            return truth if is_and else value
        other = self._machine.truth(rest)
        if not isinstance(other, Unknown) and other is not is_and:
            if isinstance(rest, bool):
                return rest
            return join_values(rest, value, truth) if not is_and else rest
        name = f"{truth.name} {'and' if is_and else 'or'} {describe(rest)}"
        roots = truth.roots | roots_of((rest,))
        parts = tuple(part for part in (truth, other) if isinstance(part, Unknown))
        if isinstance(value, Unknown) and value.options and not isinstance(value, Maybe):
            kept = [option for option in value.options if isinstance(option, Unknown) or bool(option) is not is_and]
            options = [*kept, *(rest.options if isinstance(rest, Unknown) else (rest,))]
            if not isinstance(rest, Unknown) or rest.options:
                return Unknown(name, tuple(options), roots, ("and" if is_and else "or", parts))
        if len(parts) == 1 and isinstance(rest, bool):
            return truth
        return Unknown(name, (), roots, ("and" if is_and else "or", parts))

    def _Compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.eval(node.left, frame)
        result: Any = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right_node, frame)
            one = self._compare(op, left, right)
            if len(node.ops) == 1:
                return one
            truth = self._machine.truth(one)
            if truth is False:
                return False
            if isinstance(truth, Unknown):
                result = (
                    truth
                    if result is True
                    else Unknown(f"{result.name} and {truth.name}", (), result.roots | truth.roots)
                )
            left = right
        return result

    def _compare(self, op: ast.cmpop, left: Any, right: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self._is(left, right, isinstance(op, ast.Is))
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self.contains(right, left)
            if isinstance(op, ast.In):
                return found
            return negation(found) if isinstance(found, Unknown) else not found
        symbol, function = COMPARE[type(op)]
        if type(left) in _PLAIN and type(right) in _PLAIN:
            return function(left, right)
        name = f"{describe(left)} {symbol} {describe(right)}"
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return combine(function, name, left, right)
        return self._machine.native(function, (left, right), {}, name)

    def _is(self, left: Any, right: Any, wanted: bool) -> Any:
        if left is right:
            return wanted
        word = "is" if wanted else "is not"
        name = f"{describe(left)} {word} {describe(right)}"
        return combine(lambda a, b: (a is b or _same_literal(a, b)) is wanted, name, left, right)

    def contains(self, holder: Any, item: Any) -> Any:
        """``item in holder``."""
        if type(holder) is dict and type(item) in _PLAIN:
            value = holder.get(item, _PLAIN)
            return value.condition if isinstance(value, Maybe) else value is not _PLAIN
        name = f"{describe(item)} in {describe(holder)}"
        if isinstance(item, Unknown) and item.options and not isinstance(item, Maybe):
            return combine(lambda one: self._known(self.contains(holder, one)), name, item)
        if isinstance(item, Unknown) and isinstance(holder, (list, tuple, set, frozenset, dict)) and not len(holder):
            return False
        if isinstance(holder, Unknown) and holder.options and not isinstance(holder, Maybe):
            return combine(lambda one: self._known(self.contains(one, item)), name, holder)
        if isinstance(holder, dict) and not isinstance(item, Unknown):
            value = self._machine.native(holder.get, (item,), {}, name)
            return (
                value.condition
                if isinstance(value, Maybe)
                else self._machine.native(holder.__contains__, (item,), {}, name)
            )
        if isinstance(holder, (list, tuple, set, frozenset)):
            return self._among(holder, item, name)
        return self._machine.native(operator.contains, (holder, item), {}, name)

    def _among(self, holder: Iterable[Any], item: Any, name: str) -> Any:
        doubts: frozenset[str] = frozenset()
        for element in holder:
            value = element.value if isinstance(element, Maybe) else element
            equal = self._machine.truth(self._compare(ast.Eq(), value, item)) if value is not item else True
            if isinstance(equal, Unknown):
                doubts |= equal.roots
            elif equal and not isinstance(element, Maybe):
                return True
            elif equal:
                doubts |= element.condition.roots
        return Unknown(name, (), doubts) if doubts else False

    def _known(self, value: Any) -> Any:
        if isinstance(value, Unknown):
            raise Undecided(value)
        return value

    def _IfExp(self, node: ast.IfExp, frame: Frame) -> Any:
        truth = self._machine.truth(self.eval(node.test, frame))
        if not isinstance(truth, Unknown):
            return self.eval(node.body if truth else node.orelse, frame)
        return self._machine.fork_value(
            truth, lambda: self.eval(node.body, frame), lambda: self.eval(node.orelse, frame), frame
        )

    def _NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.eval(node.value, frame)
        self._machine.statements.assign(node.target, value, frame)
        return value

    # --- access --------------------------------------------------------------------------------------------

    def _Attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        value = self.eval(node.value, frame)
        try:
            return self._machine.get_attribute(value, node.attr)
        except AttributeError:
            if isinstance(value, Partial):
                return self._machine.assumed_value(Unknown(f"{value.partial_name}.{node.attr}"))
            raise

    def _Subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        value = self.eval(node.value, frame)
        key = self.eval(node.slice, frame)
        return self.item(value, key)

    def item(self, value: Any, key: Any) -> Any:
        """``value[key]``."""
        if type(value) is dict and type(key) in _PLAIN and key in value:
            found = value[key]
            return found.value if isinstance(found, Maybe) else found
        name = f"{describe(value)}[{describe(key)}]"
        if isinstance(value, Unknown) or isinstance(key, Unknown):
            return self._machine.assumed_value(combine(operator.getitem, name, value, key))
        found = self._machine.native(operator.getitem, (value, key), {}, name)
        return found.value if isinstance(found, Maybe) else found

    def _Slice(self, node: ast.Slice, frame: Frame) -> Any:
        return slice(
            *(None if part is None else self.eval(part, frame) for part in (node.lower, node.upper, node.step))
        )

    def _Call(self, node: ast.Call, frame: Frame) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return self._machine.super_of(frame)
        function = self.eval(node.func, frame)
        args = tuple(self._items(node.args, frame))
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value, frame)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif not isinstance(value, Unknown):
                keywords.update(value)
        frame.line = node.lineno
        return self._machine.call(function, args, keywords, frame)

    def _Lambda(self, node: ast.Lambda, frame: Frame) -> Any:
        return self.function(node, frame, "<lambda>")

    def function(self, node: Any, frame: Frame, name: str) -> Function:
        """A function or lambda as it is defined here: defaults are evaluated, the body is not."""
        spec = node.args
        defaults = [self.eval(default, frame) for default in spec.defaults]
        keywords = {
            arg.arg: self.eval(default, frame)
            for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
            if default is not None
        }
        return Function(
            self._machine, node, frame.module, frame.inner_scopes(), f"{frame.prefix}{name}", defaults, keywords
        )

    def _Starred(self, node: ast.Starred, frame: Frame) -> Any:
        return self.eval(node.value, frame)

    def _Await(self, node: ast.Await, frame: Frame) -> Any:
        return Unknown(f"await {ast.unparse(node.value)}")

    def _Yield(self, node: ast.Yield, frame: Frame) -> Any:
        value = None if node.value is None else self.eval(node.value, frame)
        if frame.yields is not None:
            frame.yields.append(value)
        return None

    def _YieldFrom(self, node: ast.YieldFrom, frame: Frame) -> Any:
        if frame.yields is not None:
            frame.yields.extend(self.iterate(self.eval(node.value, frame)) or ())
        return None

    # --- comprehensions ------------------------------------------------------------------------------------

    def _ListComp(self, node: ast.ListComp, frame: Frame) -> Any:
        return self._comprehend(node, node.elt, None, frame, list)

    def _SetComp(self, node: ast.SetComp, frame: Frame) -> Any:
        return self._comprehend(node, node.elt, None, frame, set)

    def _GeneratorExp(self, node: ast.GeneratorExp, frame: Frame) -> Any:
        made = self._comprehend(node, node.elt, None, frame, list)
        return made if isinstance(made, Unknown) else Elements(made)

    def _DictComp(self, node: ast.DictComp, frame: Frame) -> Any:
        return self._comprehend(node, node.value, node.key, frame, dict)

    def _comprehend(self, node: Any, element: ast.expr, key: ast.expr | None, frame: Frame, kind: Any) -> Any:
        inner = frame.nested()
        found: list[Any] = []
        doubt = self._generate(node.generators, element, key, inner, found)
        if doubt is not None:
            return Unknown(ast.unparse(node), (), doubt.roots)
        return kind(found)

    def _generate(
        self, generators: list[Any], element: ast.expr, key: ast.expr | None, frame: Frame, found: list[Any]
    ) -> Unknown | None:
        if not generators:
            value = self.eval(element, frame)
            found.append(value if key is None else (self.eval(key, frame), value))
            return None
        first, rest = generators[0], generators[1:]
        items = self.eval(first.iter, frame)
        listed = self.iterate(items)
        if listed is None:
            return items if isinstance(items, Unknown) else Unknown(describe(items))
        for item in listed:
            condition = item.condition if isinstance(item, Maybe) else None
            self._machine.statements.assign(first.target, item.value if isinstance(item, Maybe) else item, frame)
            kept: Any = True
            for test in first.ifs:
                truth = self._machine.truth(self.eval(test, frame))
                if truth is False:
                    kept = False
                    break
                if isinstance(truth, Unknown):
                    condition = truth
            if not kept:
                continue
            if condition is None:
                doubt = self._generate(rest, element, key, frame, found)
                if doubt is not None:
                    return doubt
                continue
            own: list[Any] = []
            doubt = self._generate(rest, element, key, frame, own)
            if doubt is not None:
                return doubt
            found += (
                [(pair[0], Maybe(pair[1], condition)) for pair in own] if key else [Maybe(x, condition) for x in own]
            )
        return None

    def iterate(self, value: Any) -> list[Any] | None:
        """The elements of something; None where they are unknown."""
        if isinstance(value, Unknown):
            return None
        try:
            return list(islice(iter(value), MAX_SIZE))
        except Undecided:
            return None

    def annotation(self, node: ast.expr, frame: Frame) -> Any:
        """A field's annotation: Python's own markers as they are, the rest when somebody asks."""
        import dataclasses
        import typing

        head = node.value if isinstance(node, ast.Subscript) else node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            try:
                return self.annotation(ast.parse(text, mode="eval").body, frame)
            except SyntaxError:
                return typing.Any
        word = head.attr if isinstance(head, ast.Attribute) else getattr(head, "id", "")
        if word == "ClassVar":
            return typing.ClassVar[typing.Any]
        if word == "InitVar":
            return dataclasses.InitVar(object)
        if word == "KW_ONLY":
            return dataclasses.KW_ONLY
        return Annotation(node, frame)


class Elements(list[Any]):
    """What a generator expression gives: made at once, used up when it is iterated over."""

    def __next__(self) -> Any:
        if not self:
            raise StopIteration
        return self.pop(0)


class Undecidable:
    """The rest of a condition raised where it is not known whether it is reached."""


def _same_literal(left: Any, right: Any) -> bool:
    """Literals that CPython makes one object."""
    return type(left) is type(right) and isinstance(left, (int, str)) and bool(left == right)


def _too_large(symbol: str, left: int, right: int) -> bool:
    if symbol == "**":
        return left > 1 and right * left.bit_length() > 4096
    if symbol == "<<":
        return right > 4096
    return left * right > 10**30 or False


__all__ = ["CONTENT", "Elements", "Expressions", "Undecidable"]
