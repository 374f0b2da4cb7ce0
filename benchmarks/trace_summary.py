"""How fast a large trace is summed up, and in how much memory.

    python benchmarks/trace_summary.py [RECORDS]        10,000,000 records if left out

A recorded trace (fixtures/traces/eagle3_v2) is repeated, each time with later steps and times, until it has so many
records; `sgltrace show --summary` and what `sgltrace report --run` does with a trace then read it. Printed are records
a second, how that compares with reading the bytes and checking each record's CRC, and the largest memory of a process.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from zlib import crc32

from sgltrace.runtime.probe import wire

SOURCE = Path(__file__).parent.parent / "fixtures" / "traces" / "eagle3_v2"
SEGMENT = 1 << 20  # as large as the recorder makes them
RECORDS = 10_000_000


def synthesise(folder: Path, records: int) -> int:
    """Write a trace of at least so many records into ``folder`` and return how many they are."""
    shutil.copytree(SOURCE, folder)
    (source,) = folder.glob("*.0.seg")
    data = source.read_bytes()
    source.unlink()
    parts = list(_parts(data))
    definitions = b"".join(part for part in parts if _kind(part) in wire.DEFINITIONS)
    repeated = [bytearray(part) for part in parts if _kind(part) not in wire.DEFINITIONS and _step(part)]
    first = min(_time(part) for part in repeated)
    span_ns = max(_time(part) for part in repeated) - first + 1_000_000
    span_steps = max(_step(part) for part in repeated)
    times, steps = [_time(part) for part in repeated], [_step(part) for part in repeated]
    written, turn, number = 0, 0, 0
    while written < records:
        header = bytearray(data[: wire.SEGMENT_SIZE])
        body = [definitions]
        size = len(definitions)
        while size < SEGMENT and written < records:
            for part, at, step in zip(repeated, times, steps, strict=True):
                wire.RECORD.pack_into(
                    part, 0, 0, len(part), at + turn * span_ns, step + turn * span_steps, *_rest(part)
                )
                part[:4] = (crc32(part[4:]) or 1).to_bytes(4, "little")
                body.append(bytes(part))
                size += len(part)
            written += len(repeated)
            turn += 1
        header[wire.SEGMENT_SIZE_AT : wire.SEGMENT_SIZE_AT + 4] = (wire.SEGMENT_SIZE + size).to_bytes(4, "little")
        path = folder / source.name.replace(".0.seg", f".{number}.seg")
        path.write_bytes(bytes(header) + b"".join(body))
        number += 1
    _set_next_segment(next(folder.glob("*.head")), number)
    return written


def _parts(data: bytes) -> list[bytes]:
    found, offset = [], wire.SEGMENT_SIZE
    while offset + wire.RECORD_SIZE <= len(data):
        commit, length = wire.RECORD.unpack_from(data, offset)[:2]
        if not commit:
            break
        found.append(data[offset : offset + length])
        offset += length
    return found


def _kind(part: bytes) -> int:
    return int(wire.RECORD.unpack_from(part)[6])


def _step(part: bytes) -> int:
    return int(wire.RECORD.unpack_from(part)[3])


def _time(part: bytes) -> int:
    return int(wire.RECORD.unpack_from(part)[2])


def _rest(part: bytes) -> tuple[int, ...]:
    return wire.RECORD.unpack_from(part)[4:]


def _set_next_segment(path: Path, number: int) -> None:
    data = bytearray(path.read_bytes())
    names = wire.HEAD_COUNTERS
    layout = wire.HEAD
    if int.from_bytes(data[8:12], "little") == 1 and hasattr(wire, "HEAD_1"):
        layout, names = wire.HEAD_1, wire.HEAD_COUNTERS_1
    fields = list(layout.unpack_from(data))
    fields[3 + names.index("next_segment")] = number
    layout.pack_into(data, 0, *fields)
    path.write_bytes(bytes(data))


def floor(folder: Path) -> float:
    """Seconds to read every segment and check each record's CRC, and nothing else."""
    began = time.perf_counter()
    for path in sorted(folder.glob("*.seg")):
        data = path.read_bytes()
        offset = wire.SEGMENT_SIZE
        while offset + wire.RECORD_SIZE <= len(data):
            length = wire.RECORD.unpack_from(data, offset)[1]
            crc32(data[offset + 4 : offset + length])
            offset += length
    return time.perf_counter() - began


def measured(code: str, folder: Path) -> tuple[float, float, float]:
    """Seconds, seconds of a core, and MiB of a process of its own that runs ``code``."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    core = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, core, after.ru_maxrss / 1024


SHOW = "import sys; from sgltrace.cli import run; sys.exit(run(['show', '--summary', sys.argv[1]]))"
JOIN = """
import sys
from sgltrace.insight.join import join
from sgltrace.model import Index, Source
from sgltrace.runtime import read_trace
source = Source(name="sglang", version=None, root="", kind="folder", requested="")
index = Index(source=source, entry_points={"v1": None, "v2": None}, functions=[], calls=[], unresolved=[])
join(read_trace(sys.argv[1]), index, "a run")
"""


def main() -> None:
    records = int(sys.argv[1].replace(",", "")) if len(sys.argv) > 1 else RECORDS
    # The join looks at every value of every record, and a tenth of them tells how long that takes.
    for name, code, share in (("join", JOIN, 10), ("summary", SHOW, 1)):
        with tempfile.TemporaryDirectory() as outer:
            folder = Path(outer, "trace")
            count = synthesise(folder, records // share)
            size = sum(path.stat().st_size for path in folder.glob("*.seg"))
            lowest = floor(folder)
            seconds, core, memory = measured(code, folder)
            result = {
                "what": name,
                "records": count,
                "MiB": round(size / 2**20),
                "floor_s": round(lowest, 1),
                "seconds": round(seconds, 1),
                "core_s": round(core, 1),  # less than the seconds on a machine that others use, too
                "records_per_s": round(count / seconds),
                "over_floor": round(seconds / lowest, 2),
                "largest_memory_MiB": round(memory),
            }
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
