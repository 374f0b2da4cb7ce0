"""What the names in conditions stand for: attributes set when a process starts, and small functions, as expressions.

``self.require_mlp_sync`` is ``require_mlp_sync(self.server_args)``, and that is ``enable_dp_attention or ...``. With
that, a condition can be asked of a server's arguments without the program (``sgltrace.configuration``).
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.text import text
from sgltrace.index.fields.access import Access
from sgltrace.index.fields.flow import FieldFlow
from sgltrace.index.program import Program
from sgltrace.index.resolution.entities import FunctionInfo
from sgltrace.model import PHASES
from sgltrace.sources import UndecodableSource, UnreadableFile, decode_source

DEEP = 6
"""Through so many definitions a name is followed."""
MANY = 4
"""A name of more definitions is left unknown."""
LONG = 1500
"""A definition of more characters is left out."""
SHORT = 12
"""A function of more statements says no such thing."""
STARTS = PHASES[0]
KIND = "model_type"
"""A class with a constant of that name is what a model's config.json of that kind is read as."""


class Meanings:
    """Finds what names stand for. Attributes go by their name, functions by their name with ``()`` behind it."""

    def __init__(self, program: Program, flow: FieldFlow) -> None:
        self._program, self._flow = program, flow
        self._writes: dict[str, list[Access]] = defaultdict(list)
        self._arguments: set[str] = set()
        for uses in flow:
            if uses.role == "server_args" and uses.field in uses.cls.annotations:
                self._arguments.add(uses.field)
            self._writes[uses.field] += uses.writes
        self._by_function: dict[FunctionInfo, _Locals] = {}
        self._functions: dict[str, list[FunctionInfo]] = defaultdict(list)
        for function in program.functions.values():
            self._functions[function.name].append(function)

    def of(self, texts: Iterable[str]) -> dict[str, list[str]]:
        """The definitions of the names in some conditions, and of the names in those."""
        found: dict[str, list[str]] = {}
        asked: set[str] = set()
        todo = sorted({name for one in texts for name in names_in(one)})
        for _ in range(DEEP):
            asked.update(todo)
            new = {name: made for name in todo if (made := self._definitions(name))}
            found |= new
            todo = sorted({n for made in new.values() for one in made for n in names_in(one)} - asked)
        return self._of_arguments(found)

    def _of_arguments(self, found: dict[str, list[str]]) -> dict[str, list[str]]:
        """The definitions that lead to an argument or to the model's kind: the others decide nothing."""
        leading = self._arguments | {KIND}
        while True:
            more = {n for n, made in found.items() if n not in leading and any(names_in(m) & leading for m in made)}
            if not more:
                return {name: made for name, made in sorted(found.items()) if name in leading}
            leading |= more

    def _definitions(self, name: str) -> list[str]:
        try:
            if name.endswith("()"):
                made = list(self._returned(name[:-2], properties=False))
            elif name in self._arguments:
                return []
            else:
                made = [*self._set(name), *self._returned(name, properties=True)]
        except _Unknown:
            return []
        made = list(dict.fromkeys(made))
        return made if len(made) <= MANY and all(len(one) <= LONG for one in made) else []

    @cached_property
    def _started(self) -> dict[str, list[tuple[FunctionInfo, s.Expr]]]:
        """What constructors of classes that carry no step's state set."""
        found: dict[str, list[tuple[FunctionInfo, s.Expr]]] = defaultdict(list)
        for function in self._functions.get("__init__", []):
            if function.owner is None or self._flow.role(function.owner) is not None:
                continue
            for statement in s.nested(function.body):
                if isinstance(statement, s.Assign):
                    for target in statement.targets:
                        if (
                            isinstance(target, s.Attr)
                            and isinstance(target.value, s.Name)
                            and target.value.id == "self"
                        ):
                            found[target.attr].append((function, statement.value))
        return found

    def _set(self, name: str) -> Iterator[str]:
        writes = self._writes.get(name, [])
        for function, written in self._started.get(name, []) if not writes else ():
            value = ast.parse(text(written), mode="eval").body
            if getattr(value, "attr", getattr(value, "id", "")) != name:  # else handed on
                yield ast.unparse(self._locals(function).put_in(value))
        for access in writes:
            if access.kind == "default" and any(other.kind != "default" for other in writes):
                continue  # an object of which nobody has said it yet
            if access.kind not in ("assign", "constructor", "copy", "default") or access.value is None:
                raise _Unknown
            value = ast.parse(text(access.value), mode="eval").body
            if getattr(value, "attr", getattr(value, "id", "")) == name:
                continue  # handed on
            if STARTS not in self._program.phases.phases(access.function):
                raise _Unknown  # each step may set it anew
            shown = self._locals(access.function).put_in(value)
            position = _position(access)
            yield f"({ast.unparse(shown)})[{position}]" if position is not None else ast.unparse(shown)

    def _returned(self, name: str, properties: bool) -> Iterator[str]:
        functions = [f for f in self._functions.get(name, []) if f.is_property is properties]
        if len(functions) > MANY:
            raise _Unknown
        for function in functions:
            if not isinstance(function.node, s.Func) or function.is_generator or function.is_abstract:
                raise _Unknown
            if len(function.body) > SHORT:
                raise _Unknown
            try:
                yield ast.unparse(_Locals(self._program, function).folded(list(function.body)))
            except _Raises:
                continue

    def _locals(self, function: FunctionInfo) -> _Locals:
        if function not in self._by_function:
            self._by_function[function] = _Locals(self._program, function)
        return self._by_function[function]


