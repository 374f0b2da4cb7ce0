"""The forward modes of a batch: which of its predicates hold in a decode step, read off their bodies."""

from __future__ import annotations

from collections.abc import Callable

from sgltrace.index.facts import syntax as s
from sgltrace.index.program.program import Program
from sgltrace.index.program.vocabulary import Roles, matches
from sgltrace.index.resolution.entities import ClassInfo, FunctionInfo
from sgltrace.index.resolution.modules import dotted

Arguments = dict[str, s.Expr]


class DecodeModes:
    """What is known of a batch's forward mode while a decode step runs, speculative or not."""

    def __init__(self, program: Program, roles: Roles) -> None:
        self._classes = [
            cls
            for module in program.engine.modules.loaded.values()
            for cls in module.classes.values()
            if cls.name in roles.mode_classes and cls.is_enum
        ]
        self._modes = roles.decode_modes
        self._predicates: dict[str, bool | None] = {}

    def truth(self, test: s.Expr) -> bool | None:
        """Whether a call of a predicate, or a comparison with a mode, holds in every decode step or in none.

        None where it depends on the step, or asks for something else.
        """
        if isinstance(test, s.Call) and isinstance(test.func, s.Attr) and not test.args:
            name = test.func.attr
            if name not in self._predicates:
                self._predicates[name] = self._of_all(lambda cls, mode: self._call(cls, name, mode))
            return self._predicates[name]
        if isinstance(test, s.Cmp) and len(test.ops) == 1 and test.ops[0] in ("==", "is", "!=", "is not"):
            named = (dotted(test.rights[0]) or "").split(".")
            if len(named) > 1 and named[-2] in {cls.name for cls in self._classes}:
                equal = self._of_all(lambda cls, mode: mode == named[-1])
                return equal if equal is None or test.ops[0] in ("==", "is") else not equal
        return None

    def _of_all(self, ask: Callable[[ClassInfo, str], bool | None]) -> bool | None:
        answers = {ask(cls, mode) for cls in self._classes for mode in self._members(cls)}
        return answers.pop() if len(answers) == 1 else None

    def _members(self, cls: ClassInfo) -> list[str]:
        return [name for name in cls.scope.names if name not in cls.functions and matches(name, self._modes)]

    def _call(self, cls: ClassInfo, name: str, mode: str, given: Arguments | None = None) -> bool | None:
        """What a predicate of the enum returns for a mode."""
        functions: list[FunctionInfo] = cls.functions.get(name, [])
        body = [st for st in functions[0].body if not isinstance(st, s.ExprStmt)] if functions else []
        if len(body) != 1 or not isinstance(body[0], s.Return) or body[0].value is None:
            return None
        arguments = {p.name: p.default for p in functions[0].parameters if p.default is not None} | (given or {})
        return self._holds(body[0].value, cls, mode, arguments)

    def _holds(self, test: s.Expr, cls: ClassInfo, mode: str, arguments: Arguments) -> bool | None:
        match test:
            case s.Const(value=bool() as value):
                return value
            case s.Name(id=name) if name in arguments:
                return self._holds(arguments[name], cls, mode, {})
            case s.Unary(op="not", value=value):
                inner = self._holds(value, cls, mode, arguments)
                return None if inner is None else not inner
            case s.Bool(op=op, left=left, right=right):
                sides = (self._holds(left, cls, mode, arguments), self._holds(right, cls, mode, arguments))
                decisive = op == "or"
                return decisive if decisive in sides else None if None in sides else not decisive
            case s.Cmp(left=s.Name(id="self"), ops=[op], rights=[right]) if op in ("==", "is", "!=", "is not"):
                return (_member(right) == mode) is (op in ("==", "is"))
            case s.Cmp(left=s.Name(id="self"), ops=[("in" | "not in") as op], rights=[s.Seq(items=items)]):
                return (mode in [_member(item) for item in items]) is (op == "in")
            case s.Call(func=s.Attr(value=s.Name(id="self"), attr=name), args=args):
                given = {a.name: arguments.get(a.value.id, a.value) if isinstance(a.value, s.Name) else a.value
                         for a in args if a.name}  # fmt: skip
                return self._call(cls, name, mode, given) if len(given) == len(args) else None
        return None


def _member(expression: s.Expr) -> str:
    return (dotted(expression) or "").rpartition(".")[2]
