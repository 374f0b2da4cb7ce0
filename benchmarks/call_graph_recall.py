"""Recall of an index's call graph against a reference of edges, hand-read or observed.

    python benchmarks/call_graph_recall.py INDEX_JSON REFERENCE_JSON [--missing]

A reference is ``{"edges": [{"caller", "callee", ...}], "not_edges": [...], ...}``. Edges that leave the package are not
counted; ids are compared without Python's ``<locals>``; a pair is counted once, however often it was observed. Pairs
under ``not_edges`` that the index has are listed as wrong.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path


def plain(function: str) -> str:
    """The id without ``<locals>``."""
    return function.replace("<locals>.", "")


def pairs_of(reference: dict) -> dict[tuple[str, str], dict]:
    """The distinct pairs inside the package, each with one of its edges."""
    edges = [e for e in reference["edges"] if not e["callee"].startswith("ext:")]
    return {(plain(e["caller"]), plain(e["callee"])): e for e in edges}


def found_in(index: dict) -> set[tuple[str, str]]:
    """The pairs of an index. A constructor stands for the class too."""
    pairs = {(c["caller"], c["callee"]) for c in index["calls"]}
    return pairs | {(a, b.removesuffix(".__init__")) for a, b in pairs if b.endswith(".__init__")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--missing", action="store_true", help="list the pairs that the index lacks")
    arguments = parser.parse_args()
    found = found_in(json.loads(arguments.index.read_text()))
    reference = json.loads(arguments.reference.read_text())
    wanted = pairs_of(reference)
    missing = sorted(pair for pair in wanted if pair not in found)
    kinds = Counter(e.get("kind", "observed") for e in wanted.values())
    lacking = Counter(wanted[pair].get("kind", "observed") for pair in missing)
    for kind, total in sorted(kinds.items()):
        print(f"{kind:26} {total - lacking[kind]:4} of {total:4}")
    recall = 1 - len(missing) / len(wanted) if wanted else 1.0
    print(f"recall {recall:.4f}: {len(wanted) - len(missing)} of {len(wanted)} pairs")
    for edge in reference.get("not_edges", ()):
        if (edge.get("caller"), edge.get("callee")) in found:
            print(f"  wrong: {edge['caller']} -> {edge['callee']}  {edge.get('text', '')}")
    if arguments.missing:
        for caller, callee in missing:
            edge = wanted[caller, callee]
            print(f"  {caller} -> {callee}  line {edge.get('line')} {edge.get('kind', '')}{edge.get('via') or ''}")


if __name__ == "__main__":
    main()