_SNAKE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class _Unknown(Exception):
    """No expression says it."""


class _Raises(Exception):
    """This way ends in a refusal."""


@lru_cache(maxsize=50_000)
def names_in(condition: str) -> frozenset[str]:
    """The names that a condition asks: attributes and names, and functions with ``()``."""
    try:
        tree = ast.parse(condition.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    found: set[str] = set()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Name)):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            found.add(f"{name}()" if id(node) in called else name)
    return frozenset(found)


class _Locals(ast.NodeTransformer):
    """A function's body as one expression: its names of one assignment put in, branches as conditional expressions."""

    def __init__(self, program: Program, function: FunctionInfo) -> None:
        self._program, self._function = program, function
        self._values: dict[str, ast.expr] = {}
        once: dict[str, list[ast.expr | None]] = defaultdict(list)
        for statement in s.nested(function.body):
            for name, value in _assigned(statement):
                once[name].append(value)
        self._once = {name: values[0] for name, values in once.items() if len(values) == 1 and values[0] is not None}
        self._busy: set[str] = set()
        self._objects: set[str] = set()
        """What a class of configs was asked of."""

    def put_in(self, node: ast.expr) -> ast.expr:
        """An expression of the function with its local names replaced by what they are."""
        made = self.visit(node)
        if sum(1 for _ in ast.walk(made)) > 200:
            raise _Unknown
        return made  # type: ignore[no-any-return]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._values.get(node.id, self._once.get(node.id))
        if value is None or node.id in self._busy:
            return node
        self._busy.add(node.id)
        made = self.visit(ast.parse(ast.unparse(value), mode="eval").body)
        self._busy.discard(node.id)
        return made  # type: ignore[no-any-return]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2:
            kinds = self._kinds(node.args[1])
            if kinds is not None:
                self._objects.add(ast.unparse(self.visit(node.args[0])))
                return ast.parse(f"{KIND} in {tuple(kinds)!r}", mode="eval").body
        return self.generic_visit(node)  # type: ignore[return-value]

    def _kinds(self, node: ast.expr) -> list[str] | None:
        """The kinds of models whose config is of some classes; None where a class does not say it."""
        if isinstance(node, ast.Tuple):
            parts = [self._kinds(item) for item in node.elts]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            parts = [self._kinds(node.left), self._kinds(node.right)]
        else:
            kind = self._kinds_of(node.id) if isinstance(node, ast.Name) else None
            return None if kind is None else [kind]
        return None if any(part is None for part in parts) else [kind for part in parts for kind in part or ()]

    def _object(self, node: ast.expr) -> ast.expr:
        """``...`` for what was found to be an object of some class, or is a part of one: it is there."""
        shown = ast.unparse(node)
        return ast.Constant(...) if any(shown == o or shown.startswith(f"{o}.") for o in self._objects) else node

    def _kinds_of(self, name: str) -> str | None:
        own = (self._function.module.facts.body, self._function.body)
        here = self._function.module.name
        origins = [(_absolute(o, here), n) for body in own for local, o, n in _imported(body) if local == name]
        return next((kind for module, n in origins if (kind := self._kind(module, n)) is not None), None)

    def _kind(self, module: str, name: str, deep: int = 3) -> str | None:
        """The constant in a class, which may be imported into the module from where it is defined."""
        tree = self._program.tree
        if module not in tree.modules or deep == 0:
            return None
        try:
            parsed = ast.parse(decode_source(tree.read_module(module)))
        except (SyntaxError, ValueError, UndecodableSource, UnreadableFile):
            return None
        package = module if tree.modules[module].endswith("__init__.py") else module.rpartition(".")[0]
        for node in parsed.body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                own = next(filter(None, map(_constant, node.body)), None)
                return own or _SNAKE.sub("_", name.removesuffix("Config")).lower()  # as the library names them
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                        return self._kind(".".join([*up, node.module or ""]).rstrip("."), alias.name, deep - 1)
        return None

    def folded(self, body: list[s.Stmt]) -> ast.expr:
        """What the statements return."""
        for at, statement in enumerate(body):
            match statement:
                case s.Return(value=value):
                    return ast.Constant(None) if value is None else self._object(self.put_in(_expr(value)))
                case s.If(test=test, body=then, orelse=orelse):
                    condition = self.put_in(_expr(test))
                    rest, kept = body[at + 1 :], dict(self._values)
                    ways: list[ast.expr | None] = []
                    for branch in (then, orelse):
                        self._values = dict(kept)
                        try:
                            ways.append(self.folded([*branch, *rest]))
                        except _Raises:
                            ways.append(None)
                    if ways[0] is None or ways[1] is None:
                        if ways[0] is None and ways[1] is None:
                            raise _Raises
                        return ways[0] or ways[1]  # type: ignore[return-value]
                    return ast.IfExp(condition, ways[0], ways[1])
                case s.Assign() | s.AnnAssign():
                    for name, given in _assigned(statement):
                        if given is None:
                            raise _Unknown
                        self._values[name] = self.put_in(given)
                case s.Raise():
                    raise _Raises
                case s.ExprStmt() | s.Import() | s.ImportFrom() | s.Assert() | s.Jump(kind="pass"):
                    continue
                case _:
                    raise _Unknown
        return ast.Constant(None)


