"""Reads the expressions of one function, under the conditions that its statements have set."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sgltrace.coupling.facts import Access, Branch, Call, Facts, Mention, Stride, annotation_class
from sgltrace.coupling.predicates import Predicates
from sgltrace.coupling.regime import PROCESS, Reading, last_name
from sgltrace.index.facts import syntax as s

IN_PLACE = frozenset(
    [
        "add_",
        "sub_",
        "mul_",
        "div_",
        "copy_",
        "fill_",
        "zero_",
        "clamp_",
        "index_copy_",
        "scatter_",
        "masked_fill_",
        "append",
        "extend",
        "pop",
        "clear",
        "insert",
        "remove",
        "update",
    ]
)
"""Methods that change what they are called on."""

Typer = Callable[[s.Expr], str | None]
"""Gives the name of the class of an expression's value, where the resolver knows it."""


class ExpressionScanner:
    """What is known while a function is walked, and the reading of its expressions."""

    def __init__(
        self,
        function: str,
        params: list[s.Param],
        owner_class: str | None,
        predicates: Predicates,
        typer: Typer | None = None,
        field_classes: Mapping[str, str] | None = None,
    ) -> None:
        self.facts = Facts(function)
        self._function = function
        self._predicates = predicates
        self._words = predicates.vocabulary
        self._typer = typer
        self._field_classes = field_classes or {}
        self._guards: list[tuple[Reading, bool, int, s.Expr]] = []
        self._classes: dict[str, str] = {}
        self._local = self.facts.local
        self._first = params[0].name if params and owner_class is not None else None
        for index, param in enumerate(params):
            cls = annotation_class(param.annotation)
            if cls is not None:
                self._classes[param.name] = cls
            elif index == 0 and owner_class is not None:
                self._classes[param.name] = owner_class
        self._regime: str | None = None
        self._scope = PROCESS
        self._via = 0
        self._path: str | None = None
        self._loops = 0

    # --- conditions -------------------------------------------------------------------------------------

    def _push(self, reading: Reading, holds: bool, line: int, test: s.Expr) -> None:
        self._guards.append((reading, holds, line, test))
        self._settle()

    def _drop(self, depth: int) -> None:
        del self._guards[depth:]
        self._settle()

    def _settle(self) -> None:
        self._regime, self._scope, self._via, self._path = None, PROCESS, 0, None
        for reading, holds, line, _ in self._guards:
            regime = reading.when_true if holds else reading.when_false
            self._path = (reading.path_true if holds else reading.path_false) or self._path
            # The innermost condition on the batch wins; a plain server never reaches a speculative side.
            if regime is not None:
                self._regime, self._scope, self._via = regime, reading.scope, line

    def _tests(self) -> tuple[tuple[s.Expr, bool], ...]:
        return tuple((test, holds) for _, holds, _, test in self._guards)

    # --- expressions ------------------------------------------------------------------------------------

    def _expression(self, node: s.Expr, line: int, how: str = "read") -> None:
        match node:
            case s.Const():
                return
            case s.Name(id=name):
                if name in self._words.input_classes:
                    self._mention(name, "", line)
            case s.Attr(value=value, attr=attr):
                line = node.line or line
                if isinstance(value, s.Name) and self._is_enum(value.id):
                    self._mention(attr, value.id, line)
                    return
                self._access(node, line, how)
                if self._words.is_config(attr):
                    self._mention(attr, last_name(value) or "", line)
                self._expression(value, line)
            case s.Call():
                self._call(node, node.line or line)
            case s.Cond(body=body, test=test, orelse=orelse):
                self._conditional(test, body, orelse, line)
            case s.Bool(op=op, left=left, right=right):
                self._expression(left, line, how)
                depth = len(self._guards)
                self._push(self._predicates.read(left, self._local), op == "and", line, left)
                self._expression(right, line, how)
                self._drop(depth)
            case s.Bin(op=op, left=left, right=right):
                self._expression(left, line, how)
                self._expression(right, line, "divisor" if op in ("/", "//", "%") else how)
            case s.Sub(value=value, index=index):
                self._expression(value, node.line or line, "index")
                self._stride(node, node.line or line)
                self._expression(index, node.line or line)
            case s.Walrus(target=name, value=value):
                self._local[name] = value
                self._expression(value, line, how)
            case s.Comp(gens=gens):
                for gen in gens:
                    self._loop_target(gen.target, gen.iter)
                for child in s.children(node):
                    self._expression(child, line)
            case _:
                inner = how if isinstance(node, (s.Cmp, s.Unary)) else "read"
                for child in s.children(node):
                    self._expression(child, line, inner)

    def _conditional(self, test: s.Expr, body: s.Expr, orelse: s.Expr, line: int) -> None:
        reading = self._predicates.read(test, self._local)
        self._expression(test, line, "test")
        depth = len(self._guards)
        if reading.known:
            here = (line, line)
            self.facts.branches.append(Branch(self._function, line, reading, test, here, here, None))
        self._push(reading, True, line, test)
        self._expression(body, line)
        self._drop(depth)
        self._push(reading, False, line, test)
        self._expression(orelse, line)
        self._drop(depth)

    def _call(self, node: s.Call, line: int) -> None:
        func = node.func
        name, owner, cls = last_name(func) or "", "", None
        match func:
            case s.Attr(value=value, attr=attr):
                owner = last_name(value) or ""
                cls = self._class_of(value)
                changed = value.value if isinstance(value, s.Sub) else value
                if attr in IN_PLACE and isinstance(changed, s.Attr):
                    self._access(changed, line, "in-place", True, node.args[0].value if node.args else None)
                self._expression(value, line, "call")
            case s.Name(id="getattr") if len(node.args) >= 2 and isinstance(node.args[1].value, s.Const):
                self._access(s.Attr(node.args[0].value, str(node.args[1].value.value), line), line, "read")
            case s.Name():
                if name in self._words.input_classes:
                    self._mention(name, "", line)
            case _:
                self._expression(func, line)
        self.facts.calls.append(
            Call(
                self._function,
                name,
                owner,
                line,
                node,
                self._regime,
                self._scope,
                self._via,
                self._path,
                cls,
                self._loops,
            )
        )
        made = name if name[:1].isupper() else None
        told = self._class_of(node.args[0].value) if node.args and node.args[0].name is None else None
        if isinstance(func, s.Name) and func.id == self._first:
            made = self._classes.get(func.id)  # cls(...) in a class method
        for arg in node.args:
            if arg.name is not None and arg.name not in ("*", "**"):
                self._keyword(arg.name, arg.value, made, told, line)
            self._expression(arg.value, line)

    def _keyword(self, name: str, value: s.Expr, made: str | None, told: str | None, line: int) -> None:
        """A keyword sets a field of a new object, or of the server's arguments that a helper is handed to change."""
        if made is not None:
            self._file(name, made, made, _line(value, line), "keyword", value)
        elif told in self._words.args_classes:
            self._file(name, told, told, _line(value, line), "keyword", value)

    # --- records ----------------------------------------------------------------------------------------

    def _access(self, node: s.Attr, line: int, how: str, write: bool = False, value: s.Expr | None = None) -> None:
        self._file(node.attr, last_name(node.value) or "", self._class_of(node.value), line, how, value, write)

    def _file(
        self, field: str, owner: str, cls: str | None, line: int, how: str, value: s.Expr | None, write: bool = True
    ) -> None:
        self.facts.accesses.append(
            Access(
                self._function,
                field,
                owner,
                cls,
                line,
                write,
                how,
                value,
                self._regime,
                self._scope,
                self._via,
                self._path,
            )
        )

    def _mention(self, name: str, owner: str, line: int) -> None:
        self.facts.mentions.append(Mention(self._function, name, owner, line, self._regime, self._via))

    def _stride(self, node: s.Sub, line: int) -> None:
        """``values[i * stride : ...]``: the second factor of the lower bound, where the base is not a matrix."""
        if not isinstance(node.index, s.Slice) or node.index.lower is None:
            return
        for part in s.descend(node.index.lower):
            if isinstance(part, s.Bin) and part.op == "*":
                self.facts.strides.append(Stride(self._function, line, node.value, part.right))
                return

    # --- classes ----------------------------------------------------------------------------------------

    def _class_of(self, node: s.Expr) -> str | None:
        """The class of a value, as far as the resolver, names and constructors tell."""
        if self._typer is not None and (known := self._typer(node)) is not None:
            return known
        match node:
            case s.Name(id=name):
                return self._classes.get(name)
            case s.Attr(attr=attr):
                return self._field_classes.get(attr)
            case s.Call(func=s.Name(id=name) | s.Attr(value=s.Name(id=name))) if name[:1].isupper():
                return name
            case s.Sub(value=value):
                return self._class_of(value)
            case s.Bool(op="or", left=left):
                return self._class_of(left)
        return None

    def _loop_target(self, node: s.Expr, iter_: s.Expr) -> None:
        """A loop over a list of known content gives its variable a class: ``for req in batch.reqs``."""
        match (node, iter_):
            case (s.Seq(items=[_, item]), s.Call(func=s.Name(id="enumerate"), args=[first, *_])):
                self._loop_target(item, first.value)
            case (s.Seq(items=items), s.Call(func=s.Name(id="zip"), args=args)) if len(items) == len(args):
                for item, arg in zip(items, args, strict=True):
                    self._loop_target(item, arg.value)
            case (s.Name(id=name), s.Attr(attr=attr)) if attr in self._field_classes:
                self._classes[name] = self._field_classes[attr]
            case (s.Name(), s.Name(id=source)) if source in self._local:
                self._loop_target(node, self._local[source])

    def _is_enum(self, name: str) -> bool:
        words = self._words
        return name in words.mode_enums or name in words.hidden_enums or name in words.algorithm_enums


def _line(node: s.Expr, default: int) -> int:
    return next((int(line) for part in s.descend(node) if (line := getattr(part, "line", 0))), default)
