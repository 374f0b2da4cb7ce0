"""Index every release of SGLang on the package registry, and say how each looks.

    python benchmarks/releases.py RESULTS [--from 0.4.1] [--to X] [--only V...] [--limit N] [--page docs/releases.md]

RESULTS is a file of one JSON line for each release; what is in it is not indexed again, so a run may be ended and taken
up at any time (``--again`` begins anew). Printed is a table: paths, functions, edges, unresolved calls, coupling points
by path and severity and hard ones by design, seconds, processor seconds, the largest process in MiB, and what the index
says that it could not do. ``!`` marks a jump from the release before: by half in functions or edges, double or half in
unresolved calls, a path that came or went. ``--page`` writes it as a page, with a plot beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from sgltrace import __version__
from sgltrace.sources.pip import all_releases

PATHS, SEVERITIES, DESIGNS = ("v1", "v2"), ("hard", "soft", "none"), ("A", "B", "C")
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--from", dest="first", type=Version, default=Version("0.4.1"))
    parser.add_argument("--to", dest="last", type=Version)
    parser.add_argument("--only", nargs="+", type=Version)
    parser.add_argument("--limit", type=int, help="at most so many that are not in RESULTS yet")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    rows = {} if arguments.again else read(arguments.results)
    if arguments.again:
        arguments.results.unlink(missing_ok=True)
    wanted = arguments.only or [
        version
        for version in sorted(all_releases(Requirement("sglang"))[0])
        if arguments.first <= version <= (arguments.last or version) and not version.is_prerelease
    ]
    missing = [version for version in wanted if str(version) not in rows]
    for version in missing[: arguments.limit]:
        rows[str(version)] = row = index(str(version))
        with arguments.results.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(f"{version}: {row['error'] or 'done'} in {row['seconds']:.0f} s", file=sys.stderr)
    shown = [row for _, row in sorted(rows.items(), key=lambda item: Version(item[0]))]
    text = table(shown)
    print(text)
    if arguments.page:
        picture = arguments.page.with_suffix(".svg")
        picture.write_text(plot(shown), encoding="utf-8")
        arguments.page.write_text(page(shown, text, picture.name), encoding="utf-8")
    bugs = [row["version"] for row in shown if row["code"] not in (0, 3)]
    if bugs:
        print(f"ended with another code than 0 or 3: {', '.join(bugs)}", file=sys.stderr)
    return 1 if bugs else 0


def read(results: Path) -> dict[str, Row]:
    """What is known already, by version. A last line that was cut off is passed over."""
    rows = {}
    for line in results.read_text(encoding="utf-8").splitlines() if results.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row["version"]] = row
    return rows


def index(version: str) -> Row:
    """Index a release, and count what is in its index."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["index", f"sglang=={version}", "-o", f"{folder}/ws", "--no-report", "--json"]
        start = time.monotonic()
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "sgltrace", *command], stdout=subprocess.DEVNULL, stderr=said, text=True
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = code = os.waitstatus_to_exitcode(status)
            said.seek(0)
            lines = said.read().splitlines()
        row: Row = {
            "version": version,
            "tool": __version__,
            "code": code,
            "error": lines[-1] if code and lines else "" if not code else f"exit code {code}",
            "seconds": time.monotonic() - start,
            "busy": used.ru_utime + used.ru_stime,
            "mib": used.ru_maxrss >> 10,
        }
        if code == 0:
            row.update(counted(json.loads(Path(folder, "ws/index.json").read_bytes())))
        return row


