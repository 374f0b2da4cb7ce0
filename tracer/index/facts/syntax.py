"""What is kept of a module once LibCST has read it: its statements and expressions, without white space.

These are the *facts* of a file: plain data that depends on no other module, so that files can be read in
parallel and kept on disk under the hash of their content. Function bodies stay encoded until somebody asks
for their statements, because most functions of a release are never asked for.

Nodes are compared and hashed by identity: two equal calls at two places are two call sites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Union, cast, get_args

import msgspec

FACTS_VERSION = 3
"""Counts up whenever the same source would give other facts; part of the key under which facts are kept."""


class _Node(msgspec.Struct, array_like=True, eq=False, gc=False):
    """An expression or statement."""


# --- expressions -----------------------------------------------------------------------------------------


class Name(_Node, tag="N"):
    """A name."""

    id: str


class Attr(_Node, tag="A"):
    """``value.attr``."""

    value: Expr
    attr: str
    line: int


class Arg(msgspec.Struct, array_like=True, eq=False, gc=False):
    """An argument of a call. ``name`` is None for a positional one, ``*`` or ``**`` for an unpacked one."""

    name: str | None
    value: Expr


class Call(_Node, tag="C"):
    """``func(args)``."""

    func: Expr
    args: list[Arg]
    line: int


class Sub(_Node, tag="S"):
    """``value[index]``; several subscripts make the index a tuple."""

    value: Expr
    index: Expr
    line: int


class Slice(_Node, tag="L"):
    """``lower:upper:step`` inside a subscript."""

    lower: Expr | None
    upper: Expr | None
    step: Expr | None


class Const(_Node, tag="K"):
    """A literal. Bytes are kept as their source text."""

    value: Union[str, int, float, bool, None]  # noqa: UP007 (msgspec reads it at run time)


class Ellipsis_(_Node, tag="E"):
    """``...``"""


class Seq(_Node, tag="T"):
    """A tuple, list or set display: ``kind`` is ``tuple``, ``list`` or ``set``."""

    kind: str
    items: list[Expr]


class Map(_Node, tag="M"):
    """A dict display. A key of None is ``**value``."""

    keys: list[Expr | None]
    values: list[Expr]


class Bin(_Node, tag="B"):
    """``left op right`` with an arithmetic or bitwise operator."""

    op: str
    left: Expr
    right: Expr


class Bool(_Node, tag="O"):
    """``and`` or ``or`` over two operands."""

    op: str
    left: Expr
    right: Expr


class Cmp(_Node, tag="P"):
    """``left ops[0] rights[0] ops[1] ...``"""

    left: Expr
    ops: list[str]
    rights: list[Expr]


class Unary(_Node, tag="U"):
    """``op value`` with ``not``, ``-``, ``+`` or ``~``."""

    op: str
    value: Expr


class Cond(_Node, tag="I"):
    """``body if test else orelse``."""

    body: Expr
    test: Expr
    orelse: Expr


class Lambda(_Node, tag="F"):
    """``lambda params: body``."""

    params: list[Param]
    body: Expr
    line: int


class Gen(msgspec.Struct, array_like=True, eq=False, gc=False):
    """One ``for target in iter if tests`` of a comprehension."""

    target: Expr
    iter: Expr
    tests: list[Expr]


class Comp(_Node, tag="G"):
    """A comprehension: ``kind`` is ``list``, ``set``, ``generator`` or ``dict`` (which has ``key``)."""

    kind: str
    element: Expr
    key: Expr | None
    gens: list[Gen]


class Star(_Node, tag="*"):
    """``*value`` in a display or an assignment target."""

    value: Expr


class Format(_Node, tag="J"):
    """An f-string: the expressions and literal parts in order."""

    parts: list[Expr]


class Walrus(_Node, tag=":"):
    """``(target := value)``."""

    target: str
    value: Expr


class Await(_Node, tag="W"):
    """``await value``, ``yield value`` or ``yield from value`` (``kind``)."""

    kind: str
    value: Expr | None


Expr = Union[  # noqa: UP007
    Name,
    Attr,
    Call,
    Sub,
    Slice,
    Const,
    Ellipsis_,
    Seq,
    Map,
    Bin,
    Bool,
    Cmp,
    Unary,
    Cond,
    Lambda,
    Comp,
    Star,
    Format,
    Walrus,
    Await,
]


class Param(msgspec.Struct, array_like=True, eq=False, gc=False):
    """A parameter: ``kind`` is ``/`` (positional only), ``""``, ``*`` (the rest), ``=`` (keyword only), ``**``."""

    name: str
    annotation: Expr | None
    default: Expr | None
    kind: str


# --- statements ------------------------------------------------------------------------------------------


class Assign(_Node, tag="assign"):
    """``targets[0] = targets[1] = ... = value``."""

    targets: list[Expr]
    value: Expr
    line: int


class AnnAssign(_Node, tag="ann"):
    """``target: annotation = value``. A quoted annotation is parsed."""

    target: Expr
    annotation: Expr
    value: Expr | None
    line: int


class AugAssign(_Node, tag="aug"):
    """``target op= value``, with the operator without its ``=``."""

    target: Expr
    op: str
    value: Expr
    line: int


class ExprStmt(_Node, tag="expr"):
    """An expression as a statement. Docstrings and other bare strings are left out."""

    value: Expr
    line: int


class Return(_Node, tag="return"):
    """``return value``."""

    value: Expr | None
    line: int


class Raise(_Node, tag="raise"):
    """``raise value``."""

    value: Expr | None
    line: int


class Jump(_Node, tag="jump"):
    """``break`` or ``continue``."""

    kind: str
    line: int


class Assert(_Node, tag="assert"):
    """``assert test``."""

    test: Expr
    line: int


class Delete(_Node, tag="del"):
    """``del targets``."""

    targets: list[Expr]
    line: int


class Scope(_Node, tag="scope"):
    """``global names`` or ``nonlocal names``."""

    kind: str
    names: list[str]


class Import(_Node, tag="import"):
    """``import module as name``: binds ``name`` (the first part of ``module`` where there is no ``as``)."""

    module: str
    asname: str | None
    line: int


class ImportFrom(_Node, tag="from"):
    """``from module import name as asname``; ``level`` counts the leading dots; a ``name`` of ``*`` is all."""

    module: str
    level: int
    names: list[tuple[str, str | None]]
    line: int


class If(_Node, tag="if"):
    """``if test: body else: orelse``; an ``elif`` is an If alone in ``orelse``."""

    test: Expr
    body: list[Stmt]
    orelse: list[Stmt]
    line: int


class For(_Node, tag="for"):
    """``for target in iter: body else: orelse``."""

    target: Expr
    iter: Expr
    body: list[Stmt]
    orelse: list[Stmt]
    line: int


class While(_Node, tag="while"):
    """``while test: body else: orelse``."""

    test: Expr
    body: list[Stmt]
    orelse: list[Stmt]
    line: int


class WithItem(msgspec.Struct, array_like=True, eq=False, gc=False):
    """One ``value as target``."""

    value: Expr
    target: Expr | None


class With(_Node, tag="with"):
    """``with items: body``."""

    items: list[WithItem]
    body: list[Stmt]
    line: int


class Handler(msgspec.Struct, array_like=True, eq=False, gc=False):
    """``except type as name: body``."""

    type: Expr | None
    name: str | None
    body: list[Stmt]


class Try(_Node, tag="try"):
    """``try: body except ...: else: orelse finally: final``."""

    body: list[Stmt]
    handlers: list[Handler]
    orelse: list[Stmt]
    final: list[Stmt]
    line: int


class Case(msgspec.Struct, array_like=True, eq=False, gc=False):
    """One ``case``: the expressions its pattern compares with, the names it binds, its guard and its body."""

    values: list[Expr]
    names: list[str]
    guard: Expr | None
    body: list[Stmt]


class Match(_Node, tag="match"):
    """``match subject: cases``."""

    subject: Expr
    cases: list[Case]
    line: int


_stmts: msgspec.msgpack.Decoder[list[Stmt]] | None = None
_encoder = msgspec.msgpack.Encoder()


class Func(_Node, tag="def"):
    """A function. Its statements stay encoded until ``statements()``."""

    name: str
    params: list[Param]
    decorators: list[Expr]
    returns: Expr | None
    body: msgspec.Raw
    line: int
    end_line: int
    is_async: bool
    is_generator: bool

    def statements(self) -> list[Stmt]:
        """Decode the body anew: the caller keeps it if it needs the nodes' identity."""
        global _stmts
        if _stmts is None:
            _stmts = msgspec.msgpack.Decoder(list[Stmt])
        return _stmts.decode(self.body)


