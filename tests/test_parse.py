"""Reading a module: what is kept of it, its lines, and what does not stop it."""

import multiprocessing
import os
import signal
import textwrap
from pathlib import Path

import libcst as cst
import pytest
from index_support import sources
from trees import write_tree

from sgltrace.index.facts import parse, syntax, trial
from sgltrace.index.facts.lines import CALL, LibcstLines, Lines, lines_of_statements
from sgltrace.index.facts.parse import parse_source
from sgltrace.index.facts.store import Facts
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source


def facts(source: str) -> list[syntax.Stmt]:
    read = parse_source(textwrap.dedent(source))
    assert read.error is None
    return read.body


def function(source: str) -> syntax.Func:
    [found] = [statement for statement in facts(source) if isinstance(statement, syntax.Func)]
    return found


TRICKY = '''
"""A docstring."""
import os.path as path, sys
from . import sibling
from ..package import (name as other,
                       second)

@decorator(argument)[0]
class Class(Base, Generic[T], metaclass=Meta):
    field: "Optional[Thing]" = None
    pair: dict[str, "list[int]"]

    @property
    def value(self, *rest, default=make(1), **options) -> "Thing":
        return self.a.b(self.c[0], *rest, key=f"{self.d.e:{width()}}", **options).f

async def run(a, /, b=call(2), *, c: int = other(3)):
    async with open(a) as handle, lock():
        yield await handle.read()
    if a: pass
    elif b.c: return
    else: x = [i.j for i in b() if i.k() for l in i.m] or {k.a: v.b for k, v in c.items()}
    try:
        del a[0], b.c
    except (Error.one, Two) as error: raise error.wrap() from a.b
    else: y = z = lambda q=a.b: q.c(1)
    finally: (p := a.q)()
    match a.kind:
        case Kind.ONE | Kind.TWO if a.b(): pass
        case Point(x=Kind.Z) as point: point.move()
        case {"key": Kind.K, **rest}: rest.pop()
        case [first, *others]: break_()
    while True:
        a.b += a.c if a.d else a.e
        break
'''


def test_lines_from_ast_equal_those_of_libcst():
    module = cst.parse_module(TRICKY)
    slow = parse._Converter(LibcstLines(module)).body(module.body)
    assert syntax.encode(parse_source(TRICKY)) == syntax.encode(syntax.ModuleFacts(slow))


def test_syntax_that_ast_cannot_read_falls_back_to_libcst(monkeypatch: pytest.MonkeyPatch):
    def refuse(source: str) -> list[Lines]:
        raise SyntaxError

    expected = syntax.encode(parse_source(TRICKY))
    monkeypatch.setattr(parse, "lines_of_statements", refuse)
    assert syntax.encode(parse_source(TRICKY)) == expected


def test_facts_survive_encoding():
    read = parse_source(TRICKY)
    again = syntax.decode(syntax.encode(read))
    assert syntax.encode(again) == syntax.encode(read)


def test_a_call_keeps_receiver_arguments_and_line():
    [statement] = function(
        """
        def f(self):
            return self.worker.forward(
                batch, *rest, mode=1)
        """
    ).statements()
    assert isinstance(statement, syntax.Return)
    call = statement.value
    assert isinstance(call, syntax.Call) and call.line == 3
    assert isinstance(call.func, syntax.Attr) and call.func.attr == "forward"
    assert [arg.name for arg in call.args] == [None, "*", "mode"]


def test_quoted_annotations_are_parsed_and_literals_are_not():
    [first, second] = facts('a: Optional["pkg.Req"]\nb: Literal["on"]')
    assert isinstance(first, syntax.AnnAssign) and isinstance(first.annotation, syntax.Sub)
    assert isinstance(first.annotation.index, syntax.Attr) and first.annotation.index.attr == "Req"
    assert isinstance(second, syntax.AnnAssign) and isinstance(second.annotation, syntax.Sub)
    assert isinstance(second.annotation.index, syntax.Const) and second.annotation.index.value == "on"


