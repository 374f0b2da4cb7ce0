"""Traces of the nodes of one run, put together as one: ranks matched by step, clocks laid over each other.

Each node records with its own monotonic clock. Ranks of one model run a step together, so that the median difference of
their steps' starts is what the clocks differ by; where no step matches, the wall clocks must do.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from sgltrace.errors import InputError, UsageError

from .observe import RankComparer
from .staging import RunInfo, write_run
from .step import Step
from .steps import by_step, steps
from .trace import FILE, MERGED, Merged, Node, ProcessTrace, Trace, read_trace

MATCHED = 2_000
"""Steps from which the difference of two clocks is told; a run's first ones are."""
MAX_DIFFERENCES = 50
APART_NS = 1_000_000
"""Wall clocks that are further apart than this are said to differ."""


class Disagreement(msgspec.Struct, kw_only=True, frozen=True):
    """A step that ranks did not take alike, and what each one did."""

    step: int
    what: str
    seen: dict[str, str]


class Merge(msgspec.Struct, kw_only=True):
    """What came of it."""

    folder: str
    ranks: dict[str, str]
    """Rank to the folder that it is from."""
    nodes: list[Node]
    matched: int
    """Steps that more than one rank has."""
    alone: dict[str, int]
    """Steps that one rank alone has, by rank."""
    disagreements: list[Disagreement]
    notes: list[str]


def merge(folders: Sequence[Path], out: Path) -> Merge:
    """Write one trace of several into the new folder ``out``. Raises ``UsageError``, ``InputError``."""
    if len(folders) < 2:
        raise UsageError("merge needs the traces of two or more nodes")
    if out.exists():
        raise UsageError(f"{out} exists; give -o a new folder")
    traces = [read_trace(folder) for folder in folders]
    notes = _same_run(traces)
    out.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".merge-", dir=out.parent))
    try:
        nodes = [_copy(trace, made, number) for number, trace in enumerate(traces)]
        (made / "plan.json").write_bytes((traces[0].folder / "plan.json").read_bytes())
        write_run(made, _run(traces))
        for node, trace in zip(nodes, traces, strict=True):
            _lay_over(node, traces[0], trace)
        (made / MERGED).write_bytes(msgspec.json.format(msgspec.json.encode(Merged(nodes=nodes)), indent=1))
        made.chmod(0o755)
        made.rename(out)
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror or error}; name another folder with -o") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return _told(out, nodes, [*notes, *_clocks(nodes)])


def _same_run(traces: Sequence[Trace]) -> list[str]:
    """What cannot be told of the traces being of one run. Raises ``UsageError`` where they are not."""
    first = traces[0]
    for other in traces[1:]:
        if other.plan.sites != first.plan.sites:
            raise UsageError(
                f"{other.folder} was recorded with other sites than {first.folder}; they are of other releases, or "
                "of other options of `sgltrace run`, and not of one run"
            )
    names = {trace.run.run_id if trace.run is not None else "" for trace in traces}
    told = sorted(name for name in names if name)
    if len(told) > 1:
        raise UsageError(f"these are traces of different runs: --run-id {', '.join(told)}")
    return [] if told and len(names) == 1 else ["not every trace names its run (--run-id); they are taken for one"]


def _copy(trace: Trace, out: Path, number: int) -> Node:
    """Copy the files of a node's processes; a name that another node has gets a number behind it."""
    names: dict[str, str] = {}
    for entry in sorted(path.name for path in trace.folder.iterdir()):
        match = FILE.fullmatch(entry)
        if match is None:
            continue
        name = match[1]
        if name not in names:
            taken = any(out.glob(f"{name}.*"))
            names[name] = _other_name(name, number) if taken else name
        shutil.copyfile(trace.folder / entry, out / f"{names[name]}{entry[len(name) :]}", follow_symlinks=False)
    host = trace.run.host if trace.run is not None else ""
    return Node(folder=str(trace.folder), host=host, processes=sorted(names.values()))


def _other_name(name: str, number: int) -> str:
    """A name for a process where another node has its own; programs that followed by ``exec`` stay in order."""
    pid, start, *count = name.split("-")
    return f"{pid}-{start}-{9000 + 100 * number + (int(count[0]) if count else 0)}"


