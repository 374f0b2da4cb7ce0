"""What one function does that the rules care for: fields it reads and writes, conditions, calls, refusals.

Each is recorded with its line and with the regime in which it runs: ``spec`` where a condition around it (or an
early return before it) selects speculation, ``plain`` where one excludes it, None where no condition says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sgltrace.coupling.regime import BATCH, DRAFT, NOTHING, PLAIN, PROCESS, SPEC, Predicates, Reading, last_name
from sgltrace.index import syntax as s

IN_PLACE = frozenset(
    ["add_", "sub_", "mul_", "div_", "copy_", "fill_", "zero_", "clamp_", "index_copy_", "scatter_", "masked_fill_", "append", "extend", "pop", "clear", "insert", "remove", "update"]
)


@dataclass(slots=True, eq=False)
class Access:
    """A write or a read of an attribute."""

    function: str
    field: str
    owner: str
    """The last name of the expression that holds the attribute: ``batch`` of ``self.batch.seq_lens``."""
    cls: str | None
    """The class of the holder, where annotations and constructors tell."""
    line: int
    write: bool
    how: str
    """Of a write: assign, augment, in-place, item, keyword, delete. Of a read: read, test, call, index, divisor."""
    value: s.Expr | None
    regime: str | None
    scope: str
    via: int
    """The line of the condition that decides the regime; 0 where there is none."""
    path: str | None
    """The only path on which it happens, where a condition on overlap scheduling says so."""


@dataclass(slots=True, eq=False)
class Branch:
    """A condition on speculation, with the lines of its two sides."""

    function: str
    line: int
    reading: Reading
    test: s.Expr
    body: tuple[int, int]
    orelse: tuple[int, int]
    leaves: str | None
    """The regime whose side leaves the function (or the loop turn) at this condition; None where neither does."""


@dataclass(slots=True, eq=False)
class Call:
    """A call, by the name it is written with."""

    function: str
    name: str
    owner: str
    line: int
    node: s.Call
    regime: str | None
    scope: str
    via: int
    path: str | None


@dataclass(slots=True, eq=False)
class Refusal:
    """A raise, an assertion, or a text returned as a reason, and the conditions under which it is reached."""

    function: str
    line: int
    how: str
    tests: tuple[tuple[s.Expr, bool], ...]
    regime: str | None
    value: s.Expr | None


@dataclass(slots=True, eq=False)
class Mention:
    """A member of an enum (``ForwardMode.DECODE``), a speculative configuration value, or a class, by name."""

    function: str
    name: str
    owner: str
    line: int
    regime: str | None
    via: int


@dataclass(slots=True, eq=False)
class Stride:
    """An index of the form ``values[i * stride : ...]``."""

    function: str
    line: int
    base: s.Expr
    stride: s.Expr


@dataclass
class Facts:
    """Everything found in one function."""

    function: str
    accesses: list[Access] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    width_tests: list[Branch] = field(default_factory=list)
    """Conditions that compare a speculative width with zero."""
    calls: list[Call] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    strides: list[Stride] = field(default_factory=list)
    local: dict[str, s.Expr] = field(default_factory=dict)
    call_classes: dict[int, str | None] = field(default_factory=dict)
    returns: list[tuple[int, s.Expr, str | None]] = field(default_factory=list)
    augmented: list[tuple[int, str, s.Expr]] = field(default_factory=list)
    """``name += value`` of local names: line, name, value."""


def annotation_class(node: s.Expr | None) -> str | None:
    """The class that an annotation names: the first that is not a container of typing's."""
    if node is None:
        return None
    for part in s.descend(node):
        if isinstance(part, (s.Name, s.Attr)):
            name = part.id if isinstance(part, s.Name) else part.attr
            if name not in ("Optional", "Union", "List", "Tuple", "Dict", "Type", "None", "list", "tuple", "Sequence"):
                return name if name[:1].isupper() or name[:1] == "_" else None
    return None


