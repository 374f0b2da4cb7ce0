"""Modules without the bodies of their functions."""

import ast

import pytest

from sgltrace.index.facts.outline import without_bodies


def test_bodies_go_and_lines_stay():
    source = "class A:\n    x = 1\n\n    def f(self):\n        a()\n        return 1\n\n    y = 2\n"
    outline = without_bodies(source)
    assert outline.count("\n") == source.count("\n")
    assert "a()" not in outline and outline.splitlines()[7] == "    y = 2"
    assert [type(node) for node in ast.parse(outline).body] == [ast.ClassDef]


@pytest.mark.parametrize(
    "source",
    [
        "def f(\n    a,\n): ...\n",
        "def f(): return 1\n",
        "if x:\n    def f():\n        @d\n        def g(): pass\n        return g\n",
    ],
)
def test_an_outline_is_still_python(source):
    ast.parse(without_bodies(source))


def test_what_python_cannot_read_comes_back():
    assert without_bodies("print 'two'\n") == "print 'two'\n"