class Class(_Node, tag="class"):
    """A class: ``keywords`` are those of its bases (``metaclass=``)."""

    name: str
    bases: list[Expr]
    keywords: list[Arg]
    decorators: list[Expr]
    body: list[Stmt]
    line: int
    end_line: int


Stmt = Union[  # noqa: UP007
    Assign,
    AnnAssign,
    AugAssign,
    ExprStmt,
    Return,
    Raise,
    Jump,
    Assert,
    Delete,
    Scope,
    Import,
    ImportFrom,
    If,
    For,
    While,
    With,
    Try,
    Match,
    Func,
    Class,
]


class ModuleFacts(msgspec.Struct, array_like=True, eq=False):
    """A module's statements, or why it has none. ``is_outline``: the bodies of its functions are left out."""

    body: list[Stmt]
    error: str | None = None
    is_outline: bool = False


_module: msgspec.msgpack.Decoder[ModuleFacts] | None = None


# What an encoded function body holds where it has such a statement or expression: looked for without decoding it.
NESTED_FUNCTION = b"\xa3def"
GLOBAL = b"\xa6global"
LAMBDA = b"\x94\xa1F"
RETURNED_NAME = b"\xa6return\x92\xa1N"
"""``return`` of a name, which follows as ``encode_text`` writes it."""
OWN_FIELD = b"\x94\xa6assign\x91\x94\xa1A\x92\xa1N\xa4self"
"""``self.field =``, of which the field follows likewise."""
IMPORTS = (b"\x95\xa4from", b"\x94\xa6import")


