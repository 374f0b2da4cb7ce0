"""A module's source, read by LibCST, as facts (see ``syntax``).

One pass over LibCST's tree by a table with an entry for each node class: it reads the fields that matter and
never the white space, which is most of the tree.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import libcst as cst

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.lines import (
    ATTRIBUTE,
    CALL,
    LAMBDA,
    SUBSCRIPT,
    LibcstLines,
    Lines,
    Mismatch,
    PairedLines,
    TooDeep,
    check_expression,
    lines_of_statements,
)
from sgltrace.index.facts.trial import why_not_parsed

_BINARY = {
    cst.Add: "+", cst.Subtract: "-", cst.Multiply: "*", cst.Divide: "/", cst.FloorDivide: "//", cst.Modulo: "%",
    cst.Power: "**", cst.MatrixMultiply: "@", cst.BitAnd: "&", cst.BitOr: "|", cst.BitXor: "^",
    cst.LeftShift: "<<", cst.RightShift: ">>",
}  # fmt: skip
_AUGMENTED = {
    cst.AddAssign: "+", cst.SubtractAssign: "-", cst.MultiplyAssign: "*", cst.DivideAssign: "/",
    cst.FloorDivideAssign: "//", cst.ModuloAssign: "%", cst.PowerAssign: "**", cst.MatrixMultiplyAssign: "@",
    cst.BitAndAssign: "&", cst.BitOrAssign: "|", cst.BitXorAssign: "^", cst.LeftShiftAssign: "<<",
    cst.RightShiftAssign: ">>",
}  # fmt: skip
_COMPARE = {
    cst.Equal: "==", cst.NotEqual: "!=", cst.LessThan: "<", cst.LessThanEqual: "<=", cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=", cst.In: "in", cst.NotIn: "not in", cst.Is: "is", cst.IsNot: "is not",
}  # fmt: skip
_UNARY = {cst.Not: "not", cst.Minus: "-", cst.Plus: "+", cst.BitInvert: "~"}


_WHITE_SPACE = ("SimpleWhitespace", "ParenthesizedWhitespace", "TrailingWhitespace", "EmptyLine", "Newline", "Comment")


def parse_source(source: str) -> s.ModuleFacts:
    """The facts of a module. A file that LibCST cannot read gives facts with ``error`` and no statements."""
    refused: SyntaxError | ValueError | None = None
    try:
        lines: list[Lines] | None = lines_of_statements(source)
    except TooDeep:
        return s.ModuleFacts([], "nested too deeply")
    except (SyntaxError, ValueError) as error:
        lines, refused = None, error  # for the running Python; LibCST may know the syntax
        if (why := why_not_parsed(source)) is not None:
            return s.ModuleFacts([], why)
    try:
        with _bare_nodes() if lines is not None else contextlib.nullcontext():
            module = cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        return s.ModuleFacts([], _why_not(error, refused))
    except Exception as error:  # LibCST's native parser raises its own kinds; one odd file must not end the run
        return s.ModuleFacts([], f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    try:
        if lines is not None:
            with contextlib.suppress(Mismatch):
                paired = PairedLines(lines)
                body = _Converter(paired).body(module.body)
                paired.finish()
                return s.ModuleFacts(body)
            module = cst.parse_module(source)  # with its white space, which positions are counted by
        return s.ModuleFacts(_Converter(LibcstLines(module)).body(module.body))
    except RecursionError:
        return s.ModuleFacts([], "nested too deeply")
    except Exception as error:  # syntax that LibCST knows and this program does not
        return s.ModuleFacts([], f"not understood ({type(error).__name__}: {error})")


def _why_not(error: cst.ParserSyntaxError, refused: SyntaxError | ValueError | None) -> str:
    """Where and why a source does not parse: in Python's words, which are better, unless LibCST came further."""
    found = _PLACE.search(error.message)
    line = int(found[1]) if found else error.raw_line
    if not isinstance(refused, SyntaxError) or refused.lineno is None:
        return f"line {line}: invalid syntax"
    if refused.msg == "invalid syntax" and line > refused.lineno + 1:
        return f"line {line}: invalid syntax"
    return f"line {refused.lineno}: {refused.msg}"


_PLACE = re.compile(r"error at (\d+):\d+")
"""LibCST's ``raw_line`` is often the one behind."""