def test_a_function_knows_its_span_and_whether_it_yields():
    found = function("@cache\ndef f():\n    def inner():\n        yield 1\n    return inner\n")
    assert (found.line, found.end_line, found.is_generator) == (2, 5, False)
    inner = found.statements()[0]
    assert isinstance(inner, syntax.Func) and inner.is_generator


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\r\ny = 2\r\n",
        "\x0cx = 1\n",
        "if x:\n\ty = 1\n",
        "x = '\\ud800'\n",
        "x = 10**400 + 0xffffffffffffffffff\n",
        "x = " + "9" * 5000 + "\n",
        'x = t"{a.b()} and {c!r:>{width}}"\n',
        "def f(a: '" + "a." * 6500 + "b'): pass\n",
    ],
)
def test_odd_but_legal_files_are_read(source: str):
    assert parse_source(source).error is None
    syntax.encode(parse_source(source))


@pytest.mark.parametrize(
    "source",
    [
        "print 'two'\n",
        "def f(:\n",
        "x = " + "(" * 5000 + ")" * 5000,
        "x = " + "not " * 20000 + "y",
        "x = " + "a and " * 20000 + "a",
        "x = a" + ".b" * 20000,
        "x = a" + ".b" * 6500,
        "x = a" + "[0]" * 1000,
        "if a: pass\n" + "elif a: pass\n" * 600,
        't""; x = ' + "lambda: " * 7000 + "y",
    ],
)
def test_a_file_that_does_not_parse_says_why(source: str):
    read = parse_source(source)
    assert read.body == [] and read.error


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("x = 1\n<<<<<<< HEAD\ny = 2\n", "line 2: invalid syntax"),
        ("class A:\n    def f(self): pass\n<<<<<<< HEAD\n    x = 1\n=======\n", "line 3: invalid syntax"),
        ("x = 1\nprint 'a'\n", "line 2: Missing parentheses in call to 'print'"),
        ("a = (1,\n\nb = 2\n", "line 1: '(' was never closed"),
        ("x = 1\n  y = 2\n", "line 2: unexpected indent"),
        ('x = t"{a}"\n' + "y = 1\n" * 9 + "<<<<<<< HEAD\n", "line 11: invalid syntax"),
    ],
)
def test_a_file_that_does_not_parse_names_its_line(source: str, why: str):
    assert str(parse_source(source).error).startswith(why)


def test_a_parser_that_does_not_come_to_an_end_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trial, "LONGEST_S", 1)
    read = parse_source('t""; x = a' + "[0]" * 4000)
    assert read.body == [] and read.error == "LibCST's parser does not come to an end with it in 1 seconds"


def test_a_reader_that_dies_takes_no_other_file_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = [f"m{i}" for i in range(8)]
    write_tree(tmp_path, sources({name: "x = 1\n" if name != "m3" else "die()\n" for name in names}))
    tree = open_source(str(tmp_path), cache_dir=tmp_path, progress=SilentProgress())
    parsed = parse.parse_source

    def parse_or_die(source: str) -> syntax.ModuleFacts:
        if "die" in source and multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return parsed(source)

    monkeypatch.setattr(parse, "parse_source", parse_or_die)
    with Facts(tree, None, jobs=2) as kept:
        modules = [f"sglang.srt.{name}" for name in names]
        kept.prefetch(modules)
        errors = {module: kept.get(module).error for module in modules}
    culprit = errors.pop("sglang.srt.m3")
    assert culprit is not None and "its reader died" in culprit
    assert set(errors.values()) == {None}


def test_lines_of_a_long_statement_come_in_source_order():
    [lines] = lines_of_statements("a(\n b(),\n c=d(),\n *e())\n")
    assert (lines.first, lines.last) == (1, 4)
    assert lines.inside is not None and lines.inside[CALL] == [1, 2, 3, 4]


def test_a_body_behind_its_long_head_has_the_line_of_the_head_s_end():
    [statement] = facts("if (a.b and\n    c()): d()\n")
    assert isinstance(statement, syntax.If) and isinstance(statement.test, syntax.Bool)
    assert [syntax.line_of(part) for part in (statement.test.left, statement.test.right)] == [1, 2]
    assert syntax.line_of(statement.body[0]) == 2


def test_white_space_is_there_again_for_others():
    facts("x = 1  # one")
    assert cst.parse_module("x = 1  # one").code == "x = 1  # one"
