"""Places where something is called."""

from __future__ import annotations

from sgltrace.index.facts import syntax as s
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.index.resolution.values import Container, External, Node, Value

Args = list[tuple[str | None, Node]]
"""Arguments of a call: the name (None for a positional one, ``*`` and ``**`` for unpacked ones) and the node."""


class Use:
    """A place in a function where something is called, be it a call or what Python makes one of.

    ``dispatch`` says whether the callee is looked up on an object; ``targets`` are the functions found. One use may
    stand for equal expressions at several places (``self.x`` twice in a function).
    """

    __slots__ = ("base", "dispatch", "expressions", "function", "targets")

    def __init__(self, function: FunctionInfo, expression: s.Expr | s.Stmt, dispatch: bool = False) -> None:
        self.function = function
        self.expressions: list[s.Expr | s.Stmt] = [expression]
        self.dispatch = dispatch
        self.targets: set[FunctionInfo] = set()
        self.base: Node | None = None
        """The object, where it may as well be none of the tree's (``x[0]`` of a list, a tensor or our own)."""

    def is_virtual(self, callee: FunctionInfo) -> bool:
        """Whether it depends on the object which method of the callee's name runs here, or whether any does."""
        if not self.dispatch:
            return False
        outside = self.base is not None and any(isinstance(v, (External, Container)) for v in self.base.values)
        same = (target for target in self.targets if target.name == callee.name)
        return outside or (next(same, None) is not None and next(same, None) is not None)


class Site(Use):
    """A call: its callee's node, its arguments, and the node of what it returns."""

    __slots__ = ("_counted", "_several", "args", "bound", "callee", "result")

    def __init__(
        self, function: FunctionInfo, expression: s.Expr | s.Stmt, callee: Node, args: Args, result: Node
    ) -> None:
        super().__init__(function, expression)
        self.callee = callee
        self.args = args
        self.result = result
        self.bound: set[tuple[FunctionInfo | None, Value | None]] = set()
        """What the call was found to be of: a function with its receiver, or (without a function) a class."""
        self._counted, self._several = 0, False

    def is_virtual(self, callee: FunctionInfo) -> bool:
        """As of any use; so is a call of whatever stands in a variable or a table, where that is several things."""
        return self._is_of_several() or super().is_virtual(callee)

    def _is_of_several(self) -> bool:
        # Each of the thousands of functions that a table may hold asks; what was found only grows.
        if self._counted != len(self.bound):
            found = {
                function.id if function is not None else value for function, value in self.bound if not _wraps(function)
            }
            self._counted, self._several = len(self.bound), len(found) > 1
        return self._several


def _wraps(function: FunctionInfo | None) -> bool:
    return function is not None and function.is_wrapper