@contextlib.contextmanager
def _bare_nodes() -> Iterator[None]:
    """Has LibCST's parser make less: no white space, which is half of its nodes, and no checks of what it made itself.

    The parser is native code that makes each node by calling the class of that name in ``libcst``.
    """
    check, classes = cst.CSTNode.__post_init__, {name: getattr(cst, name) for name in _WHITE_SPACE}
    cst.CSTNode.__post_init__ = lambda self: None  # type: ignore[method-assign]
    for name in _WHITE_SPACE:
        setattr(cst, name, lambda **fields: None)
    try:
        yield
    finally:
        cst.CSTNode.__post_init__ = check  # type: ignore[method-assign]
        for name, made in classes.items():
            setattr(cst, name, made)


class _Converter:
    """LibCST nodes to facts, in source order (``lines`` counts on that order)."""

    def __init__(self, lines: PairedLines | LibcstLines | _NoLines) -> None:
        self.lines = lines
        self.only_line = 0
        """The line of all expressions of the statement that is being read; 0 where each has to be asked for."""
        self.generator = [False]  # whether the function being read yields, innermost last
        self.expressions: dict[type, Callable[[Any], s.Expr]] = {
            cst.Name: self.name, cst.Attribute: self.attribute, cst.Call: self.call, cst.Subscript: self.subscript,
            cst.SimpleString: self.string, cst.ConcatenatedString: self.concatenated,
            cst.FormattedString: self.formatted, cst.TemplatedString: self.formatted,
            cst.Integer: self.integer, cst.Float: self.float_,
            cst.Imaginary: lambda n: s.Const(n.value), cst.Ellipsis: lambda n: s.Ellipsis_(),
            cst.Tuple: lambda n: s.Seq("tuple", self.elements(n.elements)),
            cst.List: lambda n: s.Seq("list", self.elements(n.elements)),
            cst.Set: lambda n: s.Seq("set", self.elements(n.elements)), cst.Dict: self.dict_,
            cst.BinaryOperation: self.binary, cst.BooleanOperation: self.boolean, cst.Comparison: self.comparison,
            cst.UnaryOperation: self.unary, cst.IfExp: self.conditional, cst.Lambda: self.lambda_,
            cst.ListComp: lambda n: self.comprehension("list", n), cst.SetComp: lambda n: self.comprehension("set", n),
            cst.GeneratorExp: lambda n: self.comprehension("generator", n), cst.DictComp: self.dict_comprehension,
            cst.NamedExpr: self.walrus, cst.Await: lambda n: s.Await("await", self.expr(n.expression)),
            cst.Yield: self.yield_, cst.StarredElement: lambda n: s.Star(self.expr(n.value)),
        }  # fmt: skip
        self.small: dict[type, Callable[[Any, int], s.Stmt | None]] = {
            cst.Expr: self.expression_statement, cst.Assign: self.assign, cst.AnnAssign: self.annotated,
            cst.AugAssign: self.augmented, cst.Return: self.return_, cst.Raise: self.raise_,
            cst.Assert: self.assert_, cst.Del: self.delete, cst.Import: lambda n, line: None,
            cst.Global: lambda n, line: s.Scope("global", [x.name.value for x in n.names]),
            cst.Nonlocal: lambda n, line: s.Scope("nonlocal", [x.name.value for x in n.names]),
            cst.Break: lambda n, line: s.Jump("break", line), cst.Continue: lambda n, line: s.Jump("continue", line),
            cst.ImportFrom: self.import_from, cst.Pass: lambda n, line: None, cst.TypeAlias: self.type_alias,
        }  # fmt: skip
        self.compound: dict[type, Callable[[Any], s.Stmt]] = {
            cst.If: self.if_, cst.For: self.for_, cst.While: self.while_, cst.With: self.with_, cst.Try: self.try_,
            cst.TryStar: self.try_, cst.FunctionDef: self.function, cst.ClassDef: self.class_,
            cst.Match: self.match,
        }  # fmt: skip

    def enter(self, node: cst.CSTNode) -> Lines:
        """The lines of a statement, handler or case, whose head is read next."""
        lines = self.lines.enter(node)
        self.only_line = lines.first if lines.inside is None else 0
        return lines

    # --- expressions ---

    def expr(self, node: cst.CSTNode) -> s.Expr:
        return self.expressions[type(node)](node)

    def optional(self, node: cst.CSTNode | None) -> s.Expr | None:
        return None if node is None else self.expr(node)

    def name(self, node: cst.Name) -> s.Expr:
        value = node.value
        if value == "None":
            return s.Const(None)
        if value == "True":
            return s.Const(True)
        return s.Const(False) if value == "False" else s.Name(value)

    def attribute(self, node: cst.Attribute) -> s.Expr:
        line = self.only_line or self.lines.expression(ATTRIBUTE, node)
        return s.Attr(self.expr(node.value), node.attr.value, line)

    def call(self, node: cst.Call) -> s.Expr:
        line = self.only_line or self.lines.expression(CALL, node)
        func = self.expr(node.func)
        return s.Call(func, [self.arg(arg) for arg in node.args], line)

    def arg(self, node: cst.Arg) -> s.Arg:
        name = node.keyword.value if node.keyword is not None else (node.star or None)
        return s.Arg(name, self.expr(node.value))

    def subscript(self, node: cst.Subscript) -> s.Expr:
        line = self.only_line or self.lines.expression(SUBSCRIPT, node)
        value = self.expr(node.value)
        parts = [self.index(element.slice) for element in node.slice]  # type: ignore[arg-type]
        last = node.slice[-1]
        single = len(parts) == 1 and isinstance(last.comma, cst.MaybeSentinel)
        return s.Sub(value, parts[0] if single else s.Seq("tuple", parts), line)

    def index(self, node: cst.Index | cst.Slice) -> s.Expr:
        if isinstance(node, cst.Slice):
            return s.Slice(self.optional(node.lower), self.optional(node.upper), self.optional(node.step))
        value = self.expr(node.value)
        return s.Star(value) if node.star else value

    def string(self, node: cst.SimpleString) -> s.Expr:
        text = node.value
        if "b" in node.prefix or "B" in node.prefix:
            return s.Const(text)
        quote = 3 if text[:3] in ('"""', "'''") else 1
        if "\\" not in text and text[0] in "\"'":
            return s.Const(text[quote:-quote])
        value = ast.literal_eval(text)
        # a lone surrogate is legal in Python's strings and in no encoding
        return s.Const(value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else text)

    def concatenated(self, node: cst.ConcatenatedString) -> s.Expr:
        left, right = self.expr(node.left), self.expr(node.right)
        if isinstance(left, s.Const) and isinstance(right, s.Const):
            return s.Const(str(left.value) + str(right.value))
        parts: list[s.Expr] = []
        for part in (left, right):
            parts += part.parts if isinstance(part, s.Format) else [part]
        return s.Format(parts)

    def formatted(self, node: cst.FormattedString | cst.TemplatedString) -> s.Expr:
        return s.Format(self.format_parts(node.parts))

    def format_parts(
        self, nodes: Sequence[cst.BaseFormattedStringContent | cst.BaseTemplatedStringContent]
    ) -> list[s.Expr]:
        parts: list[s.Expr] = []
        for node in nodes:
            if isinstance(node, (cst.FormattedStringExpression, cst.TemplatedStringExpression)):
                parts.append(self.expr(node.expression))
                if node.format_spec:
                    parts += self.format_parts(node.format_spec)
            elif isinstance(node, (cst.FormattedStringText, cst.TemplatedStringText)):
                parts.append(s.Const(node.value))
        return parts

    def integer(self, node: cst.Integer) -> s.Expr:
        try:
            value = int(node.value, 0) if node.value.strip("0_") else 0
        except ValueError:  # more digits than Python reads
            return s.Const(node.value)
        return s.Const(value if -(2**63) <= value < 2**63 else float(value) if value < 2**1000 else node.value)

    def float_(self, node: cst.Float) -> s.Expr:
        return s.Const(float(node.value))

    def elements(self, nodes: Sequence[cst.BaseElement]) -> list[s.Expr]:
        return [s.Star(self.expr(n.value)) if type(n) is cst.StarredElement else self.expr(n.value) for n in nodes]

    def dict_(self, node: cst.Dict) -> s.Expr:
        keys: list[s.Expr | None] = []
        values: list[s.Expr] = []
        for element in node.elements:
            keys.append(self.expr(element.key) if isinstance(element, cst.DictElement) else None)
            values.append(self.expr(element.value))
        return s.Map(keys, values)

    def binary(self, node: cst.BinaryOperation) -> s.Expr:
        left = self.expr(node.left)
        return s.Bin(_BINARY[type(node.operator)], left, self.expr(node.right))

    def boolean(self, node: cst.BooleanOperation) -> s.Expr:
        left = self.expr(node.left)
        return s.Bool("and" if type(node.operator) is cst.And else "or", left, self.expr(node.right))

    def comparison(self, node: cst.Comparison) -> s.Expr:
        left = self.expr(node.left)
        rights = [self.expr(c.comparator) for c in node.comparisons]
        return s.Cmp(left, [_COMPARE[type(c.operator)] for c in node.comparisons], rights)

    def unary(self, node: cst.UnaryOperation) -> s.Expr:
        value = self.expr(node.expression)
        op = _UNARY[type(node.operator)]
        if op == "-" and isinstance(value, s.Const) and type(value.value) in (int, float):
            return s.Const(-value.value)  # type: ignore[operator]
        return s.Unary(op, value)

    def conditional(self, node: cst.IfExp) -> s.Expr:
        body = self.expr(node.body)
        test = self.expr(node.test)
        return s.Cond(body, test, self.expr(node.orelse))

    def lambda_(self, node: cst.Lambda) -> s.Expr:
        line = self.only_line or self.lines.expression(LAMBDA, node)
        params = self.params(node.params)
        return s.Lambda(params, self.expr(node.body), line)

    def comprehension(self, kind: str, node: Any) -> s.Expr:
        element = self.expr(node.elt)
        return s.Comp(kind, element, None, self.gens(node.for_in))

    def dict_comprehension(self, node: cst.DictComp) -> s.Expr:
        key = self.expr(node.key)
        value = self.expr(node.value)
        return s.Comp("dict", value, key, self.gens(node.for_in))

    def gens(self, node: cst.CompFor | None) -> list[s.Gen]:
        out = []
        while node is not None:
            target = self.expr(node.target)
            iterated = self.expr(node.iter)
            out.append(s.Gen(target, iterated, [self.expr(test.test) for test in node.ifs]))
            node = node.inner_for_in
        return out

    def walrus(self, node: cst.NamedExpr) -> s.Expr:
        target = cst.ensure_type(node.target, cst.Name).value
        return s.Walrus(target, self.expr(node.value))

    def yield_(self, node: cst.Yield) -> s.Expr:
        self.generator[-1] = True
        if isinstance(node.value, cst.From):
            return s.Await("yield from", self.expr(node.value.item))
        return s.Await("yield", self.optional(node.value))

    def annotation(self, node: cst.Annotation | None) -> s.Expr | None:
        return None if node is None else self.quoted(self.expr(node.annotation))

    def quoted(self, value: s.Expr) -> s.Expr:
        """A quoted annotation is parsed, also inside a subscript (``Optional["Req"]``)."""
        if isinstance(value, s.Const) and isinstance(value.value, str):
            try:
                check_expression(value.value.strip())
                return _Converter(_NoLines()).expr(cst.parse_expression(value.value.strip()))
            except Exception:  # prose in an annotation: it names no type
                return value
        if isinstance(value, s.Sub):
            literal = isinstance(value.value, s.Name) and value.value.id == "Literal"
            return value if literal else s.Sub(value.value, self.quoted(value.index), value.line)
        if isinstance(value, s.Seq):
            return s.Seq(value.kind, [self.quoted(item) for item in value.items])
        if isinstance(value, s.Bin):
            return s.Bin(value.op, self.quoted(value.left), self.quoted(value.right))
        return value

    # --- statements ---

    def body(
        self, nodes: Sequence[cst.BaseStatement | cst.BaseSmallStatement | cst.BaseCompoundStatement]
    ) -> list[s.Stmt]:
        out: list[s.Stmt] = []
        for node in nodes:
            if type(node) is cst.SimpleStatementLine:
                self.small_statements(node.body, out)
            else:
                out.append(self.compound[type(node)](node))
        return out

    def block(self, node: cst.BaseSuite) -> list[s.Stmt]:
        if isinstance(node, cst.SimpleStatementSuite):
            out: list[s.Stmt] = []
            self.small_statements(node.body, out)
            return out
        return self.body(cst.ensure_type(node, cst.IndentedBlock).body)

    def small_statements(self, nodes: Sequence[cst.BaseSmallStatement], out: list[s.Stmt]) -> None:
        for node in nodes:
            line = self.enter(node).first
            if type(node) is cst.Import:
                for alias in node.names:
                    out.append(s.Import(_dotted(alias.name), _asname(alias), line))
                continue
            statement = self.small[type(node)](node, line)
            if statement is not None:
                out.append(statement)

    def expression_statement(self, node: cst.Expr, line: int) -> s.Stmt | None:
        if type(node.value) is cst.SimpleString:
            return None  # a docstring
        value = self.expr(node.value)
        return None if isinstance(value, s.Const) else s.ExprStmt(value, line)

    def assign(self, node: cst.Assign, line: int) -> s.Stmt:
        targets = [self.expr(target.target) for target in node.targets]
        return s.Assign(targets, self.expr(node.value), line)

    def annotated(self, node: cst.AnnAssign, line: int) -> s.Stmt:
        target = self.expr(node.target)
        annotation = self.quoted(self.expr(node.annotation.annotation))
        return s.AnnAssign(target, annotation, self.optional(node.value), line)

    def augmented(self, node: cst.AugAssign, line: int) -> s.Stmt:
        target = self.expr(node.target)
        return s.AugAssign(target, _AUGMENTED[type(node.operator)], self.expr(node.value), line)

    def return_(self, node: cst.Return, line: int) -> s.Stmt:
        return s.Return(self.optional(node.value), line)

    def raise_(self, node: cst.Raise, line: int) -> s.Stmt:
        value = self.optional(node.exc)
        if node.cause is not None:
            self.expr(node.cause.item)
        return s.Raise(value, line)

    def assert_(self, node: cst.Assert, line: int) -> s.Stmt:
        test = self.expr(node.test)
        if node.msg is not None:
            self.expr(node.msg)
        return s.Assert(test, line)

    def delete(self, node: cst.Del, line: int) -> s.Stmt:
        target = self.expr(node.target)
        return s.Delete(target.items if isinstance(target, s.Seq) else [target], line)

    def type_alias(self, node: cst.TypeAlias, line: int) -> s.Stmt:
        return s.Assign([s.Name(node.name.value)], self.expr(node.value), line)

    def import_from(self, node: cst.ImportFrom, line: int) -> s.Stmt:
        module = "" if node.module is None else _dotted(node.module)
        names: list[tuple[str, str | None]] = [("*", None)]
        if not isinstance(node.names, cst.ImportStar):
            names = [(_dotted(alias.name), _asname(alias)) for alias in node.names]
        return s.ImportFrom(module, len(node.relative), names, line)

    def if_(self, node: cst.If) -> s.Stmt:
        line = self.enter(node).first
        test = self.expr(node.test)
        body = self.block(node.body)
        orelse: list[s.Stmt] = []
        if isinstance(node.orelse, cst.If):
            orelse = [self.if_(node.orelse)]
        elif node.orelse is not None:
            orelse = self.block(node.orelse.body)
        return s.If(test, body, orelse, line)

    def for_(self, node: cst.For) -> s.Stmt:
        line = self.enter(node).first
        target = self.expr(node.target)
        iterated = self.expr(node.iter)
        body = self.block(node.body)
        return s.For(target, iterated, body, self.block(node.orelse.body) if node.orelse else [], line)

    def while_(self, node: cst.While) -> s.Stmt:
        line = self.enter(node).first
        test = self.expr(node.test)
        body = self.block(node.body)
        return s.While(test, body, self.block(node.orelse.body) if node.orelse else [], line)

    def with_(self, node: cst.With) -> s.Stmt:
        line = self.enter(node).first
        items = []
        for item in node.items:
            value = self.expr(item.item)
            items.append(s.WithItem(value, self.optional(item.asname.name) if item.asname else None))
        return s.With(items, self.block(node.body), line)

    def try_(self, node: cst.Try | cst.TryStar) -> s.Stmt:
        line = self.enter(node).first
        body = self.block(node.body)
        handlers = []
        for handler in node.handlers:
            self.enter(handler)
            caught = self.optional(handler.type)
            name = cst.ensure_type(handler.name.name, cst.Name).value if handler.name else None
            handlers.append(s.Handler(caught, name, self.block(handler.body)))
        orelse = self.block(node.orelse.body) if node.orelse else []
        return s.Try(body, handlers, orelse, self.block(node.finalbody.body) if node.finalbody else [], line)

    def params(self, node: cst.Parameters) -> list[s.Param]:
        out = [self.param(p, "/") for p in node.posonly_params] + [self.param(p, "") for p in node.params]
        if isinstance(node.star_arg, cst.Param):
            out.append(self.param(node.star_arg, "*"))
        out += [self.param(p, "=") for p in node.kwonly_params]
        if node.star_kwarg is not None:
            out.append(self.param(node.star_kwarg, "**"))
        return out

    def param(self, node: cst.Param, kind: str) -> s.Param:
        annotation = self.annotation(node.annotation)
        return s.Param(node.name.value, annotation, self.optional(node.default), kind)

    def function(self, node: cst.FunctionDef) -> s.Stmt:
        lines = self.enter(node)
        decorators = [self.expr(d.decorator) for d in node.decorators]
        self.type_parameters(node.type_parameters)
        params = self.params(node.params)
        returns = self.annotation(node.returns)
        self.generator.append(False)
        body = s.encode_body(self.block(node.body))
        generator = self.generator.pop()
        return s.Func(
            node.name.value,
            params,
            decorators,
            returns,
            body,
            lines.first,
            lines.last,
            node.asynchronous is not None,
            generator,
        )

    def class_(self, node: cst.ClassDef) -> s.Stmt:
        lines = self.enter(node)
        decorators = [self.expr(d.decorator) for d in node.decorators]
        self.type_parameters(node.type_parameters)
        bases = [s.Star(self.expr(a.value)) if a.star else self.expr(a.value) for a in node.bases]
        keywords = [self.arg(a) for a in node.keywords]
        return s.Class(node.name.value, bases, keywords, decorators, self.block(node.body), lines.first, lines.last)

    def type_parameters(self, node: cst.TypeParameters | None) -> None:
        for param in node.params if node else ():
            if isinstance(param.param, cst.TypeVar) and param.param.bound is not None:
                self.expr(param.param.bound)
            if param.default is not None:
                self.expr(param.default)

    def match(self, node: cst.Match) -> s.Stmt:
        line = self.enter(node).first
        subject = self.expr(node.subject)
        cases = []
        for case in node.cases:
            self.enter(case)
            values: list[s.Expr] = []
            names: list[str] = []
            self.pattern(case.pattern, values, names)
            guard = self.optional(case.guard)
            cases.append(s.Case(values, names, guard, self.block(case.body)))
        return s.Match(subject, cases, line)

    def pattern(self, node: Any, values: list[s.Expr], names: list[str]) -> None:
        """The expressions that a pattern compares with, and the names it binds."""
        if isinstance(node, cst.MatchValue):
            values.append(self.expr(node.value))
        elif isinstance(node, cst.MatchSingleton):
            values.append(self.name(node.value))
        elif isinstance(node, cst.MatchClass):
            values.append(self.expr(node.cls))
            for positional in node.patterns:
                self.pattern(positional.value, values, names)
            for keyword in node.kwds:
                self.pattern(keyword.pattern, values, names)
        elif isinstance(node, cst.MatchAs):
            if node.pattern is not None:
                self.pattern(node.pattern, values, names)
            if node.name is not None:
                names.append(node.name.value)
        elif isinstance(node, cst.MatchOr):
            for option in node.patterns:
                self.pattern(option.pattern, values, names)
        elif isinstance(node, cst.MatchMapping):
            for pair in node.elements:
                values.append(self.expr(pair.key))
                self.pattern(pair.pattern, values, names)
            if node.rest is not None:
                names.append(node.rest.value)
        elif isinstance(node, (cst.MatchList, cst.MatchTuple)):
            for item in node.patterns:
                self.pattern(item if isinstance(item, cst.MatchStar) else item.value, values, names)
        elif isinstance(node, cst.MatchStar) and node.name is not None:
            names.append(node.name.value)


class _NoLines:
    """For a quoted annotation: its nodes are on no line of their own."""

    def enter(self, node: cst.CSTNode) -> Lines:
        raise NotImplementedError("an annotation has no statements")

    def expression(self, kind: int, node: cst.CSTNode) -> int:
        return 0


def _dotted(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return cst.ensure_type(node, cst.Name).value


def _asname(node: cst.ImportAlias) -> str | None:
    return None if node.asname is None else cst.ensure_type(node.asname.name, cst.Name).value