class Scanner:
    """Walks one function's statements once."""

    def __init__(
        self,
        function: str,
        params: list[s.Param],
        body: list[s.Stmt],
        owner_class: str | None,
        predicates: Predicates,
        field_classes: Mapping[str, str],
        typer: Callable[[s.Expr], str | None] | None = None,
    ) -> None:
        self.facts = Facts(function)
        self.function = function
        self.predicates = predicates
        self.words = predicates.vocabulary
        self.field_classes = field_classes
        self.typer = typer
        self.guards: list[tuple[Reading, bool, int, s.Expr]] = []
        self.classes: dict[str, str] = {}
        self.local = self.facts.local
        self.first = params[0].name if params and owner_class is not None else None
        for index, param in enumerate(params):
            cls = annotation_class(param.annotation)
            if cls is not None:
                self.classes[param.name] = cls
            elif index == 0 and owner_class is not None:
                self.classes[param.name] = owner_class
        self.regime: str | None = None
        self.scope = PROCESS
        self.via = 0
        self.path: str | None = None
        self.block(body)

    # --- conditions -------------------------------------------------------------------------------------

    def push(self, reading: Reading, holds: bool, line: int, test: s.Expr) -> None:
        self.guards.append((reading, holds, line, test))
        self._settle()

    def drop(self, depth: int) -> None:
        del self.guards[depth:]
        self._settle()

    def _settle(self) -> None:
        self.regime, self.scope, self.via, self.path = None, PROCESS, 0, None
        for reading, holds, line, _ in self.guards:
            regime = reading.when_true if holds else reading.when_false
            self.path = (reading.path_true if holds else reading.path_false) or self.path
            # The innermost condition on the batch wins; a plain server never reaches a speculative side.
            if regime is not None:
                self.regime, self.scope, self.via = regime, reading.scope, line

    # --- statements -------------------------------------------------------------------------------------

    def block(self, body: list[s.Stmt]) -> None:
        depth = len(self.guards)
        for statement in body:
            self.statement(statement)
        self.drop(depth)

    def statement(self, node: s.Stmt) -> None:
        match node:
            case s.ExprStmt(value=value, line=line):
                self.expression(value, line)
            case s.Assign(targets=targets, value=value, line=line):
                self.expression(value, line)
                for target in targets:
                    self.target(target, value, line, "assign")
            case s.AnnAssign(target=target, annotation=annotation, value=value, line=line):
                if isinstance(target, s.Name) and (cls := annotation_class(annotation)):
                    self.classes[target.id] = cls
                if value is not None:
                    self.expression(value, line)
                    self.target(target, value, line, "assign")
            case s.AugAssign(target=target, value=value, line=line):
                self.expression(value, line)
                if isinstance(target, s.Name):
                    self.facts.augmented.append((line, target.id, value))
                self.target(target, value, line, "augment")
            case s.If(test=test, body=body, orelse=orelse, line=line):
                self.branch(test, body, orelse, line)
            case s.For(target=target, iter=iter_, body=body, orelse=orelse, line=line):
                self.expression(iter_, line)
                self.loop_target(target, iter_)
                self.block(body)
                self.block(orelse)
            case s.While(test=test, body=body, orelse=orelse, line=line):
                self.branch(test, body, orelse, line)
            case s.With(items=items, body=body, line=line):
                for item in items:
                    self.expression(item.value, line)
                    if item.target is not None:
                        self.target(item.target, item.value, line, "assign")
                for statement in body:  # guards set inside by early exits hold after it, too
                    self.statement(statement)
            case s.Try(body=body, handlers=handlers, orelse=orelse, final=final):
                self.block(body)
                for handler in handlers:
                    self.block(handler.body)
                self.block(orelse)
                self.block(final)
            case s.Return(value=value, line=line):
                if value is not None:
                    self.expression(value, line)
                    self.facts.returns.append((line, value, self.regime))
                    if self.guards and _is_text(value):
                        tests = tuple((test, holds) for _, holds, _, test in self.guards)
                        self.facts.refusals.append(Refusal(self.function, line, "reason", tests, self.regime, value))
            case s.Raise(value=value, line=line):
                tests = tuple((test, holds) for _, holds, _, test in self.guards)
                self.facts.refusals.append(Refusal(self.function, line, "raise", tests, self.regime, value))
                if value is not None:
                    self.expression(value, line)
            case s.Assert(test=test, line=line):
                tests = (*((t, holds) for _, holds, _, t in self.guards), (test, False))
                self.facts.refusals.append(Refusal(self.function, line, "assert", tests, self.regime, None))
                self.expression(test, line, "test")
            case s.Delete(targets=targets, line=line):
                for target in targets:
                    if isinstance(target, s.Attr):
                        self.write(target, None, line, "delete")
            case s.Match(subject=subject, cases=cases, line=line):
                self.expression(subject, line)
                for case in cases:
                    self.block(case.body)
            case _:
                return

    def branch(self, test: s.Expr, body: list[s.Stmt], orelse: list[s.Stmt], line: int) -> None:
        reading = self.predicates.read(test, self.local)
        self.expression(test, line, "test")
        leaves_true, leaves_false = _leaves(body), _leaves(orelse)
        if reading.known:
            leaves = (reading.when_true if leaves_true else None) or (reading.when_false if leaves_false else None)
            self.facts.branches.append(
                Branch(self.function, line, reading, test, _extent(body), _extent(orelse), leaves)
            )
        if _compares_with_zero(test, self.words.widths):
            self.facts.width_tests.append(
                Branch(self.function, line, reading, test, _extent(body), _extent(orelse), None)
            )
        depth = len(self.guards)
        self.push(reading, True, line, test)
        self.block(body)
        self.drop(depth)
        if orelse:
            self.push(reading, False, line, test)
            self.block(orelse)
            self.drop(depth)
        if leaves_true and not leaves_false:
            self.push(reading, False, line, test)
        elif leaves_false and not leaves_true and orelse:
            self.push(reading, True, line, test)

    # --- targets ----------------------------------------------------------------------------------------

    def target(self, node: s.Expr, value: s.Expr | None, line: int, how: str) -> None:
        match node:
            case s.Name(id=name):
                if value is not None and how == "assign":
                    self.local[name] = value
                    if (cls := self.class_of(value)) is not None:
                        self.classes[name] = cls
            case s.Attr():
                self.write(node, value, line, how)
                self.expression(node.value, line)
            case s.Sub(value=base, index=index):
                if isinstance(base, s.Attr):
                    self.write(base, value, line, "item")
                    self.expression(base.value, line)
                else:
                    self.expression(base, line)
                self.expression(index, line)
            case s.Seq(items=items):
                values: list[s.Expr | None] = [value] * len(items)
                if isinstance(value, s.Seq) and len(value.items) == len(items):
                    values = list(value.items)
                for item, part in zip(items, values, strict=True):
                    if isinstance(item, s.Name) and part is value:
                        continue  # one of several returned values: what it is, is not known here
                    self.target(item, part, line, how)
            case s.Star(value=inner):
                self.target(inner, None, line, how)

    def loop_target(self, node: s.Expr, iter_: s.Expr) -> None:
        """A loop over a list of known content gives its variable a class: ``for req in batch.reqs``."""
        match (node, iter_):
            case (s.Seq(items=[_, item]), s.Call(func=s.Name(id="enumerate"), args=[first, *_])):
                self.loop_target(item, first.value)
            case (s.Seq(items=items), s.Call(func=s.Name(id="zip"), args=args)) if len(items) == len(args):
                for item, arg in zip(items, args, strict=True):
                    self.loop_target(item, arg.value)
            case (s.Name(id=name), s.Attr(attr=attr)) if attr in self.field_classes:
                self.classes[name] = self.field_classes[attr]
            case (s.Name(id=name), s.Name(id=source)) if source in self.local:
                self.loop_target(node, self.local[source])

    # --- expressions ------------------------------------------------------------------------------------

    def class_of(self, node: s.Expr) -> str | None:
        """The class of a value, as far as the resolver, names and constructors tell."""
        if self.typer is not None and (known := self.typer(node)) is not None:
            return known
        match node:
            case s.Name(id=name):
                return self.classes.get(name)
            case s.Attr(attr=attr):
                return self.field_classes.get(attr)
            case s.Call(func=s.Name(id=name)) if name[:1].isupper():
                return name
            case s.Call(func=s.Attr(value=s.Name(id=name))) if name[:1].isupper():
                return name
            case s.Sub(value=value):
                return self.class_of(value)
            case s.Bool(op="or", left=left):
                return self.class_of(left)
        return None

    def write(self, node: s.Attr, value: s.Expr | None, line: int, how: str) -> None:
        self._access(node, line, True, how, value)

    def _access(self, node: s.Attr, line: int, write: bool, how: str, value: s.Expr | None) -> None:
        owner = node.value
        self.facts.accesses.append(
            Access(
                self.function,
                node.attr,
                last_name(owner) or "",
                self.class_of(owner),
                line,
                write,
                how,
                value,
                self.regime,
                self.scope,
                self.via,
                self.path,
            )
        )

    def expression(self, node: s.Expr, line: int, how: str = "read") -> None:
        match node:
            case s.Const() | s.Name():
                if isinstance(node, s.Name) and node.id in self.words.input_classes:
                    self.mention(node.id, "", line)
                return
            case s.Attr(value=value, attr=attr):
                line = node.line or line
                if isinstance(value, s.Name) and self._enum(value.id):
                    self.mention(attr, value.id, line)
                    return
                self._access(node, line, False, how, None)
                if self.words.is_config(attr):
                    self.mention(attr, last_name(value) or "", line)
                self.expression(value, line)
            case s.Call():
                self.call(node, node.line or line)
            case s.Cond(body=body, test=test, orelse=orelse):
                self.conditional(test, body, orelse, line)
            case s.Bool(op=op, left=left, right=right):
                self.expression(left, line, how)
                reading = self.predicates.read(left, self.local)
                depth = len(self.guards)
                self.push(reading, op == "and", line, left)
                self.expression(right, line, how)
                self.drop(depth)
            case s.Bin(op=op, left=left, right=right):
                self.expression(left, line, how)
                self.expression(right, line, "divisor" if op in ("/", "//", "%") else how)
            case s.Sub(value=value, index=index):
                self.expression(value, node.line or line, "index")
                self.stride(node, node.line or line)
                self.expression(index, node.line or line)
            case s.Walrus(target=name, value=value):
                self.local[name] = value
                self.expression(value, line, how)
            case s.Lambda(body=body):
                self.expression(body, line)
            case s.Comp(gens=gens):
                for gen in gens:
                    self.loop_target(gen.target, gen.iter)
                for child in s.children(node):
                    self.expression(child, line)
            case _:
                for child in s.children(node):
                    self.expression(child, line, how if isinstance(node, (s.Cmp, s.Unary)) else "read")

    def conditional(self, test: s.Expr, body: s.Expr, orelse: s.Expr, line: int) -> None:
        reading = self.predicates.read(test, self.local)
        self.expression(test, line, "test")
        depth = len(self.guards)
        if reading.known:
            self.facts.branches.append(Branch(self.function, line, reading, test, (line, line), (line, line), None))
        self.push(reading, True, line, test)
        self.expression(body, line)
        self.drop(depth)
        self.push(reading, False, line, test)
        self.expression(orelse, line)
        self.drop(depth)

    def call(self, node: s.Call, line: int) -> None:
        func = node.func
        name, owner = last_name(func) or "", ""
        match func:
            case s.Attr(value=value, attr=attr):
                owner = last_name(value) or ""
                self.facts.call_classes[id(node)] = self.class_of(value)
                if attr in IN_PLACE and isinstance(value, s.Attr):
                    argument = node.args[0].value if node.args else None
                    self.write(value, argument, line, "in-place")
                elif attr in IN_PLACE and isinstance(value, s.Sub) and isinstance(value.value, s.Attr):
                    argument = node.args[0].value if node.args else None
                    self.write(value.value, argument, line, "in-place")
                self.expression(value, line, "call")
            case s.Name(id="getattr") if len(node.args) >= 2 and isinstance(node.args[1].value, s.Const):
                attribute = s.Attr(node.args[0].value, str(node.args[1].value.value), line)
                self._access(attribute, line, False, "read", None)
            case s.Name():
                if name in self.words.input_classes:
                    self.mention(name, "", line)
            case _:
                self.expression(func, line)
        self.facts.calls.append(
            Call(self.function, name, owner, line, node, self.regime, self.scope, self.via, self.path)
        )
        keyword_class = name if name[:1].isupper() else None
        if isinstance(func, s.Name) and func.id == self.first:
            keyword_class = self.classes.get(func.id)  # cls(...) in a class method
        for arg in node.args:
            if arg.name is not None and arg.name not in ("*", "**") and keyword_class is not None:
                self.facts.accesses.append(
                    Access(
                        self.function,
                        arg.name,
                        keyword_class,
                        keyword_class,
                        _line(arg.value, line),
                        True,
                        "keyword",
                        arg.value,
                        self.regime,
                        self.scope,
                        self.via,
                        self.path,
                    )
                )
            elif arg.name is not None and arg.name.startswith("speculative_") and self.words.is_config(arg.name):
                # Arguments of the server that a helper is told to set: declare(server_args, speculative_x=...).
                self.facts.accesses.append(
                    Access(
                        self.function,
                        arg.name,
                        name,
                        None,
                        _line(arg.value, line),
                        True,
                        "keyword",
                        arg.value,
                        self.regime,
                        self.scope,
                        self.via,
                        self.path,
                    )
                )
            self.expression(arg.value, line)

    def mention(self, name: str, owner: str, line: int) -> None:
        self.facts.mentions.append(Mention(self.function, name, owner, line, self.regime, self.via))

    def _enum(self, name: str) -> bool:
        words = self.words
        return name in words.mode_enums or name in words.hidden_enums or name in words.algorithm_enums

    def stride(self, node: s.Sub, line: int) -> None:
        """``values[i * stride : ...]``: the second factor of the lower bound, where the base is not a matrix."""
        if not isinstance(node.index, s.Slice) or node.index.lower is None:
            return
        for part in s.descend(node.index.lower):
            if isinstance(part, s.Bin) and part.op == "*":
                self.facts.strides.append(Stride(self.function, line, node.value, part.right))
                return


