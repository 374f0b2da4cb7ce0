"""Small pieces of the report: visible characters, file names, highlighting, layout, ordering."""

from __future__ import annotations

import inspect
import json
import re
from random import Random

import pytest
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String
from sample_index import FILES

from sgltrace.reports import graph, layout, links, source, text
from sgltrace.reports.site import ASSETS, BETWEEN, page_json, prose


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "plain"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("a\u202eb", "a⟦U+202E⟧b"),
        ("\x1b[31m", "⟦U+001B⟧[31m"),
        ("zero\u200bwidth\ufeff", "zero⟦U+200B⟧width⟦U+FEFF⟧"),
        ("\ud800", "⟦U+D800⟧"),
        (BETWEEN, "⟦U+001E⟧"),
        ("größe 大きさ", "größe 大きさ"),
    ],
)
def test_hidden_characters_are_written_out(given, shown):
    assert text.visible(given) == shown


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "<x>", "a" * 300, "", "..", "nul\0"])
def test_a_file_name_stays_in_its_folder(name):
    made = text.file_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_.~-]*", made) and len(made) < 120 and not made.startswith(".")


def test_json_in_a_script_cannot_end_it():
    made = page_json(["</script><!--", "\x1b\u202e", "\\u001b"])
    assert "<" not in made
    assert json.loads(made) == ["</script><!--", "⟦U+001B⟧⟦U+202E⟧", "\\u001b"]


SOURCES = [inspect.getsource(module) for module in (graph, layout, links, source, text)] + list(FILES.values())
# The first that holds a token's kind says its class.
KINDS = (
    (Keyword.Constant, "kc"), (Keyword.Type, ""), (Keyword, "k"), (Operator.Word, "k"), (Name.Function, "nf"),
    (Name.Class, "nf"), (Name.Decorator, "nd"), (Comment, "c"), (String, "s"), (Number, "m"),
)  # fmt: skip


def by_pygments(code: str) -> list[tuple[str, str]]:
    """Tokens with a class of the report's. Strings are one whatever is in them, and the rest is left out."""
    found: list[tuple[str, str]] = []
    for kind, value in PythonLexer(stripnl=False).get_tokens(code):
        name = "bp" if value in ("self", "cls") else next((name for outer, name in KINDS if kind in outer), "")
        if name == "s" and found and found[-1][0] == "s":
            continue
        if name:
            found += [("s", "")] if name == "s" else [(name, part) for part in value.split()]
    return found


@pytest.fixture(scope="module")
def tokens(browser):
    """Splits code as the report's script does: (class, text) of all of it."""
    page = browser.new_page()
    page.evaluate("window.sgl = {}")
    page.evaluate((ASSETS / "code.js").read_text())
    yield lambda code: [tuple(pair) for pair in page.evaluate("code => sgl.tokens(code)", code)]
    page.close()


@pytest.mark.parametrize("code", SOURCES, ids=range(len(SOURCES)))
def test_highlighting_agrees_with_pygments(code, tokens):
    code = re.sub(r"\bf(?=[\"'])", "", code)  # Pygments looks into the fields of an f-string
    found: list[tuple[str, str]] = []
    for name, value in tokens(code):
        if name == "s" and found and found[-1][0] == "s":
            continue
        if name:
            found += [("s", "")] if name == "s" else [(name, part) for part in value.split()]
    assert found == by_pygments(code)


def test_highlighting_loses_nothing_of_any_text(tokens):
    random = Random(7)
    parts = [
        "def ", "class", " ", "\n", '"', "'", '"""', "#", "\\", "f", "rb", "1.5e-3", "@x.y", "<b>", "&", "x", ".",
        "self", "ü", "0x", "1_", "_", "1e",
    ]  # fmt: skip
    codes = ["".join(random.choices(parts, k=random.randint(1, 14))) for _ in range(500)]
    for code in codes:
        assert "".join(text for _, text in tokens(code)) == code


def test_lines_are_counted_as_python_counts_them():
    reader = source.SourceReader(type("S", (), {"read": lambda self, path: b"\xef\xbb\xbfa\r\nb\x0cc\rd"})())
    assert reader.lines("x.py") == ["a", "b\x0cc", "d"]


def test_marked_lines_that_meet_share_an_excerpt():
    reader = source.SourceReader(
        type("S", (), {"read": lambda self, path: b"\n".join(b"x%d" % i for i in range(1, 60))})()
    )
    found = reader.around("x.py", (1, 59), {5: "a", 12: "b", 40: "c"}, 4)
    assert [(e.first, e.last, list(e.notes)) for e in found] == [(1, 16, [5, 12]), (36, 44, [40])]


def test_the_layout_has_every_function_once_and_no_card_over_another():
    modules = {
        f"c{c}": {f"m{c}.{m}": [f"f{i}" for i in range((m * 7 + c) % 40 + 1)] for m in range(9)} for c in range(7)
    }
    made = layout.layout(modules)
    assert [card.functions for card in made.cards] == [rows for by in modules.values() for rows in by.values()]
    boxes = [(card.x, card.y, card.x + layout.CARD_WIDTH, card.y + card.height) for card in made.cards]
    for at, (ax, ay, bx, by) in enumerate(boxes):
        assert ax >= 0 and bx <= made.width and by <= made.height
        for cx, cy, dx, dy in boxes[at + 1 :]:
            assert bx <= cx or dx <= ax or by <= cy or dy <= ay


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("set `a.b` first", "set <code>a.b</code> first"),
        ("`<b>` & more", "<code>&lt;b&gt;</code> &amp; more"),
        ("a ` alone", "a ` alone"),
        ("`a` and ` alone", "<code>a</code> and ` alone"),
        ("", ""),
    ],
)
def test_backticks_are_code(text, made):
    assert str(prose(text)) == made
