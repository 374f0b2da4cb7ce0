"""Draw edges of a path's step at random, with the source around them, to be read by hand.

    python benchmarks/precision_sample.py INDEX_JSON SOURCE_ROOT [--path v2] [--count 100] [--seed 13804] [--json]

Only edges not marked virtual are drawn, of callers that run every step on the path. ``--json`` prints the list with a
place for the verdict, as it is kept in ``precision_v2_0.5.9.json``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path


def drawn(index: dict, path: str, count: int, seed: int) -> list[dict]:
    """The edges. An edge's place in the draw depends on itself alone, so that most of a draw outlives a change."""
    steps = {f["id"]: f for f in index["functions"] if path in f["paths"] and "every step" in f["phase"]}
    edges = [e for e in index["calls"] if not e["virtual"] and e["caller"] in steps]

    def place(edge: dict) -> str:
        return hashlib.sha256(f"{seed} {edge['caller']} {edge['callee']} {edge['kind']}".encode()).hexdigest()

    chosen = sorted(sorted(edges, key=place)[:count], key=lambda e: (e["caller"], e["callee"], e["kind"]))
    return [{**edge, "file": steps[edge["caller"]]["file"]} for edge in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("root", type=Path, help="the folder above the package")
    parser.add_argument("--path", default="v2")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=13804)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    edges = drawn(json.loads(arguments.index.read_text()), arguments.path, arguments.count, arguments.seed)
    if arguments.json:
        rows = [
            {
                "caller": e["caller"],
                "callee": e["callee"],
                "kind": e["kind"],
                "line": e["sites"][0]["line"],
                "verdict": "",
            }
            for e in edges
        ]
        print(json.dumps(rows, indent=1))
        return
    for number, edge in enumerate(edges, 1):
        lines = (arguments.root / edge["file"]).read_text(encoding="utf-8").splitlines()
        at = edge["sites"][0]["line"]
        print(f"{number:3} {edge['caller']}\n    -> {edge['callee']}  [{edge['kind']}]")
        for line in range(at, min(at + 2, len(lines) + 1)):
            print(f"      {line}: {lines[line - 1].strip()}")


if __name__ == "__main__":
    main()