def _imported(body: list[s.Stmt]) -> Iterator[tuple[str, str, str]]:
    """The names that statements import: what they are called here, the module, and what they are called there."""
    for statement in s.nested(body):
        if isinstance(statement, s.ImportFrom):
            for name, local in statement.names:
                yield local or name, "." * statement.level + statement.module, name


def _absolute(origin: str, module: str) -> str:
    level = len(origin) - len(origin.lstrip("."))
    return ".".join([*module.split(".")[:-level], origin[level:]]) if level else origin


def _constant(node: ast.stmt) -> str | None:
    """The kind that a statement of a class's body sets."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    value = getattr(node, "value", None)
    if any(isinstance(target, ast.Name) and target.id == KIND for target in targets):
        return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return None


def _expr(node: s.Expr) -> ast.expr:
    return ast.parse(text(node), mode="eval").body


def _assigned(statement: s.Stmt) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a statement sets, with what they are then; None where that cannot be said."""
    match statement:
        case s.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, s.Name):
                    yield target.id, _expr(value)
                elif isinstance(target, s.Seq):
                    for at, item in enumerate(target.items):
                        if isinstance(item, s.Name):
                            yield item.id, ast.Subscript(_expr(value), ast.Constant(at))
        case s.AnnAssign(target=s.Name(id=name), value=value) if value is not None:
            yield name, _expr(value)
        case s.AugAssign(target=s.Name(id=name)) | s.For(target=s.Name(id=name)):
            yield name, None


def _position(access: Access) -> int | None:
    """Where the field stands among the targets that a value is taken apart into."""
    if isinstance(access.statement, s.Assign) and access.kind == "assign":
        for target in access.statement.targets:
            if isinstance(target, s.Seq) and not isinstance(access.value, s.Seq):
                for at, item in enumerate(target.items):
                    if item is access.node:
                        return at
    return None