def counted(made: dict[str, Any]) -> Row:
    """What the table has of an index."""
    points = made["coupling_points"]
    verdicts = [verdict for point in points for verdict in point.get("verdicts", [])]
    return {
        "entry_points": made["entry_points"],
        "unknown_paths": made.get("unknown_paths", {}),
        "functions": len(made["functions"]),
        "edges": len(made["calls"]),
        "unresolved": len(made["unresolved"]),
        "skipped": [skipped["file"] for skipped in made["skipped"]],
        "severity": {
            path: {level: sum(point["severity"].get(path) == level for point in points) for level in SEVERITIES}
            for path in PATHS
        },
        "hard_by_design": {
            path: {
                design: sum(v["path"] == path and v["design"] == design and v["severity"] == "hard" for v in verdicts)
                for design in DESIGNS
            }
            for path in PATHS
        },
        "notes": made["notes"],
    }


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    heads = ["release", "paths", "functions", "edges", "unresolved"]
    heads += [f"{path} hard/soft/none" for path in PATHS] + [f"{path} hard by A/B/C" for path in PATHS]
    heads += ["s", "busy s", "MiB", "notes"]
    lines = [f"| {' | '.join(heads)} |", f"| --- | --- |{' ---: |' * (len(heads) - 3)} --- |"]
    before: Row | None = None
    for row in rows:
        cost = [f"{row['seconds']:.0f}", f"{row['busy']:.0f}", str(row["mib"])]
        if row["code"]:
            lines.append(f"| {row['version']} | |{' |' * (len(heads) - 6)} {' | '.join(cost)} | {cell(row['error'])} |")
            continue
        marks = jumps(before, row)
        cells = [row["version"], paths(row) + marks["paths"]]
        cells += [f"{row[key]}{marks[key]}" for key in ("functions", "edges", "unresolved")]
        for key, inner in (("severity", SEVERITIES), ("hard_by_design", DESIGNS)):
            for path in PATHS:
                there = row["entry_points"].get(path) is not None
                cells.append("/".join(str(row[key][path][name]) for name in inner) if there else "")
        notes = [note for note in row["notes"] if "--whole" not in note]
        notes += [f"{len(row['skipped'])} files not read"] if row["skipped"] else []
        lines.append(f"| {' | '.join([*cells, *cost])} | {cell('; '.join(notes))} |")
        before = row
    return "\n".join(lines)


def paths(row: Row) -> str:
    """The paths that a release has; ``v2?`` where nobody knows."""
    there = [path for path in PATHS if row["entry_points"].get(path)]
    return " ".join([*there, *(f"{path}?" for path in row["unknown_paths"])]) or "none"


def jumps(before: Row | None, row: Row) -> dict[str, str]:
    """A mark for each figure that is far from that of the release before."""
    bounds = {"functions": 1.5, "edges": 1.5, "unresolved": 2.0}
    marks = dict.fromkeys([*bounds, "paths"], "")
    if before is None:
        return marks
    for key, bound in bounds.items():
        ratio = (row[key] + 1) / (before[key] + 1)
        marks[key] = "" if 1 / bound < ratio < bound else " !"
    marks["paths"] = "" if paths(before) == paths(row) else " !"
    return marks


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def plot(rows: list[Row]) -> str:
    """How coupled each release was: hard points of each path, release after release."""
    rows = [row for row in rows if not row["code"]]
    width, height, left, top = 960, 320, 40, 30
    highest = max([row["severity"][path]["hard"] for row in rows for path in PATHS], default=1) or 1
    step = (width - left - 20) / max(len(rows) - 1, 1)

    def place(number: int, value: int) -> tuple[float, float]:
        return left + number * step, top + (height - top - 60) * (1 - value / highest)

    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    out = [f'{head} font-family="sans-serif" font-size="11">']
    out.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for value in sorted({0, highest // 2, highest}):
        x, y = place(0, value)
        out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for path, colour in zip(PATHS, ("#b35900", "#1f5fa8"), strict=True):
        there = [(n, row["severity"][path]["hard"]) for n, row in enumerate(rows) if row["entry_points"].get(path)]
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in there)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += ['<circle cx="{:.1f}" cy="{:.1f}" r="2.5" fill="{}"/>'.format(*place(*point), colour) for point in there]
        x = left + 60 * PATHS.index(path)
        out.append(f'<text x="{x}" y="16" fill="{colour}">{path}</text>')
    out.append(f'<text x="{left + 120}" y="16">hard coupling points</text>')
    every = max(1, len(rows) // 24)
    for number, row in enumerate(rows):
        if number % every == 0:
            x, _ = place(number, 0)
            out.append(f'<text transform="translate({x:.1f},{height - 44}) rotate(60)">{row["version"]}</text>')
    return "\n".join([*out, "</svg>", ""])


def page(rows: list[Row], text: str, picture: str) -> str:
    """The page of the documentation."""
    return (
        f"# Every release\n\nWhat `sgltrace index` finds in {len(rows)} releases of SGLang, written by "
        f"`benchmarks/releases.py`. `!` marks a jump from the release before.\n\n"
        f"![Hard coupling points of each path, release after release]({picture})\n\n{text}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
