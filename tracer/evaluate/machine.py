"""The interpreter: calls, attributes, truth, and what has been decided so far."""

from __future__ import annotations

import ast
import types
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sgltrace.evaluate.builtins import make_builtins
from sgltrace.evaluate.expressions import Elements, Expressions, Undecidable
from sgltrace.evaluate.frame import Frame
from sgltrace.evaluate.functions import External, Function, LazyImport, Module, Opaque
from sgltrace.evaluate.journal import CONTENT, Journal, join_values, negation, read
from sgltrace.evaluate.modules import Modules
from sgltrace.evaluate.outcomes import NORMAL, Alternative, Outcome, Raised, Return, Split, settle
from sgltrace.evaluate.statements import Statements
from sgltrace.evaluate.unknown import Maybe, Undecided, Unknown, combine, describe, has_unknown, one_of, roots_of
from sgltrace.sources import SourceTree

MAX_STEPS = 30_000_000
MAX_DEPTH = 220
MAX_NESTED = 3
MUTATORS = frozenset(
    [
        "append",
        "extend",
        "insert",
        "remove",
        "pop",
        "popitem",
        "clear",
        "sort",
        "reverse",
        "add",
        "discard",
        "update",
        "setdefault",
        "difference_update",
        "intersection_update",
        "symmetric_difference_update",
        "appendleft",
        "popleft",
        "extendleft",
        "rotate",
        "__setitem__",
        "__delitem__",
        "__ior__",
        "__iadd__",
        "move_to_end",
    ]
)
CONTAINERS = (list, dict, set, deque)
HIDDEN = frozenset(
    [
        "__globals__",
        "__code__",
        "__closure__",
        "__builtins__",
        "__subclasses__",
        "__reduce__",
        "__reduce_ex__",
        "__getstate__",
        "__loader__",
        "__spec__",
        "gi_frame",
        "gi_code",
        "f_globals",
        "f_locals",
        "f_builtins",
        "cr_frame",
        "tb_frame",
        "__traceback__",
        "mro",
        "__base__",
        "__self__",
    ]
)
"""What would lead from a value out of the interpreter."""


class OutOfSteps(BaseException):
    """The source runs for longer than it may."""


@dataclass
class Refusal:
    """An exception that may come: whether it does hangs on what is not known."""

    error: BaseException
    condition: Unknown
    function: str
    line: int


class Watcher:
    """Told what happens while the source runs. Subclass it to keep some of it."""

    def wrote(self, holder: Any, name: str, old: Any, value: Any, frame: Frame) -> None:
        """An attribute was set."""

    def called(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any], frame: Frame) -> None:
        """A function of the source is about to run."""

    def logged(self, level: str, text: str, frame: Frame | None) -> None:
        """The source wrote to its log."""

    def environment(self, name: str, value: Any, frame: Frame | None) -> None:
        """The source set an environment variable."""

    def construct(self, made: type, args: tuple[Any, ...], keywords: dict[str, Any], frame: Frame) -> bool:
        """Whether an instance is to be made without looking into its class."""
        return False


class Leniency(Protocol):
    """How a run goes on where much is not known."""

    def follows(self, function: Function) -> bool:
        """Whether a function of the source is looked into."""

    def passes_over(self, error: BaseException, statement: ast.stmt, frame: Frame) -> bool:
        """Whether a statement that failed is passed over."""


