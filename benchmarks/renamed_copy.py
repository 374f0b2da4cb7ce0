"""Make a copy of a source tree in which functions and local variables have other names.

    python benchmarks/renamed_copy.py FOLDER COPY

An analysis that knows a release's functions by name finds less in the copy. Names that the vocabulary has stay, and so
do fields, classes, parameters, and function names that may mean something outside the tree or are looked up as text.
The mapping of function names is written to ``COPY/renamed.json``.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import json
import keyword
import re
import sys
import tokenize
from io import StringIO
from pathlib import Path

import sgltrace

VOCABULARY = Path(sgltrace.__file__).parent / "vocabulary.toml"
WORD = re.compile(r"[A-Za-z_]\w+")


def vocabulary() -> tuple[set[str], list[re.Pattern[str]]]:
    """The words that the vocabulary has, and its patterns of names that are narrow enough to mean something."""
    text = VOCABULARY.read_text()
    written = {string.replace("\\\\", "\\") for string in re.findall(r'"([^"]*)"', text)}
    patterns = {string for string in written if re.search(r"[*+?|]", string) and WORD.search(string)}
    globs = {string.replace("*", ".*") for string in patterns if "\\" not in string and ".*" not in string}
    return set(WORD.findall(text)), [re.compile(string) for string in sorted(patterns | globs) if _compiles(string)]


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


KEPT, PATTERNS = vocabulary()


def is_kept(name: str) -> bool:
    """Whether the vocabulary knows the name."""
    return name in KEPT or any(pattern.fullmatch(name) for pattern in PATTERNS)


def main() -> int:
    """Copy and rename."""
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    texts = {path: path.read_text(encoding="utf-8-sig") for path in sorted(source.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    functions = {name: other(name) for name in function_names(trees)}
    for path, text in texts.items():
        changed = renamed_tokens(renamed_locals(text, trees[path]), functions)
        ast.parse(changed)
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(changed, encoding="utf-8")
    (target / "renamed.json").write_text(json.dumps(functions, indent=1, sort_keys=True))
    print(f"{len(texts)} files, {len(functions)} function names")
    return 0


def other(name: str) -> str:
    """Another name, the same for the same one."""
    return f"fn_{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def function_names(trees: dict[Path, ast.Module]) -> set[str]:
    """The function names that can be changed everywhere without changing what the program means."""
    defined: set[str] = set()
    kept = set(dir(builtins)) | set(keyword.kwlist)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defined.add(node.name)
                kept |= {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)}
            elif isinstance(node, ast.keyword) and node.arg:
                kept.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 80:
                kept |= set(WORD.findall(node.value))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                kept.add(node.attr)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                kept |= {target.id for target in targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("sglang") and not node.level:
                kept |= {alias.name for alias in node.names}
    plain = {name for name in defined - kept if "_" in name.strip("_") and not name.startswith("__")}
    return {name for name in plain if not is_kept(name)}


def renamed_locals(text: str, tree: ast.Module) -> str:
    """The text with each function's local variables renamed; parameters and captured names stay."""
    lines = text.split("\n")
    edits: dict[tuple[int, int], tuple[int, str]] = {}
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef)]
        if len(inner) > 1:
            continue  # a nested function may see any of the names
        shared = {name for n in ast.walk(function) if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names}
        params = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
        names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
        caught = {n.name for n in ast.walk(function) if isinstance(n, ast.ExceptHandler) and n.name}
        imported = {a.asname or a.name.partition(".")[0] for n in ast.walk(function)
                    if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}  # fmt: skip
        assigned = {n.id for n in names if isinstance(n.ctx, ast.Store)} - params - shared - caught - imported
        in_text = {w for n in ast.walk(function) if isinstance(n, ast.JoinedStr) for w in WORD.findall(ast.unparse(n))}
        for node in names:
            if node.id in assigned - in_text and not is_kept(node.id):
                edits[node.lineno, node.col_offset] = (len(node.id), f"v_{other(node.id)[3:]}")
    for (line, column), (length, name) in sorted(edits.items(), reverse=True):
        raw = lines[line - 1].encode()
        lines[line - 1] = (raw[:column] + name.encode() + raw[column + length :]).decode()
    return "\n".join(lines)


def renamed_tokens(text: str, names: dict[str, str]) -> str:
    """The text with every word that is a function's name replaced, strings and comments left alone."""
    lines = text.splitlines(keepends=True)
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    found = [token for token in tokens if token.type == tokenize.NAME and token.string in names]
    for token in reversed(found):
        row, column = token.start
        line = lines[row - 1]
        lines[row - 1] = line[:column] + names[token.string] + line[column + len(token.string) :]
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
