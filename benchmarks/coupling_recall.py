"""How many hand-read coupling cases an index finds, and whether path, kind and severity are right.

    python benchmarks/coupling_recall.py INDEX_JSON REFERENCE_JSON [--missing]

A case is found where a coupling point shares a producer function and a consumer function with it. Of the points that
do, the one that agrees best on kind family and severity is compared. A path that does not block is one thing, whether
it is written none, n/a or null; a decoy that is reported hard is counted by itself. A reference with ``functions``
instead of ``coupling_points`` lists what a real change had to touch: each should be a producer or a consumer.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

FAMILIES = (
    {"kv_alloc", "kv_bookkeeping", "draft_kv"},
    {"mem_pool_sizing"},
    {"cuda_graph", "graph_recapture"},
    {"scheduler_policy", "scheduler_flags", "worker_dispatch"},
    {"batch_filter_merge", "draft_state"},
    {"seq_lens_semantics", "input_ids", "input_token_source"},
    {"hidden_capture"},
    {"future_map", "stream_order", "result_format"},
    {"sampling", "grammar", "logprob"},
    {"attn_metadata", "forward_mode"},
    {"dp_attention", "tbo", "two_batch_overlap", "tp_agreement", "comm"},
    {"disaggregation"},
    {"mamba_state"},
    {"metrics", "control_surface"},
    {"config_gate"},
    {"prefix_cache"},
)


def family(kind: str) -> int:
    """The family of a kind; one of its own for a kind that no family lists."""
    return next((i for i, kinds in enumerate(FAMILIES) if kind in kinds), -1 - hash(kind) % 1000)


def plain(function: str) -> str:
    """A function id without ``<locals>``."""
    return function.replace("<locals>.", "")


def functions(places: list[dict]) -> set[str]:
    """The functions of a list of places."""
    return {plain(p["function"]) for p in places}


def severity(value: object) -> str:
    """``none``, ``n/a`` and null are the same: the path does not block."""
    return "none" if value in (None, "n/a") else str(value)


def agreement(case: dict, point: dict) -> tuple[bool, bool]:
    """Whether kind family, and path with severity, are the case's."""
    kind = family(case["kind"]) == family(point["kind"])
    same = all(severity(case["severity"].get(p)) == severity(point["severity"].get(p)) for p in ("v1", "v2"))
    return kind, same


def judge(case: dict, points: list[dict]) -> tuple[dict | None, tuple[bool, bool]]:
    """The point that matches a case best, and how it agrees."""
    matching = [
        p
        for p in points
        if functions(case["producers"]) & functions(p["producers"])
        and functions(case["consumers"]) & functions(p["consumers"])
    ]
    if not matching:
        return None, (False, False)
    best = max(
        matching, key=lambda p: (agreement(case, p), len(functions(case["consumers"]) & functions(p["consumers"])))
    )
    return best, agreement(case, best)


def level(case: dict) -> str:
    """The worst severity of a case on any path."""
    values = [severity(v) for v in case["severity"].values()]
    return next((v for v in ("hard", "soft", "none") if v in values), "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--missing", action="store_true", help="say for each case what is wrong")
    arguments = parser.parse_args()
    points = json.loads(arguments.index.read_text())["coupling_points"]
    reference = json.loads(arguments.reference.read_text())
    if "coupling_points" not in reference:
        touched(points, reference, arguments.missing)
        return
    total: dict[str, int] = {}
    found: dict[str, int] = {}
    right = 0
    decoys = []
    for case in reference["coupling_points"]:
        wanted = level(case)
        total[wanted] = total.get(wanted, 0) + 1
        point, (kind, same) = judge(case, points)
        found[wanted] = found.get(wanted, 0) + (point is not None)
        right += kind and same
        if wanted == "none" and point is not None and kind and "hard" in point["severity"].values():
            decoys.append(case["title"])
        if arguments.missing and not (point is not None and kind and same):
            got = "not found" if point is None else f"{point['kind']} {point['severity']} ({point['title']})"
            print(f"- {case['kind']} {case['severity']}: {case['title']}\n    {got}")
    for wanted in ("hard", "soft", "none"):
        if wanted in total:
            print(f"{wanted:5} found {found[wanted]:3} of {total[wanted]:3}  {found[wanted] / total[wanted]:.2f}")
    every = sum(found.values())
    print(f"kind family, path and severity right: {right} of {every} found  {right / max(every, 1):.2f}")
    print(f"decoys reported hard: {len(decoys)} {decoys}")


def touched(points: list[dict], reference: dict, missing: bool) -> None:
    """Score the functions of a real change against the producers and consumers of the points."""
    named = set()
    for point in points:
        if point["severity"].get("v1") is not None:
            named |= functions(point["producers"]) | functions(point["consumers"])
    wanted = [plain(f["function"]) for f in reference["functions"]]
    hit = [f for f in wanted if f in named]
    print(f"functions of the change that appear: {len(hit)} of {len(wanted)}  {len(hit) / max(len(wanted), 1):.2f}")
    if missing:
        for function in wanted:
            if function not in named:
                print(f"- {function}")


if __name__ == "__main__":
    main()