class Machine:
    """Runs functions of a source tree. ``assumed`` answers by name what is not known; ``facts`` are what is known of
    modules outside the source (by dotted name); ``readable`` are the files that the source may read, ``named`` the
    paths of which it may ask whether they are there.
    """

    def __init__(
        self,
        tree: SourceTree,
        *,
        environment: Mapping[str, str] | None = None,
        assumed: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
        installed: frozenset[str] = frozenset(),
        readable: frozenset[str] = frozenset(),
        named: frozenset[str] = frozenset(),
        watcher: Watcher | None = None,
    ) -> None:
        self.environment: dict[str, Any] = dict(environment or {})
        self.assumed = dict(assumed or {})
        self.used: dict[str, Any] = {}
        """What was taken from ``assumed`` and ``facts``."""
        self.facts = dict(facts or {})
        self.readable = readable
        self.named = named
        self.watcher = watcher if watcher is not None else Watcher()
        self.journal = Journal()
        self.decided: dict[str, bool] = {}
        self.refusals: list[Refusal] = []
        self.skipped: list[str] = []
        """Statements of modules that could not be run."""
        self.handling: list[BaseException] = []
        self.steps = 0
        self.limit = MAX_STEPS
        self.forks = 0
        self.frame: Frame | None = None
        self.decisions_used = 0
        self.lenient: Leniency | None = None
        self._depth = 0
        self._active: dict[Any, int] = {}
        self.statements = Statements(self)
        self.expressions = Expressions(self)
        self.modules = Modules(self, tree, installed)
        self.builtins: dict[str, Any] = make_builtins(self)

    # --- bounds, and where we are --------------------------------------------------------------------------

    def spend(self, steps: int = 1) -> None:
        """Count steps, by what they cost."""
        self.steps += steps
        if self.steps > self.limit:
            raise OutOfSteps

    def mark(self, error: BaseException, frame: Frame, line: int) -> None:
        """Keep where an exception arose."""
        if not hasattr(error, "sgltrace_place"):
            error.sgltrace_place = (frame.id, line)  # type: ignore[attr-defined]

    def builtin(self, name: str) -> Any:
        """A builtin as the source sees it."""
        return self.builtins[name]

    # --- names ---------------------------------------------------------------------------------------------

    def global_name(self, frame: Frame, name: str) -> Any:
        """What a name means that no scope binds."""
        found = self.modules.from_stars(frame.module, name)
        if found is not None:
            return found[0]
        if name in self.builtins:
            return self.builtins[name]
        raise NameError(f"name {name!r} is not defined")

    def resolve(self, lazy: LazyImport) -> Any:
        """What an import that is used now stands for."""
        return self.modules.resolve(lazy)

    # --- truth ---------------------------------------------------------------------------------------------

    def truth(self, value: Any) -> Any:
        """True, False, or the Unknown that decides."""
        if value is True or value is False:
            return value
        if isinstance(value, Unknown):
            return self._truth_of_unknown(value)
        if isinstance(value, (CONTAINERS, tuple, frozenset)):
            elements = value.values() if isinstance(value, dict) else value
            conditions = []
            for element in elements:
                if not isinstance(element, Maybe):
                    return True
                conditions.append(element.condition)
            if not conditions:
                return False
            return self._truth_of_unknown(conditions[0]) if len(conditions) == 1 else self._any(conditions)
        try:
            return bool(value)
        except Undecided as undecided:
            return undecided.unknown

    def _any(self, conditions: list[Unknown]) -> Any:
        truths = [self._truth_of_unknown(condition) for condition in conditions]
        if any(truth is True for truth in truths):
            return True
        open_ = tuple(truth for truth in truths if isinstance(truth, Unknown))
        if not open_:
            return False
        roots = frozenset().union(*(truth.roots for truth in open_))
        return Unknown(" or ".join(truth.name for truth in open_), (), roots, ("or", open_))

    def _truth_of_unknown(self, value: Unknown) -> Any:
        if value.name in self.decided:
            self.decisions_used += 1
            return self.decided[value.name]
        if isinstance(value, Maybe):
            return value
        if value.parts:
            word, parts = value.parts
            truths = [self._truth_of_unknown(part) for part in parts]
            if word == "not":
                return value if isinstance(truths[0], Unknown) else not truths[0]
            decisive = word == "or"
            if any(truth is decisive for truth in truths):
                return decisive
            if all(truth is (not decisive) for truth in truths) and len(truths) > 1:
                return not decisive
            return value
        if value.options:
            truths = [self.truth(option) for option in value.options]
            if all(truth is True for truth in truths) or all(truth is False for truth in truths):
                return truths[0]
        return value

    def supposing(self, condition: Unknown, holds: bool) -> dict[str, bool]:
        """What is decided where a condition holds, or does not."""
        found = {condition.name: holds}
        if condition.parts:
            word, parts = condition.parts
            if word == "not":
                found.update(self.supposing(parts[0], not holds))
            elif (word == "and") is holds:
                for part in parts:
                    found.update(self.supposing(part, holds))
        return found

    def suppose(self, condition: Unknown, holds: bool, run: Callable[[], Any]) -> Any:
        """The value that ``run`` has where the condition holds (or not); what it changes is taken back."""
        before = dict(self.decided)
        self.decided.update(self.supposing(condition, holds))
        self.journal.begin()
        try:
            return run()
        except Exception as error:
            if self.frame is not None:
                self.may_refuse(error, condition if holds else negation(condition), self.frame)
            return Undecidable()
        finally:
            self.journal.apply(self.journal.take_back())
            self.decided = before

    def fork_value(self, condition: Unknown, left: Callable[[], Any], right: Callable[[], Any], frame: Frame) -> Any:
        """The value of an expression of which an unknown condition decides."""
        outcome = self.statements.fork(condition, lambda: Return(left()), lambda: Return(right()), frame)
        return self._returned(outcome)

    def may_refuse(self, error: BaseException, condition: Unknown, frame: Frame) -> None:
        """Keep an exception that may come."""
        function, line = getattr(error, "sgltrace_place", (frame.id, frame.line))
        known = any(r.function == function and r.line == line and str(r.error) == str(error) for r in self.refusals)
        if not known:
            self.refusals.append(Refusal(error, condition, function, line))

    # --- calls ---------------------------------------------------------------------------------------------

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any], frame: Frame | None = None) -> Any:
        """Call anything."""
        if isinstance(function, Unknown):
            return self._call_unknown(function, args, keywords, frame)
        if function is None or isinstance(function, (bool, int, float, str, tuple, list, dict)):
            if any(function is value for value in self.used.values()):
                return function  # what a function was said to return was taken where the function is named
            raise TypeError(f"{type(function).__name__!r} object is not callable")
        name = getattr(function, "__name__", "")
        if name in self.assumed:
            return self.assume(name)
        if isinstance(function, types.MethodType) and isinstance(function.__func__, Function):
            return self.call_function(function.__func__, (function.__self__, *args), keywords)
        if isinstance(function, Function):
            return self.call_function(function, args, keywords)
        if isinstance(function, type):
            return self._construct(function, args, keywords, frame)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, CONTAINERS) and isinstance(function, types.BuiltinMethodType):
            return self._call_container(owner, function, args, keywords)
        if name == "__setattr__" and len(args) + (owner is not None) in (2, 3) and not isinstance(owner, type(self)):
            return self._raw_set(owner, args)
        return self.native(function, args, keywords)

    def _raw_set(self, owner: Any, args: tuple[Any, ...]) -> None:
        holder, key, value = (owner, *args) if len(args) == 2 else args
        if isinstance(owner, super):
            holder = owner.__self__  # type: ignore[attr-defined]
        self._store(holder, key, value, self.frame)

    def _call_unknown(self, function: Unknown, args: Any, keywords: dict[str, Any], frame: Frame | None) -> Any:
        if function.options and not isinstance(function, Maybe) and all(callable(f) for f in function.options):
            results = []
            for option in function.options:
                self.journal.begin()
                try:
                    results.append(self.call(option, args, keywords, frame))
                except Exception:
                    continue
                finally:
                    self.journal.apply(self.journal.take_back())
            if results:
                return one_of(results, f"{function.name}()", function.roots)
        return self.assumed_value(function(*args, **keywords))

    def _construct(self, made: type, args: tuple[Any, ...], keywords: dict[str, Any], frame: Frame | None) -> Any:
        if made is type and len(args) == 1:
            return type(args[0])
        if frame is not None and not self.modules.loading and self.watcher.construct(made, args, keywords, frame):
            return Opaque.__new__(type(made.__name__, (Opaque,), {"__module__": made.__module__, "of": made}))
        if made in (list, tuple, set, frozenset, dict) and args:
            if isinstance(args[0], Unknown):
                return combine(lambda value: made(value, **keywords), f"{made.__name__}({args[0].name})", args[0])
            return made(*args, **keywords)
        if made is bool and args:
            return self.truth(args[0])
        if made in (int, float, str) and args and isinstance(args[0], Unknown):
            return combine(lambda *given: made(*given), f"{made.__name__}({args[0].name})", *args)
        before = self.frame
        try:
            return self.native(made, args, keywords)
        finally:
            self.frame = before

    def _call_container(self, owner: Any, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        name = function.__name__
        if name in MUTATORS:
            self.journal.note(CONTENT, owner)
            if name in ("update", "setdefault", "__setitem__", "pop") and owner is self.environment:
                for key, value in (
                    dict(*args, **keywords) if name == "update" else dict([args[:2]] if len(args) > 1 else [])
                ).items():
                    self.watcher.environment(key, value, self.frame)
            if args and isinstance(args[0], Unknown) and name in ("extend", "update"):
                args = ([Unknown(f"*{args[0].name}", (), args[0].roots)],) if name == "extend" else ({},)
        result = self.native(function, args, keywords)
        if isinstance(result, Maybe) and name in ("get", "pop", "setdefault"):
            default = args[1] if len(args) > 1 else None
            return join_values(result.value, default, result.condition, describe(args[0]))
        return result

    def native(
        self, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any], name: str = ""
    ) -> Any:
        """Call something that Python has. What it cannot do with an unknown operand is unknown."""
        try:
            return function(*args, **keywords)
        except Undecided as undecided:
            name = name or _call_name(function, args)
            values = (*args, *keywords.values())
            if (
                any(isinstance(v, Unknown) and v.options for v in args)
                and not keywords
                and has_unknown(args, 0) is not False
            ):
                found = combine(function, name, *args)
                if not isinstance(found, Unknown) or found.options:
                    return found
            return Unknown(
                name,
                (),
                frozenset().union(undecided.unknown.roots, *(v.roots for v in values if isinstance(v, Unknown))),
            )
        except Exception:
            settled = tuple(self._settled(arg) for arg in args)
            if any(new is not old for new, old in zip(settled, args, strict=True)):
                return self.native(function, settled, keywords, name)
            name = name or _call_name(function, args)
            values = (*args, *keywords.values())
            owner = getattr(function, "__self__", None)
            if isinstance(function, type) and function.__module__ in self.modules.loaded:
                raise
            if has_unknown(values) or has_unknown((owner,), 1):
                direct = [value for value in args if isinstance(value, Unknown)]
                if direct and all(value.options for value in direct) and not keywords:
                    return combine(function, name, *args)
                return Unknown(name, (), roots_of((*values, owner)))
            raise

    def _settled(self, value: Any) -> Any:
        """A list without doubtful elements of which is decided by now whether they are there."""
        if type(value) not in (list, Elements) or not any(isinstance(item, Maybe) for item in value):
            return value
        kept, changed = [], False
        for item in value:
            truth = self.truth(item.condition) if isinstance(item, Maybe) else None
            changed |= isinstance(truth, bool)
            if truth is not False:
                kept.append(item.value if truth is True else item)
        return kept if changed else value

    def call_function(self, function: Function, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run a function of the source."""
        if function.__name__ in self.assumed:
            return self.assume(function.__name__)
        caller = self.frame
        if self.lenient is not None and not self.lenient.follows(function):
            return self.assumed_value(Unknown(f"{function.__name__}()"))
        if self._depth >= MAX_DEPTH:
            raise RecursionError("maximum recursion depth exceeded")
        if isinstance(function.node, ast.AsyncFunctionDef):
            return Unknown(f"{function.__name__}()")
        active = self._active.get(function.node, 0)
        if active >= MAX_NESTED and has_unknown((*args, *keywords.values()), 1):
            return Unknown(f"{function.__name__}(...)", (), roots_of(args))  # it would go on into what is not known
        frame = Frame(
            function.module,
            function.bind(args, keywords),
            function.scopes,
            function,
            f"{function.__qualname__}.<locals>.",
            caller,
        )
        if caller is not None:
            self.watcher.called(function, args, keywords, caller)
        if function.is_generator:
            frame.yields = []
        self.frame = frame
        self._depth += 1
        self._active[function.node] = active + 1
        try:
            if isinstance(function.node, ast.Lambda):
                return self.expressions.eval(function.node.body, frame)
            outcome = self.statements.run(function.node.body, frame)
            value = self._returned(outcome)
            return Elements(frame.yields) if frame.yields is not None else value
        finally:
            self._depth -= 1
            self._active[function.node] = active
            self.frame = caller

    def _returned(self, outcome: Outcome) -> Any:
        if outcome is NORMAL:
            return None
        if isinstance(outcome, Return):
            return outcome.value
        if isinstance(outcome, Split):
            return self._one_return(outcome)
        return None

    def _one_return(self, split: Split) -> Any:
        ends = [
            Alternative(Return(None), end.delta, end.decided) if not isinstance(end.outcome, (Return, Raised)) else end
            for end in split.alternatives
        ]
        raised = [end for end in ends if isinstance(end.outcome, Raised)]
        going = [end for end in ends if not isinstance(end.outcome, Raised)]
        if not going:
            raise raised[0].outcome.error  # type: ignore[attr-defined]
        for end in raised:
            if self.frame is not None:
                self.may_refuse(end.outcome.error, split.condition, self.frame)  # type: ignore[attr-defined]
        outcome = settle(self.journal, split.condition, going, self.decided)
        return outcome.value if isinstance(outcome, Return) else None

    def decorate(self, decorator: Any, value: Any, frame: Frame) -> Any:
        """What a decorator makes of a function or class; one that is not known leaves it as it is."""
        if isinstance(decorator, Unknown):
            return value
        try:
            made = self.call(decorator, (value,), {}, frame)
        except Undecided:
            return value
        return value if isinstance(made, Unknown) and not isinstance(value, Unknown) else made

    def super_of(self, frame: Frame) -> Any:
        """``super()`` without arguments."""
        for scope in (frame.locals, *frame.enclosing):
            if "__class__" in scope:
                function = frame.function
                spec = function.node.args if function is not None else None
                first = next((arg.arg for arg in (*spec.posonlyargs, *spec.args)), None) if spec else None
                return super(scope["__class__"], frame.locals[first]) if first in frame.locals else Unknown("super()")
        return Unknown("super()")

    # --- attributes and elements ---------------------------------------------------------------------------

    def get_attribute(self, value: Any, name: str) -> Any:
        """``value.name``."""
        if isinstance(value, Unknown):
            if isinstance(value, Maybe):
                return self.get_attribute(value.value, name)
            if name in self.assumed:
                return self.assume(name)
            if value.options:
                return combine(lambda option: self.get_attribute(option, name), f"{value.name}.{name}", value)
            return self.assumed_value(value.child(f".{name}"))
        if isinstance(value, Module):
            return self.modules.attribute(value, name)
        if isinstance(value, External):
            return self.modules.external_attribute(value, name)
        if name == "__getattribute__":
            return self._plain_read
        if name in HIDDEN:
            return Unknown(f"{describe(value)}.{name}")
        if name in self.assumed and not isinstance(value, (types.ModuleType, type)):
            return self.assume(name)
        found = getattr(value, name)
        if isinstance(value, Opaque) and isinstance(found, Unknown):
            return self.assumed_value(found)
        if isinstance(found, types.ModuleType):
            return Unknown(f"{describe(value)}.{name}")
        return found.value if isinstance(found, Maybe) else found

    def _plain_read(self, holder: Any, name: str) -> Any:
        """``object.__getattribute__``."""
        return Unknown(name) if name in HIDDEN else object.__getattribute__(holder, name)

    def set_attribute(self, holder: Any, name: str, value: Any, frame: Frame) -> None:
        """``holder.name = value``, through the class's own setter where it has one."""
        if isinstance(holder, Maybe):
            holder = holder.value
        if isinstance(holder, Unknown):
            for option in holder.options:
                if not isinstance(option, (Unknown, int, float, str, type(None))):
                    old = read("attribute", option, name)
                    self.set_attribute(option, name, join_values(value, old, holder, name), frame)
            return
        if isinstance(holder, Module):
            self.journal.set_item(holder.scope, name, value)
            return
        if isinstance(holder, External):
            return
        setter = type(holder).__setattr__
        if isinstance(setter, Function):
            self.call_function(setter, (holder, name, value), {})
            return
        descriptor = getattr(type(holder), name, None)
        if isinstance(descriptor, property):
            if descriptor.fset is None:
                raise AttributeError(f"property {name!r} of {type(holder).__name__!r} object has no setter")
            self.call(descriptor.fset, (holder, value), {}, frame)
            return
        self._store(holder, name, value, frame)

    def _store(self, holder: Any, name: str, value: Any, frame: Frame | None) -> None:
        old = read("attribute", holder, name)
        try:
            self.journal.set_attribute(holder, name, value)
        except TypeError:  # of a class that Python keeps
            return
        if frame is not None:
            self.watcher.wrote(holder, name, old, value, frame)

    def set_item(self, holder: Any, key: Any, value: Any, frame: Frame) -> None:
        """``holder[key] = value``."""
        if isinstance(holder, Unknown) or isinstance(key, Unknown):
            return
        if isinstance(holder, dict):
            if holder is self.environment:
                if not isinstance(value, (str, Unknown)):
                    raise TypeError(f"str expected, not {type(value).__name__}")
                self.watcher.environment(key, value, frame)
            self.journal.set_item(holder, key, value)
        elif isinstance(holder, list):
            self.journal.note(CONTENT, holder)
            holder[key] = value
        else:
            self.call(self.get_attribute(holder, "__setitem__"), (key, value), {}, frame)

    # --- what is taken to be true --------------------------------------------------------------------------

    def assume(self, name: str) -> Any:
        """What the user says that ``name`` is."""
        self.used[name] = self.assumed[name]
        return self.assumed[name]

    def assumed_value(self, value: Any) -> Any:
        """A value, or what is known of it by its name."""
        if isinstance(value, Unknown) and not value.options:
            for table in (self.assumed, self.facts):
                if value.name in table:
                    self.used[value.name] = table[value.name]
                    return table[value.name]
        return value


def _call_name(function: Any, args: tuple[Any, ...]) -> str:
    called = getattr(function, "__name__", None)
    return f"{called if isinstance(called, str) else describe(function)}({', '.join(map(describe, args))})"
