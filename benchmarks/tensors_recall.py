"""How many of a reference's tensor rows are derived, and equal to what an expert wrote after simplification.

    python benchmarks/tensors_recall.py REFERENCE.json SRC

``REFERENCE.json`` lists tensors with a stage, a name, a shape in its own symbols, a producer and consumers. A row
counts where its shape is a formula. It is found where a derived tensor of the path has an equal shape (by SymPy) and
either the row's name, at one of its functions, or its place: an end's function, at most two lines away. With
``--places`` only places count, as for a copy in which names were changed. Exit code 1 below ``--least``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import sympy

from sgltrace.files import user_cache_dir
from sgltrace.index import IndexOptions, analyse
from sgltrace.index.fields import field_flow
from sgltrace.index.shapes import tensors
from sgltrace.model import Tensor
from sgltrace.progress import SilentProgress
from sgltrace.sources import open_source

# What the reference calls our symbols. Its H is the draft's width or the target's, by where the tensor comes from. The
# rows that only the values tell (accepted tokens) are ours as ``some(most)``; U is a batch where nothing has finished.
SYMBOLS = {
    "B": ["bs"], "T": ["topk"], "K": ["num_steps"], "D": ["num_draft_tokens"], "P": ["page_size"],
    "H": ["draft_hidden_size", "hidden_size"], "H_t": ["hidden_size", "draft_hidden_size"],
    "c_i": ["kv_committed_len"], "a_i": ["kv_allocated_len"], "V": ["vocab_size"],
    "V_draft": ["draft_vocab_size", "vocab_size"], "max_bs": ["max_bs"], "U": ["bs"],
}  # fmt: skip
WORDS = {"sum(n)": "seq_lens_sum", "sum_i n_i": "seq_lens_sum", "sum_i A_i": "accepted",
         "sum over U of A_i": "accepted"}  # fmt: skip
_FORMULA = re.compile(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)")


def main() -> int:
    """Score one release."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reference", type=Path)
    parser.add_argument("source")
    parser.add_argument("--least", type=float, default=0.8)
    parser.add_argument("--places", action="store_true")
    parser.add_argument("--renamed", type=Path, help="the renamed.json of a copy made by renamed_copy.py")
    arguments = parser.parse_args()
    reference = json.loads(arguments.reference.read_text())
    if arguments.renamed:
        rename(reference, json.loads(arguments.renamed.read_text()))
    tree = open_source(arguments.source, cache_dir=user_cache_dir(), progress=SilentProgress())
    program = analyse(tree, IndexOptions(), SilentProgress())
    derived = tensors(program, field_flow(program))
    asked = hit = 0
    for row in reference["tensors"]:
        parts = row_parts(row)
        for name, shape in parts:
            asked += 1
            found = [
                t
                for t in derived
                if t.path == row["path"] and is_about(t, name, row, arguments.places) and equal(t, shape)
            ]
            hit += bool(found)
            where = f"{found[0].stage}: {found[0].name} = {found[0].shape}" if found else nearest(derived, name, row)
            print(f"{'ok  ' if found else 'MISS'} {row['stage']:28} {name:24} {shape:24} {where}")
    print(f"{hit} of {asked} formulas: {hit / asked:.2f}")
    return 0 if hit / asked >= arguments.least else 1


def rename(reference: dict[str, Any], names: dict[str, str]) -> None:
    """Give the functions of a reference the names that they have in the copy."""
    for row in reference["tensors"]:
        for end in (row["producer"], *row["consumers"]):
            module, _, qualname = end["function"].partition(":")
            end["function"] = f"{module}:{'.'.join(names.get(part, part) for part in qualname.split('.'))}"