def _line(node: s.Expr, default: int) -> int:
    for part in s.descend(node):
        line = getattr(part, "line", 0)
        if line:
            return int(line)
    return default


def _compares_with_zero(test: s.Expr, widths: frozenset[str]) -> bool:
    """Whether a condition, or the first part of one, says that there are no draft steps."""
    match test:
        case s.Bool(op="and", left=left):
            return _compares_with_zero(left, widths)
        case s.Cmp(left=left, ops=[op], rights=[s.Const(value=0)]) if op in ("==", "<="):
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
    last = body[-1]
    match last:
        case s.Return() | s.Raise() | s.Jump():
            return True
        case s.If(body=inner, orelse=orelse):
            return _leaves(inner) and _leaves(orelse)
        case s.With(body=inner):
            return _leaves(inner)
    return False


def lines_of(body: list[s.Stmt]) -> Iterator[int]:
    """The lines of the statements of a block, those of inner blocks included."""
    for statement in body:
        line = getattr(statement, "line", None)
        if line is not None:
            yield line
        for name in ("body", "orelse", "final"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list):
                yield from lines_of(inner)


def _extent(body: list[s.Stmt]) -> tuple[int, int]:
    lines = list(lines_of(body))
    return (min(lines), max(lines)) if lines else (0, 0)


__all__ = [
    "BATCH",
    "DRAFT",
    "NOTHING",
    "PLAIN",
    "PROCESS",
    "SPEC",
    "Access",
    "Branch",
    "Call",
    "Facts",
    "Mention",
    "Refusal",
    "Scanner",
    "Stride",
]
