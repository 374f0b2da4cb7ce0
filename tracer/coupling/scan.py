"""Walks the statements of one function once: ``scan`` gives its facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sgltrace.coupling.expressions import ExpressionScanner, Typer
from sgltrace.coupling.facts import Branch, Facts, Refusal, annotation_class
from sgltrace.coupling.predicates import Predicates
from sgltrace.coupling.regime import last_name
from sgltrace.index.facts import syntax as s


def scan(
    function: str,
    params: list[s.Param],
    body: list[s.Stmt],
    owner_class: str | None,
    predicates: Predicates,
    typer: Typer | None = None,
    field_classes: Mapping[str, str] | None = None,
) -> Facts:
    """The facts of a function.

    ``owner_class`` is the class that it is a method of; ``field_classes`` maps a field that holds a list, or an
    object, to the class of what it holds, where no ``typer`` tells.
    """
    scanner = _StatementScanner(function, params, owner_class, predicates, typer, field_classes)
    scanner.block(body)
    return scanner.facts


class _StatementScanner(ExpressionScanner):
    def block(self, body: list[s.Stmt]) -> None:
        depth = len(self._guards)
        for statement in body:
            self._statement(statement)
        self._drop(depth)

    def _statement(self, node: s.Stmt) -> None:
        match node:
            case s.ExprStmt(value=value, line=line):
                self._expression(value, line)
            case s.Assign(targets=targets, value=value, line=line):
                self._expression(value, line)
                for target in targets:
                    self._target(target, value, line, "assign")
            case s.AnnAssign(target=target, annotation=annotation, value=value, line=line):
                if isinstance(target, s.Name) and (cls := annotation_class(annotation)):
                    self._classes[target.id] = cls
                if value is not None:
                    self._expression(value, line)
                    self._target(target, value, line, "assign")
            case s.AugAssign(target=target, value=value, line=line):
                self._expression(value, line)
                if isinstance(target, s.Name):
                    self.facts.augmented.append((line, target.id, value))
                self._target(target, value, line, "augment")
            case s.If(test=test, body=body, orelse=orelse, line=line):
                self._branch(test, body, orelse, line)
            case s.For(target=target, iter=iter_, body=body, orelse=orelse, line=line):
                self._expression(iter_, line)
                self._loop_target(target, iter_)
                self._loops += 1
                self.block(body)
                self._loops -= 1
                self.block(orelse)
            case s.While(test=test, body=body, orelse=orelse, line=line):
                self._loops += 1
                self._branch(test, body, orelse, line)
                self._loops -= 1
            case s.With(items=items, body=body, line=line):
                for item in items:
                    self._expression(item.value, line)
                    if item.target is not None:
                        self._target(item.target, item.value, line, "assign")
                for statement in body:  # guards set inside by early exits hold after it, too
                    self._statement(statement)
            case s.Try(body=body, handlers=handlers, orelse=orelse, final=final):
                for part in (body, *(handler.body for handler in handlers), orelse, final):
                    self.block(part)
            case s.Match(subject=subject, cases=cases, line=line):
                self._expression(subject, line)
                for case in cases:
                    self.block(case.body)
            case s.Delete(targets=targets, line=line):
                for target in targets:
                    if isinstance(target, s.Attr):
                        self._access(target, line, "delete", True)
            case s.Return() | s.Raise() | s.Assert():
                self._exit(node)
            case _:
                return

    def _exit(self, node: s.Return | s.Raise | s.Assert) -> None:
        line, refusals = node.line, self.facts.refusals
        match node:
            case s.Return(value=value):
                if value is None:
                    return
                self._expression(value, line)
                self.facts.returns.append((line, value, self._regime))
                if self._guards and _is_text(value):
                    refusals.append(Refusal(self._function, line, "reason", self._tests(), self._regime, value))
            case s.Raise(value=raised):
                refusals.append(Refusal(self._function, line, "raise", self._tests(), self._regime, raised))
                if raised is not None:
                    self._expression(raised, line)
            case s.Assert(test=test):
                tests = (*self._tests(), (test, False))
                refusals.append(Refusal(self._function, line, "assert", tests, self._regime, None))
                self._expression(test, line, "test")

    def _branch(self, test: s.Expr, body: list[s.Stmt], orelse: list[s.Stmt], line: int) -> None:
        reading = self._predicates.read(test, self._local)
        self._expression(test, line, "test")
        leaves_true, leaves_false = _leaves(body), _leaves(orelse)
        if reading.known:
            leaves = (reading.when_true if leaves_true else None) or (reading.when_false if leaves_false else None)
            sides = _extent(body), _extent(orelse)
            self.facts.branches.append(Branch(self._function, line, reading, test, *sides, leaves))
        if _compares_with_zero(test, self._words.widths):
            self.facts.width_tests.append((line, test))
        depth = len(self._guards)
        self._push(reading, True, line, test)
        self.block(body)
        self._drop(depth)
        if orelse:
            self._push(reading, False, line, test)
            self.block(orelse)
            self._drop(depth)
        if leaves_true and not leaves_false:
            self._push(reading, False, line, test)
        elif leaves_false and not leaves_true and orelse:
            self._push(reading, True, line, test)

    def _target(self, node: s.Expr, value: s.Expr | None, line: int, how: str) -> None:
        match node:
            case s.Name(id=name):
                if value is not None and how == "assign":
                    self._local[name] = value
                    if (cls := self._class_of(value)) is not None:
                        self._classes[name] = cls
            case s.Attr():
                self._access(node, line, how, True, value)
                self._expression(node.value, line)
            case s.Sub(value=base, index=index):
                if isinstance(base, s.Attr):
                    self._access(base, line, "item", True, value)
                    self._expression(base.value, line)
                else:
                    self._expression(base, line)
                self._expression(index, line)
            case s.Seq(items=items):
                values: list[s.Expr | None] = [value] * len(items)
                if isinstance(value, s.Seq) and len(value.items) == len(items):
                    values = list(value.items)
                for item, part in zip(items, values, strict=True):
                    if isinstance(item, s.Name) and part is value:
                        continue  # one of several returned values: what it is, is not known here
                    self._target(item, part, line, how)
            case s.Star(value=inner):
                self._target(inner, None, line, how)


def _compares_with_zero(test: s.Expr, widths: frozenset[str]) -> bool:
    """Whether a condition, or the first part of one, says that there are no draft steps."""
    match test:
        case s.Bool(op="and", left=left):
            return _compares_with_zero(left, widths)
        case s.Cmp(left=left, ops=["==" | "<="], rights=[s.Const(value=0)]):
            return last_name(left) in widths
    return False


def _is_text(value: s.Expr) -> bool:
    match value:
        case s.Const(value=str()) | s.Format():
            return True
        case s.Bin(op="+", left=left):
            return _is_text(left)
    return False


def _leaves(body: list[s.Stmt]) -> bool:
    """Whether a block always ends in a return, a raise, or the end of the loop's turn."""
    if not body:
        return False
    match body[-1]:
        case s.Return() | s.Raise() | s.Jump():
            return True
        case s.If(body=inner, orelse=orelse):
            return _leaves(inner) and _leaves(orelse)
        case s.With(body=inner):
            return _leaves(inner)
    return False


def deep(body: list[s.Stmt]) -> Iterator[s.Stmt]:
    """The statements of a block, those of inner blocks included."""
    for statement in body:
        yield statement
        for block in s.blocks(statement):
            yield from deep(block)


def _extent(body: list[s.Stmt]) -> tuple[int, int]:
    lines = [line for statement in deep(body) if (line := getattr(statement, "line", 0))]
    return (min(lines), max(lines)) if lines else (0, 0)
