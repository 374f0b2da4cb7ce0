"""Traces in any state: every complete record is read, what was lost is counted, and nothing hostile gets out."""

from __future__ import annotations

import os
import random
import shutil
import struct
from zlib import crc32

import pytest
from runtime_support import trace_server

from sgltrace.errors import InputError
from sgltrace.runtime import Options, read_trace
from sgltrace.runtime.decode import Loss, read_segment
from sgltrace.runtime.probe import wire
from sgltrace.runtime.show import lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("whole")
    trace_server(folder, patch, "40", options=Options(every=1))
    patch.undo()
    return folder / "trace"


@pytest.fixture
def trace(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "trace")
    return tmp_path / "trace"


def segment(trace):
    (path,) = trace.glob("*.seg")
    return path


def read(trace):
    opened = read_trace(trace)
    (process,) = opened.recording()
    return list(process.records()), process.loss


def plain(records):
    return [(r.time_ns, r.site, r.kind, r.step, r.values()) for r in records]


def test_a_whole_trace_has_no_loss(trace):
    records, loss = read(trace)
    assert len(records) > 200 and not loss.any and not loss.unfinished


@pytest.mark.parametrize("part, least", [(0.1, 0.01), (0.5, 0.3), (0.99, 0.97)])
def test_a_truncated_segment_gives_its_complete_records(trace, part, least):
    before, _ = read(trace)
    path = segment(trace)
    os.truncate(path, int(path.stat().st_size * part))
    records, loss = read(trace)
    assert plain(records) == plain(before)[: len(records)] and loss.any
    assert len(records) >= len(before) * least


def test_damage_in_the_middle_costs_what_it_hits(trace):
    before = plain(read(trace)[0])
    path = segment(trace)
    data = bytearray(path.read_bytes())
    rng = random.Random(1)
    for _ in range(5):
        at = rng.randrange(len(data) // 2, len(data))
        data[at] ^= 0xFF
    path.write_bytes(data)
    records, loss = read(trace)
    assert 1 <= loss.gaps <= 5 and loss.bytes > 0
    assert len(records) >= len(before) - 5
    kept = [row for row in plain(records) if row[4] or row in before]
    assert all(row in before for row in kept)


@pytest.mark.parametrize("seed", range(30))
def test_noise_is_no_trace_and_no_error(trace, seed):
    rng = random.Random(seed)
    path = segment(trace)
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    data[start : start + 4000] = rng.randbytes(min(4000, len(data) - start))
    path.write_bytes(data)
    for head in trace.glob("*.head"):
        head.write_bytes(rng.randbytes(4096))
    for info in trace.glob("[0-9]*.json"):
        info.write_bytes(rng.randbytes(300))
    opened = read_trace(trace)
    assert opened.problems
    assert list(lines(opened))


def forged(*records):
    """A segment of complete records: kind, signature, step, ints or payload."""
    out = wire.SEGMENT.pack(wire.SEGMENT_MAGIC, 1, 1, 0, 0, 0, 0, 0).ljust(64, b"\0")
    for kind, number, step, payload in records:
        length = wire.RECORD_SIZE + (len(payload) + 7) // 8 * 8
        body = wire.RECORD.pack(0, length, 0, step, number, 1, kind, 0, 0, len(payload) // 8 if kind < 16 else 0)[4:]
        body += payload.ljust(length - wire.RECORD_SIZE, b"\0")
        out += struct.pack("<I", crc32(body) or 1) + body
    return out


def test_forged_definitions_cost_nothing(tmp_path):
    """Signatures of signatures, thousands of dimensions, counts without values."""
    layout = b'["x",0,[' + b",".join(b'["f%d",5,"x"]' % n for n in range(60)) + b"]]"
    rows = [(wire.DEFINE_LAYOUT, 1, len(layout), layout)]
    nested = 0
    for number in range(2, 9):
        payload = struct.pack("<61I", 1, *[nested] * 60)
        rows.append((wire.DEFINE_SIGNATURE, number, len(payload), payload))
        nested = number
    rows += [
        (wire.DEFINE_TENSOR, 20, 12, struct.pack("<III", 0, 0, 4_000_000_000)),
        (wire.DEFINE_LAYOUT, 21, 40, b"[" * 40),
        (wire.DEFINE_LAYOUT, 22, 24, b'["y",0,[["l",7,"list"]]]'),
        (wire.DEFINE_SIGNATURE, 23, 8, struct.pack("<II", 22, 0)),
        (wire.EXIT, nested, 1, b""),
        (wire.EXIT, 23, 1, struct.pack("<q", 1 << 60)),
        (wire.EXIT, 99, 1, b""),
    ]
    path = tmp_path / "1-1.0.seg"
    path.write_bytes(forged(*rows))
    loss = Loss()
    records = list(read_segment(path, loss))
    assert [record.values() for record in records] == [{}, {}, {}]
    assert loss.undefined == 1


def test_a_sparse_giant_is_not_read_whole(tmp_path):
    path = tmp_path / "1-1.0.seg"
    path.write_bytes(forged((wire.EXIT, 0, 1, b"")))
    os.truncate(path, 1 << 40)
    loss = Loss()
    assert len(list(read_segment(path, loss))) == 1
    assert loss.bytes == (1 << 40) - (1 << 30)


def test_links_and_devices_are_not_followed(trace):
    path = segment(trace)
    secret = trace.parent / "secret"
    path.rename(secret)
    path.symlink_to(secret)
    records, loss = read(trace)
    assert not records and loss.unusable_files == 1
    path.unlink()
    os.mkfifo(path)
    assert read(trace)[1].unusable_files == 1


def test_what_is_no_trace_is_an_input_error(tmp_path):
    for make in (lambda p: None, lambda p: p.mkdir(), lambda p: (p / "plan.json").write_text("{")):
        make(tmp_path / "x")
        with pytest.raises(InputError, match="x"):
            read_trace(tmp_path / "x")


def test_a_missing_segment_is_counted(trace):
    segment(trace).rename(trace / segment(trace).name.replace(".0.seg", ".7.seg"))
    _, loss = read(trace)
    assert loss.missing_segments == 0 or loss.any


def test_a_growing_trace_is_read_up_to_the_newest_record(trace):
    before, _ = read(trace)
    path = segment(trace)
    with path.open("ab") as file:
        file.write(b"\0" * 4 + b"\1" * 60 + b"\0" * 100_000)  # a record that is being written
    records, loss = read(trace)
    assert plain(records) == plain(before)
    assert loss.unfinished == 1 and not loss.any
