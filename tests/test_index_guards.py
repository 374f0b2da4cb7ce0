"""The conditions around a place, and expressions as text."""

from __future__ import annotations

import textwrap

import pytest

from sgltrace.index.facts import syntax as s
from sgltrace.index.facts.guards import Guards, expressions
from sgltrace.index.facts.parse import parse_source
from sgltrace.index.facts.text import text
from sgltrace.index.program.conditions import known_of, truth


def guards_of_mark(source: str) -> list[tuple[str, bool, str]]:
    """The guards around the call of ``mark``."""
    body = parse_source(textwrap.dedent(source)).body
    [function] = body
    assert isinstance(function, s.Func)
    statements = function.statements()
    guards = Guards(statements)
    [call] = [e for e in _all(statements) if isinstance(e, s.Call) and text(e.func) == "mark"]
    return [(c.guard.text, c.guard.holds, c.guard.kind) for c in guards.at(call)]


def _all(body: list[s.Stmt]):
    for statement in body:
        direct = expressions(statement) or [getattr(statement, "test", None) or getattr(statement, "iter", None)]
        for expression in direct:
            if expression is not None:
                yield from s.descend(expression)
        for inner in s.blocks(statement):
            yield from _all(inner)


@pytest.mark.parametrize(
    ("source", "guards"),
    [
        ("def f():\n if a:\n  mark()\n", [("a", True, "if")]),
        ("def f():\n if a: pass\n elif b: mark()\n", [("a", False, "if"), ("b", True, "if")]),
        ("def f():\n if a: return\n mark()\n", [("a", False, "return")]),
        ("def f():\n if a: raise X\n elif b: return\n mark()\n", [("a", False, "return"), ("b", False, "return")]),
        ("def f():\n if a: x()\n else: return\n mark()\n", [("a", True, "return")]),
        ("def f():\n for x in xs:\n  if a: continue\n  mark()\n", [("xs", True, "loop"), ("a", False, "return")]),
        ("def f():\n for x in xs:\n  if a: break\n mark()\n", []),
        ("def f():\n x = a and mark()\n", [("a", True, "if")]),
        ("def f():\n x = a or mark()\n", [("a", False, "if")]),
        ("def f():\n x = 1 if a else mark()\n", [("a", False, "if")]),
        ("def f():\n try: mark()\n except E: pass\n", [("", True, "try")]),
        ("def f():\n try: pass\n except E: mark()\n", [("E", True, "except")]),
        ("def f():\n with a: mark()\n", []),
        ("def f():\n assert a\n mark()\n", [("a", True, "assert")]),
        ("def f():\n x = [mark() for y in ys if a]\n", [("a", True, "if")]),
        ("def f():\n match a:\n  case 1: mark()\n", [("1", True, "case")]),
    ],
)
def test_guards(source: str, guards: list[tuple[str, bool, str]]):
    assert guards_of_mark(source) == guards


@pytest.mark.parametrize(
    "expression",
    [
        "a.b(c, *d, e=f, **g)[0]",
        "x[1:2, ::3]",
        "(a + b) * c - d ** 2",
        "not (a and b) or c",
        "a < b <= c is not None",
        "a if b else c",
        "lambda x, *y: x + 1",
        "[x for x in xs if x.ok()]",
        "{k: v for k, v in d.items()}",
        "{'a': 1, **rest}",
        "(a,)",
        "-x @ y",
        "(n := 1)",
    ],
)
def test_text_is_the_source(expression: str):
    [statement] = parse_source(f"x = {expression}\n").body
    assert isinstance(statement, s.Assign)
    assert text(statement.value) == expression


@pytest.mark.parametrize(
    ("test", "known", "answer"),
    [
        ("self.spec.is_none()", {"spec.is_none": False}, False),
        ("not batch.is_spec_v2", {"is_spec_v2": True}, False),
        ("a and unknown", {"a": False}, False),
        ("a or unknown", {"a": False}, None),
        ("a or unknown", {"a": True}, True),
        ("other.is_none()", {"spec.is_none": False}, None),
        ("f(a)", {"f": True}, None),
    ],
)
def test_truth(test: str, known: dict[str, bool], answer: bool | None):
    [statement] = parse_source(f"x = {test}\n").body
    assert isinstance(statement, s.Assign)
    assert truth(statement.value, lambda asked: known_of(asked, known)) is answer