def row_parts(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The names of a row, each with its formula: ``a / b`` and ``(B,T) / (B,H)`` go together."""
    names = [re.split(r"[ =(]", part.strip())[0] for part in re.split(r" / | = ", row["name"])]
    names = [name.rpartition(".")[2] for name in names]
    formulas = [f"({inner})" for inner in _FORMULA.findall(row["shape"])]
    counts = re.findall(r"\[(\w+)\]\*(\w+)", row["shape"])
    if counts:
        formulas = [f"[{item}]*{count}" for item, count in counts] + [row["shape"].rpartition("= ")[2]]
        names = [names[0], "extend_num_tokens"]
    formulas = [formula for formula in formulas if re.search(r"[A-Za-z]", formula) and ":" not in formula]
    if "x_i = " in row["shape"]:
        formulas = ["(sum(c_i + 2*max(K*T, D) - a_i),)"]
    if len(names) == len(formulas):
        return list(zip(names, formulas, strict=True))
    return [(name, formula) for name in names for formula in (formulas if len(names) == 1 else formulas[:1])]


def is_about(tensor: Tensor, name: str, row: dict[str, Any], places: bool) -> bool:
    """Whether a derived tensor is the row's: by name at one of its functions, or by place."""
    ends = {row["producer"]["function"], *(use["function"] for use in row["consumers"])}
    own = {tensor.producer.function, *(use.function for use in tensor.consumers)}
    if not places and tensor.name == name and (ends & own or tensor.stage == "graph buffers"):
        return True
    lines = [row["producer"], *row["consumers"]]
    here = [(tensor.producer.function, tensor.producer.line), *((u.function, u.line) for u in tensor.consumers)]
    return any(e["function"] == f and abs(e["line"] - line) <= 2 for e in lines for f, line in here)


def equal(tensor: Tensor, shape: str) -> bool:
    """Whether the derived shape is the row's."""
    if tensor.shape is None:
        return False
    for theirs, ours in WORDS.items():
        shape = shape.replace(theirs, ours)
    derived = tensor.shape.replace("some(bs*(num_steps + 1))", "accepted")
    return any(_same(own.removeprefix("slice"), shape) for own in derived.split(" or "))


def _same(own: str, shape: str) -> bool:
    ours, theirs = _dims(own), _dims(shape)
    if ours is None or theirs is None or len(ours) != len(theirs):
        return False
    return all(_same_dim(a, b) for a, b in zip(ours, theirs, strict=True))


def _dims(text: str) -> list[str] | None:
    """The dimensions of a shape; of ``[x] * n`` the element and the count; of a formula itself."""
    text = text.strip()
    listed = re.fullmatch(r"\[(.*)\] ?\* ?(.*)", text)
    if listed:
        return ["list", listed[1], listed[2]]
    if text.startswith("(") and text.endswith(")") and _closes(text):
        return [part.strip() for part in _split(text[1:-1]) if part.strip()]
    return [text]


def _closes(text: str) -> bool:
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return i == len(text) - 1
    return False


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _same_dim(ours: str, theirs: str) -> bool:
    if ours == theirs:
        return True
    try:
        known = {"max": sympy.Max, "min": sympy.Min, "sum": sympy.Function("sum")}
        own = sympy.sympify(ours.replace("//", "/"), locals=known)
        expected = sympy.sympify(theirs, locals=known | {name: sympy.Symbol(name) for name in SYMBOLS})
    except (sympy.SympifyError, SyntaxError, TypeError):
        return False
    if expected.has(sympy.Symbol("start")):  # where the ring of future slots has got to
        expected = expected.subs(sympy.Symbol("start"), sympy.Symbol("future_ct") + 1)
    return any(sympy.simplify(own - choice) == 0 for choice in _choices(expected))


def _choices(expected: sympy.Expr) -> list[sympy.Expr]:
    results = [expected]
    for name, targets in SYMBOLS.items():
        symbol = sympy.Symbol(name)
        if symbol in expected.free_symbols:
            results = [result.subs(symbol, sympy.Symbol(target)) for result in results for target in targets]
    return results


def nearest(derived: list[Tensor], name: str, row: dict[str, Any]) -> str:
    """What was derived under the name, for the reader."""
    shapes = {f"{t.stage}: {t.shape}" for t in derived if t.path == row["path"] and t.name == name}
    return "; ".join(sorted(shapes)[:3])[:120]


if __name__ == "__main__":
    sys.exit(main())
