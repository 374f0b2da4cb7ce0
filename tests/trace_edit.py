"""Traces edited: a copy of a recorded one in which some records are others, whole and complete as before."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

from sgltrace.runtime.definitions import Definitions
from sgltrace.runtime.plan import decode as decode_plan
from sgltrace.runtime.probe import wire

TRACES = Path(__file__).parent.parent / "fixtures" / "traces"


@dataclass
class Raw:
    """A record as it lies in a segment. A definition has its payload in ``payload``."""

    time_ns: int
    step: int
    number: int
    site: int
    kind: int
    phase: int
    thread: int
    ints: list[int] = field(default_factory=list)
    payload: bytes = b""

    def encoded(self) -> bytes:
        """Its bytes, committed."""
        body = (
            self.payload
            if self.kind in wire.DEFINITIONS
            else b"".join(n.to_bytes(8, "little", signed=True) for n in self.ints)
        )
        size = len(body) if self.kind in wire.DEFINITIONS else self.step
        count = 0 if self.kind in wire.DEFINITIONS else len(self.ints)
        padded = body.ljust((len(body) + 7) // 8 * 8, b"\0")
        length = wire.RECORD_SIZE + len(padded)
        data = wire.RECORD.pack(
            0, length, self.time_ns, size, self.number, self.site, self.kind, self.phase, self.thread, count
        )
        data = data[4:] + padded
        return (crc32(data) or 1).to_bytes(4, "little") + data


def records(path: Path) -> Iterator[Raw]:
    """The records and definitions of an undamaged segment."""
    data = path.read_bytes()
    offset = wire.SEGMENT_SIZE
    while offset + wire.RECORD_SIZE <= len(data):
        commit, length, time_ns, step, number, site, kind, phase, thread, count = wire.RECORD.unpack_from(data, offset)
        if not commit:
            return
        start = offset + wire.RECORD_SIZE
        if kind in wire.DEFINITIONS:
            yield Raw(0, 0, number, site, kind, phase, thread, payload=data[start : start + step])
        else:
            ints = list(memoryview(data[start : start + 8 * count]).cast("q")) if count else []
            yield Raw(time_ns, step, number, site, kind, phase, thread, ints)
        offset += length


class Editor:
    """Edits the records of one process; knows the roles of sites and the layouts of signatures."""

    def __init__(self, folder: Path, name: str, process: int = 0) -> None:
        shutil.copytree(TRACES / name, folder)
        self.folder = folder
        self.plan = decode_plan((folder / "plan.json").read_bytes())
        self.path = sorted(folder.glob("*.0.seg"))[process]
        self.head = self.path.read_bytes()[: wire.SEGMENT_SIZE]
        self.records = list(records(self.path))
        self.definitions = {r.number: r for r in self.records if r.kind in wire.DEFINITIONS}
        self._ids = iter(range(1_000_000, 2_000_000))

    def save(self) -> Path:
        """Write the trace and return its folder."""
        body = b"".join(record.encoded() for record in self.records)
        self.path.write_bytes(
            self.head[:20] + (len(self.head) + len(body)).to_bytes(4, "little") + self.head[24:] + body
        )
        return self.folder

    def of(self, role: str, step: int, kind: int) -> list[Raw]:
        """The records of a role's sites in a step."""
        sites = {n for n, site in enumerate(self.plan.sites, 1) if site.role == role}
        return [r for r in self.records if r.step == step and r.kind == kind and r.site in sites]

    def fields(self, record: Raw) -> list[tuple[str, int]]:
        """Names and kinds of what a record's signature holds."""
        layout = int.from_bytes(self.definitions[record.number].payload[:4], "little")
        _, _, fields = json.loads(self.definitions[layout].payload)
        return [(name, kind) for name, kind, _ in fields]

    def change_list(self, record: Raw, name: str, change: Callable[[list[int]], list[int]]) -> None:
        """Replace a list of integers. Lists are the last fields of the records that this is for."""
        known = Definitions()
        for made in self.definitions.values():
            known.add(made.number, made.kind, made.payload)
        signature = known.signature(record.number)
        assert signature is not None
        held = signature.decode(record.ints)
        lists = [found for found, kind in self.fields(record) if kind == wire.LIST]
        lengths = [1 + held[found].length for found in lists]
        start = len(record.ints) - sum(lengths[lists.index(name) :])
        end = start + lengths[lists.index(name)]
        values = change(record.ints[start + 1 : end])
        record.ints[start:end] = [len(values), *values]

    def change_rows(self, record: Raw, name: str, rows: int) -> None:
        """Give a tensor, at ``name`` or at a field of an object (``a.b``) in the record, another number of rows."""
        at = self.records.index(record)
        added: list[Raw] = []
        record.number = self._with_rows(record.number, name, rows, added)
        self.records[at:at] = added

    def _with_rows(self, signature: int, name: str, rows: int, added: list[Raw]) -> int:
        numbers = list(memoryview(self.definitions[signature].payload).cast("I"))
        _, _, fields = json.loads(self.definitions[numbers[0]].payload)
        slot = 0
        for found, kind, _ in fields:
            if kind not in (wire.TENSOR, wire.FLAG, wire.ENUM, wire.LIST, wire.NESTED):
                continue
            slot += 1
            if found == name and kind == wire.TENSOR:
                old = self.definitions[numbers[slot]].payload
                sizes = list(memoryview(old[wire.TENSOR_HEAD.size :]).cast("q"))
                body = b"".join(n.to_bytes(8, "little", signed=True) for n in [rows, *sizes[1:]])
                numbers[slot] = self._define(wire.DEFINE_TENSOR, old[: wire.TENSOR_HEAD.size] + body, added)
                break
            if kind == wire.NESTED and name.startswith(f"{found}."):
                numbers[slot] = self._with_rows(numbers[slot], name[len(found) + 1 :], rows, added)
                break
        else:
            raise KeyError(name)
        payload = b"".join(n.to_bytes(4, "little") for n in numbers)
        return self._define(wire.DEFINE_SIGNATURE, payload, added)

    def _define(self, kind: int, payload: bytes, added: list[Raw]) -> int:
        made = Raw(0, 0, next(self._ids), 0, kind, 0, 0, payload=payload)
        self.definitions[made.number] = made
        added.append(replace(made))
        return made.number
