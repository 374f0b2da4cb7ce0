"""What one function does that the rules care for, as records.

Each has its line and the regime in which it runs: ``spec`` where a condition around it (or an early return before
it) selects speculation, ``plain`` where one excludes it, None where no condition says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sgltrace.coupling.regime import Reading
from sgltrace.index.facts import syntax as s


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
    cls: str | None = None
    """The class of the object that it is made on, where it is known."""
    loops: int = 0
    """In how many loops it stands."""


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
    width_tests: list[tuple[int, s.Expr]] = field(default_factory=list)
    """Conditions that compare a speculative width with zero."""
    calls: list[Call] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    strides: list[Stride] = field(default_factory=list)
    local: dict[str, s.Expr] = field(default_factory=dict)
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


def class_defaults(node: s.Class) -> dict[str, s.Expr]:
    """What the annotated fields of a class are where nothing sets them."""
    return {
        statement.target.id: statement.value
        for statement in node.body
        if isinstance(statement, s.AnnAssign) and isinstance(statement.target, s.Name) and statement.value is not None
    }


Item = Access | Branch | Call | Mention | Refusal | Stride
"""Something that was found at a line."""