def _run(traces: Sequence[Trace]) -> RunInfo:
    """What was run, on all nodes: the first one's command and clock, everybody's processes and problems."""
    infos = [trace.run for trace in traces if trace.run is not None]
    if not infos:
        raise InputError(f"{traces[0].folder}: no readable run.json in any of the traces")
    codes = [info.exit_code for info in infos]
    ends = [info.ended_ns for info in infos if info.ended_ns is not None]
    whole: RunInfo = msgspec.structs.replace(
        infos[0],
        exit_code=None if None in codes else next((code for code in codes if code), 0),
        ended_ns=max(ends, default=None),
        gpus=[gpu for info in infos for gpu in info.gpus],
        processes=[process for info in infos for process in info.processes],
        problems=[f"node {n}: {text}" for n, info in enumerate(infos) for text in info.problems],
    )
    return whole


def _lay_over(node: Node, first: Trace, trace: Trace) -> None:
    """How far a node's clock is from the first one's: by the steps that both have, and by their wall clocks."""
    if trace is first:
        return
    walls = [t.run.started_ns - t.run.monotonic_ns for t in (trace, first) if t.run is not None]
    by_wall = walls[0] - walls[1] if len(walls) == 2 else 0
    theirs, mine = first.recording(), trace.recording()
    apart = _apart(first, theirs[0], trace, mine[0]) if theirs and mine else []
    node.shift_ns = -int(statistics.median(apart)) if apart else by_wall
    node.matched = len(apart)
    if len(apart) > 1:
        ordered = sorted(apart)
        node.spread_ns = ordered[int(0.95 * (len(ordered) - 1))] - ordered[int(0.05 * (len(ordered) - 1))]
        half = len(apart) // 2
        node.drift_ns = int(statistics.median(apart[half:]) - statistics.median(apart[:half]))
    node.wall_ns = node.shift_ns - by_wall if apart else None


def _apart(first: Trace, theirs: ProcessTrace, trace: Trace, mine: ProcessTrace) -> list[int]:
    """By how much a step began later by the second clock, for steps that both have."""
    starts = {step.number: step.start_ns for step in islice(_ran(first, theirs), MATCHED)}
    found = []
    for step in islice(_ran(trace, mine), MATCHED):
        other = starts.get(step.number)
        if other is not None and step.start_ns is not None:
            found.append(step.start_ns - other)
    return found


def _ran(trace: Trace, process: ProcessTrace) -> Iterator[Step]:
    return (step for step in steps(trace, process, detail=False) if step.ran and step.number)


def _clocks(nodes: Sequence[Node]) -> list[str]:
    notes = []
    for number, node in enumerate(nodes[1:], 1):
        name = node.host or node.folder
        if not node.matched:
            notes.append(f"node {number} ({name}): no step matches; its times are laid over by the wall clocks alone")
        elif node.wall_ns is not None and abs(node.wall_ns) > APART_NS:
            notes.append(
                f"node {number} ({name}): its wall clock is {node.wall_ns / 1e6:+.1f} ms off the first node's; "
                f"times are laid over by {node.matched} steps (spread {node.spread_ns / 1e6:.2f} ms)"
            )
        if abs(node.drift_ns) > APART_NS:
            notes.append(
                f"node {number} ({name}): its clock drifts, by {node.drift_ns / 1e6:+.1f} ms in half of the steps"
            )
    return notes


def _told(out: Path, nodes: list[Node], notes: list[str]) -> Merge:
    """What the merged trace says of its ranks."""
    trace = read_trace(out)
    of_node = {name: node.folder for node in nodes for name in node.processes}
    comparer = RankComparer(trace)
    matched, alone = 0, {process.rank: 0 for process in trace.recording()}
    found: list[Disagreement] = []
    for number, together in by_step(trace):
        ran = [step for step in together if step.ran]
        if not number or not ran:
            continue
        if len(ran) == 1:
            alone[ran[0].rank] += 1
            continue
        matched += 1
        comparer.add(number, ran)
        if len(found) < MAX_DIFFERENCES:
            found += _disagreements(number, ran)
    found += [
        Disagreement(step=d.step, what=f"{d.function} {d.path}", seen=d.seen) for d in comparer.found[:MAX_DIFFERENCES]
    ]
    return Merge(
        folder=str(out),
        ranks={process.rank: of_node.get(process.name, "") for process in trace.recording()},
        nodes=nodes,
        matched=matched,
        alone={rank: count for rank, count in alone.items() if count},
        disagreements=sorted(found, key=lambda d: d.step)[:MAX_DIFFERENCES],
        notes=notes,
    )


def _disagreements(number: int, ran: Sequence[Step]) -> Iterator[Disagreement]:
    for name in ("mode", "batch_size", "how", "padded", "accept_lens"):
        seen = {step.rank: getattr(step, name) for step in ran if getattr(step, name) not in (None, "")}
        if len({str(value) for value in seen.values()}) > 1:
            told = {rank: str(value) for rank, value in seen.items()}
            yield Disagreement(step=number, what=name.replace("_", " "), seen=told)
