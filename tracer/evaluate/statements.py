"""Statements, in their order; where a condition is unknown both sides run, and what they leave is joined."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sgltrace.evaluate.expressions import BINARY
from sgltrace.evaluate.frame import Frame
from sgltrace.evaluate.functions import LazyImport, Opaque, Scope
from sgltrace.evaluate.journal import CONTENT
from sgltrace.evaluate.modules import bound_by
from sgltrace.evaluate.outcomes import (
    BREAK,
    CONTINUE,
    NORMAL,
    Alternative,
    Jump,
    Normal,
    Outcome,
    Raised,
    Return,
    Split,
    compose,
    settle,
)
from sgltrace.evaluate.unknown import ABSENT, Maybe, Unknown, describe

if TYPE_CHECKING:
    from sgltrace.evaluate.machine import Machine

MAX_TURNS = 2_000


class Statements:
    """``run`` for a block; one method for each kind of statement."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._journal = machine.journal
        self._methods: dict[type, Callable[[Any, Frame], Outcome]] = {
            getattr(ast, name[1:]): getattr(self, name)
            for name in dir(self)
            if name[0] == "_" and name[1].isupper() and hasattr(ast, name[1:])
        }

    def run(self, body: list[ast.stmt], frame: Frame) -> Outcome:
        """Run statements until one of them leaves the block."""
        for position, statement in enumerate(body):
            outcome = self.one(statement, frame)
            if outcome is NORMAL:
                continue
            if isinstance(outcome, Split):
                rest = body[position + 1 :]
                return self.go_on(outcome, lambda rest=rest: self.run(rest, frame))  # type: ignore[misc]
            return outcome
        return NORMAL

    def one(self, statement: ast.stmt, frame: Frame) -> Outcome:
        """Run one statement. An exception that passes is marked with the place where it arose."""
        self._machine.spend()
        frame.line = statement.lineno
        method = self._methods.get(type(statement))
        if method is None:
            return NORMAL
        try:
            return method(statement, frame)
        except (Exception, SystemExit) as error:
            self._machine.mark(error, frame, statement.lineno)
            if self._machine.lenient is None or not self._machine.lenient.passes_over(error, statement, frame):
                raise
            for name in bound_by(statement):
                if name not in frame.locals:
                    self._bind(name, Unknown(f"{frame.module.name}.{name}"), frame)
            return NORMAL

    def go_on(self, split: Split, rest: Callable[[], Outcome], after: type[Outcome] = Normal) -> Outcome:
        """Run ``rest`` for the end that is not an exit, and join what then is of one kind."""
        ends: list[Alternative] = []
        for end in split.alternatives:
            if not isinstance(end.outcome, after):
                ends.append(end)
                continue
            ends += self._attempt(rest, end.delta, end.decided)
        return settle(self._journal, split.condition, ends, self._machine.decided)

    def _attempt(self, run: Callable[[], Outcome], delta: Any, decided: dict[str, bool]) -> list[Alternative]:
        machine = self._machine
        machine.spend(20)
        before = dict(machine.decided)
        self._journal.begin()
        try:
            self._journal.apply(delta)
            machine.decided.update(decided)
            outcome: Outcome
            try:
                outcome = run()
            except (Exception, SystemExit) as error:
                outcome = Raised(error)
        finally:
            changed = self._journal.take_back()
            after, machine.decided = machine.decided, before
        learnt = {name: value for name, value in after.items() if before.get(name) is not value}
        return compose(outcome, changed, learnt)

    def fork(
        self, condition: Unknown, left: Callable[[], Outcome], right: Callable[[], Outcome], frame: Frame
    ) -> Outcome:
        """Run ``left`` as if the condition held and ``right`` as if not; join the ends."""
        ends = self._attempt(left, {}, self._machine.supposing(condition, True))
        others = self._attempt(right, {}, self._machine.supposing(condition, False))
        return self._either(condition, ends, others, frame)

    def _either(self, condition: Unknown, ends: list[Alternative], others: list[Alternative], frame: Frame) -> Outcome:
        machine = self._machine
        machine.forks += 1
        errors = [end for end in (*ends, *others) if isinstance(end.outcome, Raised)]
        if not errors or frame.tries:
            return self._raise_alone(settle(self._journal, condition, [*ends, *others], machine.decided))
        going = [end for end in (*ends, *others) if not isinstance(end.outcome, Raised)]
        if not going:
            first = errors[0]
            self._journal.apply(first.delta)
            raise first.outcome.error  # type: ignore[attr-defined]
        # Which of the two comes is not known: the refusal is told, and what follows is for those who are not refused.
        for end in errors:
            machine.may_refuse(end.outcome.error, condition, frame)  # type: ignore[attr-defined]
        return settle(self._journal, condition, going, machine.decided)

    def _raise_alone(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Raised):
            raise outcome.error
        return outcome

    # --- simple statements ---------------------------------------------------------------------------------

    def _Expr(self, node: ast.Expr, frame: Frame) -> Outcome:
        if not isinstance(node.value, ast.Constant):
            self._machine.expressions.eval(node.value, frame)
        return NORMAL

    def _Assign(self, node: ast.Assign, frame: Frame) -> Outcome:
        value = self._machine.expressions.eval(node.value, frame)
        for target in node.targets:
            self.assign(target, value, frame)
        return NORMAL

    def _AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> Outcome:
        if node.value is not None:
            self.assign(node.target, self._machine.expressions.eval(node.value, frame), frame)
        if isinstance(node.target, ast.Name) and (frame.is_class or frame.locals is frame.module.scope):
            annotations = frame.locals.setdefault("__annotations__", {})
            annotations[node.target.id] = self._machine.expressions.annotation(node.annotation, frame)
        return NORMAL

    def _AugAssign(self, node: ast.AugAssign, frame: Frame) -> Outcome:
        load = _as_load(node.target)
        symbol, function = BINARY[type(node.op)]
        old = self._machine.expressions.eval(load, frame)
        value = self._machine.expressions.eval(node.value, frame)
        if isinstance(old, list) and symbol == "+":
            self._journal.note(CONTENT, old)
            old.extend(self._machine.expressions.iterate(value) or [Unknown(f"*{describe(value)}")])
            return NORMAL
        if isinstance(old, (set, dict)) and symbol == "|" and not isinstance(value, Unknown):
            self._journal.note(CONTENT, old)
            old.update(value)
            return NORMAL
        self.assign(node.target, self._machine.expressions.binary(symbol, function, old, value), frame)
        return NORMAL

    def assign(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Bind a target: a name, an attribute, an element, or several of them."""
        if isinstance(target, ast.Name):
            self._bind(target.id, value, frame)
        elif isinstance(target, ast.Attribute):
            holder = self._machine.expressions.eval(target.value, frame)
            self._machine.set_attribute(holder, target.attr, value, frame)
        elif isinstance(target, ast.Subscript):
            holder = self._machine.expressions.eval(target.value, frame)
            self._machine.set_item(holder, self._machine.expressions.eval(target.slice, frame), value, frame)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, value, frame)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, frame)

    def _unpack(self, targets: list[ast.expr], value: Any, frame: Frame) -> None:
        if isinstance(value, Maybe):
            value = value.value
        if isinstance(value, Unknown) and value.options and all(isinstance(o, tuple) for o in value.options):
            for position, target in enumerate(targets):
                self.assign(target, self._machine.expressions.item(value, position), frame)
            return
        items = self._machine.expressions.iterate(value)
        if items is None:
            for position, target in enumerate(targets):
                self.assign(target, self._machine.expressions.item(value, position), frame)
            return
        star = next((i for i, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
        if star is not None:
            tail = len(targets) - star - 1
            items = [*items[:star], items[star : len(items) - tail], *items[len(items) - tail :]]
        if len(items) != len(targets):
            few = "not enough" if len(items) < len(targets) else "too many"
            raise ValueError(f"{few} values to unpack (expected {len(targets)})")
        for target, item in zip(targets, items, strict=True):
            self.assign(target, item, frame)

    def _bind(self, name: str, value: Any, frame: Frame) -> None:
        scope: Scope = frame.locals
        if name in frame.globals:
            scope = frame.module.scope
        elif name in frame.nonlocals:
            scope = next((outer for outer in frame.enclosing if name in outer), frame.locals)
        self._journal.set_item(scope, name, value)

    def _Delete(self, node: ast.Delete, frame: Frame) -> Outcome:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._bind(target.id, ABSENT, frame)
            elif isinstance(target, ast.Subscript):
                holder = self._machine.expressions.eval(target.value, frame)
                key = self._machine.expressions.eval(target.slice, frame)
                if not isinstance(holder, Unknown):
                    self._journal.note(CONTENT, holder)
                    del holder[key]
            elif isinstance(target, ast.Attribute):
                holder = self._machine.expressions.eval(target.value, frame)
                if not isinstance(holder, Unknown):
                    self._journal.set_attribute(holder, target.attr, ABSENT)
        return NORMAL

    def _Global(self, node: ast.Global, frame: Frame) -> Outcome:
        frame.globals.update(node.names)
        return NORMAL

    def _Nonlocal(self, node: ast.Nonlocal, frame: Frame) -> Outcome:
        frame.nonlocals.update(node.names)
        return NORMAL

    def _Return(self, node: ast.Return, frame: Frame) -> Outcome:
        return Return(None if node.value is None else self._machine.expressions.eval(node.value, frame))

    def _Break(self, node: ast.Break, frame: Frame) -> Outcome:
        return BREAK

    def _Continue(self, node: ast.Continue, frame: Frame) -> Outcome:
        return CONTINUE

    def _Raise(self, node: ast.Raise, frame: Frame) -> Outcome:
        if node.exc is None:
            error = (
                self._machine.handling[-1] if self._machine.handling else RuntimeError("No active exception to reraise")
            )
            raise error
        value = self._machine.expressions.eval(node.exc, frame)
        if isinstance(value, type) and issubclass(value, BaseException):
            value = value()
        if not isinstance(value, BaseException):
            value = RuntimeError(describe(value))
        raise value

    def _Assert(self, node: ast.Assert, frame: Frame) -> Outcome:
        truth = self._machine.truth(self._machine.expressions.eval(node.test, frame))

        def refuse() -> Outcome:
            if node.msg is None:
                raise AssertionError
            raise AssertionError(self._machine.expressions.eval(node.msg, frame))

        if isinstance(truth, Unknown):
            return self.fork(truth, lambda: NORMAL, refuse, frame)
        return NORMAL if truth else refuse()

    # --- imports -------------------------------------------------------------------------------------------

    def _Import(self, node: ast.Import, frame: Frame) -> Outcome:
        for alias in node.names:
            self._machine.modules.import_module(alias.name, frame)
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            self._bind(alias.asname or whole, LazyImport(whole, None), frame)
        return NORMAL

    def _ImportFrom(self, node: ast.ImportFrom, frame: Frame) -> Outcome:
        module = self._machine.modules.absolute(frame.module, node.module or "", node.level)
        self._machine.modules.check_import(module, frame)
        for alias in node.names:
            if alias.name == "*":
                self._machine.modules.star(frame, module)
                continue
            name = alias.asname or alias.name
            self._machine.modules.note_import(frame, module, alias.name, name)
            self._bind(name, LazyImport(module, alias.name), frame)
        return NORMAL

    # --- definitions ---------------------------------------------------------------------------------------

    def _FunctionDef(self, node: ast.FunctionDef, frame: Frame) -> Outcome:
        value: Any = self._machine.expressions.function(node, frame, node.name)
        for decorator in reversed(node.decorator_list):
            value = self._machine.decorate(self._machine.expressions.eval(decorator, frame), value, frame)
        self._bind(node.name, value, frame)
        return NORMAL

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef, frame: Frame) -> Outcome:
        expressions = self._machine.expressions
        bases = tuple(
            Opaque if isinstance(base, Unknown) else base
            for base in (expressions.eval(base, frame) for base in node.bases)
        )
        bases = tuple(dict.fromkeys(base for base in bases if base is not object)) if Opaque in bases else bases
        keywords = {k.arg: expressions.eval(k.value, frame) for k in node.keywords if k.arg is not None}
        keywords = {name: value for name, value in keywords.items() if not isinstance(value, Unknown)}
        cell: Scope = {}

        def fill(namespace: Scope) -> None:
            inner = Frame(frame.module, namespace, (cell, *frame.inner_scopes()), frame.function, caller=frame)
            inner.prefix = f"{frame.prefix}{node.name}."
            inner.is_class = True
            namespace["__module__"] = frame.module.name
            namespace["__qualname__"] = f"{frame.prefix}{node.name}"
            self.run(node.body, inner)

        if Opaque in bases:
            keywords = {}
            bases = tuple(base for base in bases if isinstance(base, type) and base.__init_subclass__ is not None)
        made: Any = types.new_class(node.name, bases, keywords, fill)
        cell["__class__"] = made
        for decorator in reversed(node.decorator_list):
            made = self._machine.decorate(expressions.eval(decorator, frame), made, frame)
        self._bind(node.name, made, frame)
        return NORMAL

    # --- control flow --------------------------------------------------------------------------------------

    def _If(self, node: ast.If, frame: Frame) -> Outcome:
        truth = self._machine.truth(self._machine.expressions.eval(node.test, frame))
        if isinstance(truth, Unknown):
            return self.fork(
                truth,
                lambda: self._under(node, node.body, "", frame),
                lambda: self._under(node, node.orelse, "not ", frame),
                frame,
            )
        return self._under(node, node.body if truth else node.orelse, "" if truth else "not ", frame)

    def _under(self, node: ast.If, body: list[ast.stmt], word: str, frame: Frame) -> Outcome:
        if not body:
            return NORMAL
        frame.conditions.append((node.test, word, node.lineno))  # type: ignore[arg-type]
        try:
            return self.run(body, frame)
        finally:
            frame.conditions.pop()

    def _For(self, node: ast.For, frame: Frame) -> Outcome:
        values = self._machine.expressions.eval(node.iter, frame)
        items = self._machine.expressions.iterate(values)
        if items is None:
            some = Unknown(
                f"{describe(values)} has elements", (), values.roots if isinstance(values, Unknown) else None
            )
            items = [Maybe(Unknown(f"an element of {describe(values)}", (), some.roots), some)]
        return self._turns(node, items, 0, frame)

    def _turns(self, node: ast.For, items: list[Any], first: int, frame: Frame) -> Outcome:
        for position in range(first, len(items)):
            item = items[position]

            def turn(value: Any) -> Outcome:
                self.assign(node.target, value, frame)
                return _after_turn(self.run(node.body, frame))

            if isinstance(item, Maybe):
                truth = self._machine.truth(item.condition)
                if truth is False:
                    continue
                element = item.value
                outcome = turn(element) if truth is True else self._doubtful_turn(truth, turn, element, node, frame)
            else:
                outcome = turn(item)
            if isinstance(outcome, Split):
                later = position + 1
                return self._leave_loop(self.go_on(outcome, lambda later=later: self._turns(node, items, later, frame)))  # type: ignore[misc]
            if outcome is not NORMAL:
                return NORMAL if outcome is BREAK else outcome
        return self.run(node.orelse, frame)

    def _doubtful_turn(
        self, truth: Unknown, turn: Callable[[Any], Outcome], element: Any, node: ast.For, frame: Frame
    ) -> Outcome:
        """A turn for an element that may not be there. One that leaves nothing behind needs no second side."""
        only = node.body[0]
        if len(node.body) == 1 and isinstance(only, ast.If) and not only.orelse:
            # A search: most elements are passed over, and to pass one over changes nothing.
            self.assign(node.target, element, frame)
            if self._machine.truth(self._machine.expressions.eval(only.test, frame)) is False:
                return NORMAL
        ends = self._attempt(lambda: turn(element), {}, self._machine.supposing(truth, True))
        bound = {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
        if (
            len(ends) == 1
            and ends[0].outcome is NORMAL
            and all(
                kind == "item" and holder == id(frame.locals) and key in bound for kind, holder, key in ends[0].delta
            )
        ):
            self._journal.apply(ends[0].delta)
            return NORMAL
        return self._either(truth, ends, [Alternative(NORMAL, {}, self._machine.supposing(truth, False))], frame)

    def _leave_loop(self, outcome: Outcome) -> Outcome:
        if outcome is BREAK:
            return NORMAL
        if not isinstance(outcome, Split):
            return outcome
        for end in outcome.alternatives:
            if end.outcome is BREAK:
                end.outcome = NORMAL
        return settle(self._journal, outcome.condition, outcome.alternatives, self._machine.decided)

    def _While(self, node: ast.While, frame: Frame) -> Outcome:
        for _ in range(MAX_TURNS):
            truth = self._machine.truth(self._machine.expressions.eval(node.test, frame))
            if truth is False:
                return self.run(node.orelse, frame)
            if isinstance(truth, Unknown):
                return self._leave_loop(
                    self.fork(truth, lambda: _after_turn(self.run(node.body, frame)), lambda: NORMAL, frame)
                )
            outcome = _after_turn(self.run(node.body, frame))
            if isinstance(outcome, Split):
                return self._leave_loop(outcome)
            if outcome is not NORMAL:
                return NORMAL if outcome is BREAK else outcome
        return NORMAL

    def _With(self, node: ast.With, frame: Frame) -> Outcome:
        exits: list[Any] = []
        for item in node.items:
            manager = self._machine.expressions.eval(item.context_expr, frame)
            value: Any = Unknown(describe(manager))
            if not isinstance(manager, Unknown) and hasattr(manager, "__enter__"):
                value = self._machine.call(self._machine.get_attribute(manager, "__enter__"), (), {}, frame)
                exits.append(manager)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, frame)
        try:
            outcome = self.run(node.body, frame)
        except Exception as error:
            for manager in reversed(exits):
                leave = self._machine.get_attribute(manager, "__exit__")
                if self._machine.truth(self._machine.call(leave, (type(error), error, None), {}, frame)) is True:
                    return NORMAL
            raise
        for manager in reversed(exits):
            self._machine.call(self._machine.get_attribute(manager, "__exit__"), (None, None, None), {}, frame)
        return outcome

    def _Try(self, node: ast.Try, frame: Frame) -> Outcome:
        try:
            outcome = self._guarded(node, frame)
        except (Exception, SystemExit):
            self.run(node.finalbody, frame)
            raise
        if not node.finalbody:
            return outcome
        if isinstance(outcome, Split):
            return self.go_on(outcome, lambda: self.run(node.finalbody, frame))
        final = self.run(node.finalbody, frame)
        return outcome if final is NORMAL else final

    def _guarded(self, node: ast.Try, frame: Frame) -> Outcome:
        missing = self._machine.modules.may_be_missing(node, frame)
        if missing is not None:
            truth = self._machine.truth(missing)
            if isinstance(truth, Unknown):
                error = ImportError(f"No module named {missing.name}")
                return self.fork(
                    truth,
                    lambda: self._body_of_try(node, frame),
                    lambda: self._handle(node, error, frame),
                    frame,
                )
            if truth is False:
                return self._handle(node, ModuleNotFoundError(missing.name), frame)
        return self._body_of_try(node, frame)

    def _body_of_try(self, node: ast.Try, frame: Frame) -> Outcome:
        frame.tries += 1
        try:
            outcome = self.run(node.body, frame)
        except (Exception, SystemExit) as error:
            frame.tries -= 1
            return self._handle(node, error, frame)
        frame.tries -= 1
        if isinstance(outcome, Split):
            raised = [end for end in outcome.alternatives if isinstance(end.outcome, Raised)]
            if raised:
                first: BaseException = raised[0].outcome.error  # type: ignore[attr-defined]
                handled = self.go_on(outcome, lambda: self._handle(node, first, frame), Raised)
                return self._raise_alone(handled)
            return self.go_on(outcome, lambda: self.run(node.orelse, frame))
        return outcome if outcome is not NORMAL else self.run(node.orelse, frame)

    def _handle(self, node: ast.Try, error: BaseException, frame: Frame) -> Outcome:
        for handler in node.handlers:
            kinds = None if handler.type is None else self._machine.expressions.eval(handler.type, frame)
            if not _catches(kinds, error):
                continue
            if handler.name:
                self._bind(handler.name, error, frame)
            self._machine.handling.append(error)
            try:
                return self.run(handler.body, frame)
            finally:
                self._machine.handling.pop()
        raise error

    _TryStar = _Try

    def _Match(self, node: ast.Match, frame: Frame) -> Outcome:
        subject = self._machine.expressions.eval(node.subject, frame)
        return self._cases(node.cases, subject, frame)

    def _cases(self, cases: list[ast.match_case], subject: Any, frame: Frame) -> Outcome:
        if not cases:
            return NORMAL
        case, rest = cases[0], cases[1:]
        truth = self._machine.truth(self._matches(case.pattern, subject, frame))
        if truth is not False and case.guard is not None:
            guard = self._machine.truth(self._machine.expressions.eval(case.guard, frame))
            truth = guard if truth is True else (False if guard is False else truth)
        if isinstance(truth, Unknown):
            return self.fork(
                truth, lambda: self.run(case.body, frame), lambda: self._cases(rest, subject, frame), frame
            )
        return self.run(case.body, frame) if truth else self._cases(rest, subject, frame)

    def _matches(self, pattern: ast.pattern, subject: Any, frame: Frame) -> Any:
        if isinstance(pattern, ast.MatchValue):
            return self._machine.expressions._compare(
                ast.Eq(), subject, self._machine.expressions.eval(pattern.value, frame)
            )
        if isinstance(pattern, ast.MatchSingleton):
            return self._machine.expressions._is(subject, pattern.value, True)
        if isinstance(pattern, ast.MatchOr):
            results = [self._machine.truth(self._matches(one, subject, frame)) for one in pattern.patterns]
            return (
                True
                if any(one is True for one in results)
                else next((one for one in results if isinstance(one, Unknown)), False)
            )
        if isinstance(pattern, ast.MatchAs):
            inner = True if pattern.pattern is None else self._matches(pattern.pattern, subject, frame)
            if pattern.name is not None:
                self._bind(pattern.name, subject, frame)
            return inner
        if isinstance(pattern, ast.MatchClass) and not pattern.patterns and not pattern.kwd_patterns:
            return self._machine.builtin("isinstance")(subject, self._machine.expressions.eval(pattern.cls, frame))
        return Unknown(f"{describe(subject)} matches {ast.unparse(pattern)}")


def _after_turn(outcome: Outcome) -> Outcome:
    if outcome is CONTINUE:
        return NORMAL
    if isinstance(outcome, Split):
        for end in outcome.alternatives:
            if isinstance(end.outcome, Jump) and end.outcome is CONTINUE:
                end.outcome = NORMAL
    return outcome


def _as_load(target: ast.expr) -> ast.expr:
    return target  # the interpreter does not look at the context


def _catches(kinds: Any, error: BaseException) -> bool:
    if kinds is None:
        return True
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    return any(isinstance(kind, type) and isinstance(error, kind) for kind in listed)