def encode(facts: ModuleFacts) -> bytes:
    """Facts as MessagePack."""
    return _encoder.encode(facts)


def encode_body(body: list[Stmt]) -> msgspec.Raw:
    """A function's statements, as ``Func.body`` holds them."""
    return msgspec.Raw(_encoder.encode(body))


def encode_text(text: str) -> bytes:
    """A string as it stands inside encoded facts."""
    return _encoder.encode(text)


def decode(data: bytes) -> ModuleFacts:
    """Facts from MessagePack; raises ``msgspec.DecodeError`` (``ValidationError`` too) on anything else."""
    global _module
    if _module is None:
        _module = msgspec.msgpack.Decoder(ModuleFacts)
    return _module.decode(data)


def children(node: Expr) -> Sequence[Expr]:
    """The expressions directly inside an expression, in source order (a lambda's body included)."""
    inside = _CHILDREN.get(type(node))
    return inside(node) if inside is not None else ()


def descend(node: Expr) -> Iterator[Expr]:
    """An expression and all expressions inside it, outer first, in source order."""
    stack: list[Expr] = [node]
    while stack:
        node = stack.pop()
        yield node
        inside = _CHILDREN.get(type(node))
        if inside is not None:
            stack += reversed(inside(node))


def _map_children(node: Map) -> list[Expr]:
    pairs = zip(node.keys, node.values, strict=True)
    return [part for pair in pairs for part in pair if part is not None]


def _comp_children(node: Comp) -> list[Expr]:
    out = [node.element] if node.key is None else [node.key, node.element]
    for gen in node.gens:
        out += (gen.target, gen.iter, *gen.tests)
    return out


_CHILDREN: dict[type, Callable[[Any], Sequence[Expr]]] = {
    Attr: lambda node: (node.value,),
    Star: lambda node: (node.value,),
    Unary: lambda node: (node.value,),
    Walrus: lambda node: (node.value,),
    Call: lambda node: [node.func, *[arg.value for arg in node.args]],
    Sub: lambda node: (node.value, node.index),
    Slice: lambda node: [part for part in (node.lower, node.upper, node.step) if part is not None],
    Seq: lambda node: node.items,
    Map: _map_children,
    Bin: lambda node: (node.left, node.right),
    Bool: lambda node: (node.left, node.right),
    Cmp: lambda node: [node.left, *node.rights],
    Cond: lambda node: (node.body, node.test, node.orelse),
    Lambda: lambda node: [*[p.default for p in node.params if p.default is not None], node.body],
    Comp: _comp_children,
    Format: lambda node: node.parts,
    Await: lambda node: () if node.value is None else (node.value,),
}


def blocks(statement: Stmt) -> list[list[Stmt]]:
    """The blocks of statements directly inside a statement of the same scope (not a function's or a class's)."""
    match statement:
        case If(body=body, orelse=orelse) | For(body=body, orelse=orelse) | While(body=body, orelse=orelse):
            return [body, orelse]
        case With(body=body):
            return [body]
        case Try(body=body, handlers=handlers, orelse=orelse, final=final):
            return [body, *(handler.body for handler in handlers), orelse, final]
        case Match(cases=cases):
            return [case.body for case in cases]
    return []


def nested(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Statements, and those inside them of the same scope: outer first, in source order."""
    for statement in body:
        yield statement
        for block in blocks(statement):
            yield from nested(block)


_EXPRESSIONS = get_args(Expr)


def line_of(node: Expr | Stmt) -> int:
    """The first line of a statement or expression that has one; 0 for one without (a name, a comparison of names)."""
    line = int(getattr(node, "line", 0))
    if line or not isinstance(node, _EXPRESSIONS):
        return line
    lines = (getattr(part, "line", 0) for part in descend(cast(Expr, node)))
    return next((int(line) for line in lines if line), 0)
