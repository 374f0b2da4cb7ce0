"""Integers as polynomials over named symbols: what a dimension of a tensor, or a count, is.

SymPy would say the same and is some hundred times slower for the sums and products that a shape needs, so it
comes in only when a formula leaves the interpreter (see ``formulas``). What is not a polynomial (a maximum, a
rounded quotient, a sum over the requests of a batch) is an atom of its own, compared by its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Union


class Op(NamedTuple):
    """An atom that is not a symbol: ``max``, ``min``, ``//``, ``%``, ``**`` or ``sum`` of its arguments."""

    name: str
    args: tuple[Dim, ...]

    def __str__(self) -> str:
        first, *rest = (str(arg) for arg in self.args)
        if self.name in ("//", "%", "**"):
            return f"{_bracket(first)}{self.name}{_bracket(rest[0])}"
        name = "some" if self.name == "perhaps" else self.name
        return f"{name}({', '.join([first, *rest])})"


Atom = Union[str, Op]  # noqa: UP007 (evaluated at run time)
Monomial = tuple[tuple[Atom, int], ...]


class Dim:
    """An integer polynomial. Immutable; equal polynomials compare equal."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms: dict[Monomial, int] = {m: c for m, c in terms.items() if c}
        self._hash = hash(frozenset(self.terms.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __add__(self, other: Dim) -> Dim:
        terms = dict(self.terms)
        for monomial, count in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + count
        return Dim(terms)

    def __neg__(self) -> Dim:
        return Dim({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __mul__(self, other: Dim) -> Dim:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                product = _times(left, right)
                terms[product] = terms.get(product, 0) + a * b
        return Dim(terms)

    def __floordiv__(self, other: Dim) -> Dim:
        exact = self.exact_quotient(other)
        return exact if exact is not None else atom(Op("//", (self, other)))

    def __mod__(self, other: Dim) -> Dim:
        if self.constant is not None and other.constant:
            return const(self.constant % other.constant)
        if self.exact_quotient(other) is not None:
            return ZERO
        return atom(Op("%", (self, other)))

    def __pow__(self, other: Dim) -> Dim:
        power = other.constant
        if power is not None and 0 <= power <= 4:
            result = ONE
            for _ in range(power):
                result = result * self
            return result
        return atom(Op("**", (self, other)))

    @property
    def constant(self) -> int | None:
        """The value, where no symbol is left."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and () in self.terms:
            return self.terms[()]
        return None

    @property
    def is_positive(self) -> bool:
        """Whether it is above zero whatever its symbols are: sizes, counts and configured widths are at least 1."""
        return bool(self.terms) and all(c > 0 and not _may_vanish(m) for m, c in self.terms.items())

    def exact_quotient(self, other: Dim) -> Dim | None:
        """``self / other`` where that is a polynomial with whole coefficients, else None."""
        if not other.terms:
            return None
        lead, lead_count = max(other.terms.items(), key=lambda term: _rank(term[0]))
        rest, quotient = self, ZERO
        while rest.terms:
            top, top_count = max(rest.terms.items(), key=lambda term: _rank(term[0]))
            left = _over(top, lead)
            if left is None or top_count % lead_count:
                return None
            step = Dim({left: top_count // lead_count})
            quotient, rest = quotient + step, rest - step * other
        return quotient

    def substitute(self, values: Mapping[str, Dim]) -> Dim:
        """The polynomial with symbols replaced, also inside atoms."""
        if not any(name in values for name in self.symbols()):
            return self
        total = ZERO
        for monomial, count in self.terms.items():
            product = const(count)
            for base, power in monomial:
                product = product * _replace(base, values) ** const(power)
            total = total + product
        return total

    def symbols(self) -> set[str]:
        """The names in it, also inside atoms."""
        names: set[str] = set()
        for monomial in self.terms:
            for base, _ in monomial:
                if isinstance(base, str):
                    names.add(base)
                else:
                    for arg in base.args:
                        names |= arg.symbols()
        return names

    @property
    def is_perhaps(self) -> bool:
        """Whether it counts what a list may not have taken up."""
        bases = (base for monomial in self.terms for base, _ in monomial if isinstance(base, Op))
        return any(base.name == "perhaps" or any(arg.is_perhaps for arg in base.args) for base in bases)

    def has_power_of(self, names: Iterable[str]) -> bool:
        """Whether one of the symbols is multiplied by itself."""
        wanted: set[Atom] = set(names)
        return any(power > 1 and base in wanted for monomial in self.terms for base, power in monomial)

    def __repr__(self) -> str:
        return f"Dim({self})"

    def __str__(self) -> str:
        """``bs*(num_steps + 1)``: the common factor in front, constants last."""
        if not self.terms:
            return "0"
        if len(self.terms) == 1:
            ((monomial, count),) = self.terms.items()
            return _term(monomial, count)
        common = _common(self.terms)
        inner = _sum({_over(m, common) or (): c for m, c in self.terms.items()}) if common else _sum(self.terms)
        return f"{_term(common, 1)}*({inner})" if common else inner


def symbol(name: str) -> Dim:
    """A named unknown."""
    return atom(name)


def atom(base: Atom) -> Dim:
    """An atom as a polynomial."""
    return Dim({((base, 1),): 1})


def const(value: int) -> Dim:
    """A whole number."""
    return Dim({(): value})


def maximum(dims: Iterable[Dim]) -> Dim:
    """``max``: of constants, and of dims that differ by a constant, what it is; else an atom."""
    return _extreme("max", dims)


def minimum(dims: Iterable[Dim]) -> Dim:
    """``min``, like ``maximum``."""
    return _extreme("min", dims)


def sum_over(dim: Dim, what: str) -> Dim:
    """``dim`` added up over the elements of ``what``, each of which may give it another value."""
    return atom(Op("sum", (dim, symbol(what))))


def some_of(dim: Dim) -> Dim:
    """A number that only the values tell: at least 1, at most ``dim``."""
    if dim == ZERO or (len(dim.terms) == 1 and _is_some(next(iter(dim.terms)))):
        return dim
    return atom(Op("some", (dim,)))


def perhaps(dim: Dim) -> Dim:
    """How many of so many elements a list has taken up: all or none, by a test whose outcome is not known."""
    if dim == ZERO or (len(dim.terms) == 1 and _is_some(next(iter(dim.terms)))):
        return dim
    return atom(Op("perhaps", (dim,)))


def times(count: Dim, turns: Dim) -> Dim:
    """``count`` in each of so many turns; some in each is some of all."""
    if len(count.terms) == 1 and _is_some(next(iter(count.terms))):
        base = next(iter(count.terms))[0][0]
        assert isinstance(base, Op)
        return (some_of if base.name == "some" else perhaps)(base.args[0] * turns)
    return count * turns


def _may_vanish(monomial: Monomial) -> bool:
    return any(isinstance(base, Op) and base.name in ("%", "//") for base, _ in monomial)


def _is_some(monomial: Monomial) -> bool:
    return len(monomial) == 1 and isinstance(monomial[0][0], Op) and monomial[0][0].name in ("some", "perhaps")


def product(dims: Iterable[Dim]) -> Dim:
    """The product of the dimensions; 1 for none."""
    result = ONE
    for dim in dims:
        result = result * dim
    return result


def _extreme(name: str, dims: Iterable[Dim]) -> Dim:
    kept: list[Dim] = []
    for dim in dims:
        for i, other in enumerate(kept):
            gap = (dim - other).constant
            if gap is not None:
                kept[i] = dim if (gap > 0) == (name == "max") else other
                break
        else:
            kept.append(dim)
    if len(kept) == 1:
        return kept[0]
    return atom(Op(name, tuple(sorted(kept, key=str))))


def _replace(base: Atom, values: Mapping[str, Dim]) -> Dim:
    if isinstance(base, str):
        return values.get(base, atom(base))
    args = tuple(arg.substitute(values) for arg in base.args)
    match base.name:
        case "max":
            return maximum(args)
        case "min":
            return minimum(args)
        case "//":
            return args[0] // args[1]
        case "%":
            return args[0] % args[1]
        case "**":
            return args[0] ** args[1]
        case "some":
            return some_of(args[0])
        case "perhaps":
            return perhaps(args[0])
    return atom(Op(base.name, args))


def _times(left: Monomial, right: Monomial) -> Monomial:
    if not left:
        return right
    if not right:
        return left
    powers = dict(left)
    for base, power in right:
        powers[base] = powers.get(base, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _over(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    powers = dict(monomial)
    for base, power in divisor:
        if powers.get(base, 0) < power:
            return None
        powers[base] -= power
    return tuple((base, power) for base, power in monomial if powers[base] for power in [powers[base]])


def _rank(monomial: Monomial) -> tuple[int, str]:
    return sum(power for _, power in monomial), str(monomial)


def _common(terms: Mapping[Monomial, int]) -> Monomial:
    first, *rest = terms
    powers = dict(first)
    for monomial in rest:
        other = dict(monomial)
        powers = {base: min(power, other[base]) for base, power in powers.items() if base in other}
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _sum(terms: Mapping[Monomial, int]) -> str:
    parts = sorted(terms.items(), key=lambda term: (-sum(power for _, power in term[0]), str(term[0])))
    if parts[0][1] < 0:
        parts.sort(key=lambda term: term[1] < 0)
    text = _term(*parts[0])
    for monomial, count in parts[1:]:
        text += f" - {_term(monomial, -count)}" if count < 0 else f" + {_term(monomial, count)}"
    return text


def _term(monomial: Monomial, count: int) -> str:
    factors = [str(base) if power == 1 else f"{_bracket(str(base))}**{power}" for base, power in monomial]
    factors = [_bracket(f) if isinstance(base, Op) and base.name in ("//", "%", "**") and len(monomial) > 1 else f
               for f, (base, _) in zip(factors, monomial, strict=True)]  # fmt: skip
    if not factors:
        return str(count)
    if count == 1:
        return "*".join(factors)
    return "-" + "*".join(factors) if count == -1 else "*".join([str(count), *factors])


def _bracket(text: str) -> str:
    return text if text.replace("_", "").replace(".", "").isalnum() else f"({text})"


ZERO = Dim({})
ONE = const(1)
