"""Of the first 20 hard points of each path, how many has a reader struck?

    python benchmarks/coupling_precision.py INDEX_JSON benchmarks/precision/0.5.9.json

The verdicts were written by hand beside the source. A point without a verdict is listed: it must be read first.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

FIRST, ALLOWED = 20, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("index", type=Path)
    parser.add_argument("verdicts", type=Path)
    arguments = parser.parse_args()
    points = json.loads(arguments.index.read_text(encoding="utf-8"))["coupling_points"]
    verdicts = json.loads(arguments.verdicts.read_text(encoding="utf-8"))["paths"]
    good = True
    for path, rows in sorted(verdicts.items()):
        known = {row["id"]: row for row in rows}
        first = [p for p in points if p["severity"].get(path) == "hard"][:FIRST]
        unread = [p["id"] for p in first if p["id"] not in known]
        struck = [known[p["id"]] for p in first if known.get(p["id"], {}).get("verdict") == "strike"]
        print(f"{path}: {len(first)} read, {len(struck)} struck, {len(unread)} not read yet")
        for row in struck:
            print(f"  struck: {row['title']}: {row['reason']}")
        for name in unread:
            print(f"  not read: {name}")
        good &= len(struck) <= ALLOWED and not unread
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
